"""Attacks on the product with generators of their own: one module per kind, each with a function `run`.

`run(attack)` makes attempts as long as `attack.goes_on()` and notes each. The same seed makes the same attempts.
"""
