"""Suites on disk: YAML, JSON, BEIR folders, TREC topics and qrels."""
