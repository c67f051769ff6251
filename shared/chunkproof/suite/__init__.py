"""Retrieval test suites: cases in, verdicts, metrics and success criteria out.

Everything here runs in Lambda as well as on a terminal: it is given a way to search and knows nothing of
files, options or colours.
"""
