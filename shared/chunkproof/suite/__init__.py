"""Retrieval test suites: cases in; verdicts, metrics and success criteria out.

Runs in Lambda as well as on the command line: callers pass a backend to search with, and nothing here reads options
or prints.
"""
