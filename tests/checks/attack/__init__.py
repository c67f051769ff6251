"""Attacks on the product with generators of their own: one module per kind, each with a function `run`.

`run(seed, seconds)` attacks until the time is over and returns a `Result`. The same seed makes the same attempts.
"""
