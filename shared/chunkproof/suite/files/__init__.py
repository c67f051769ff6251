"""Suites on disk: YAML, JSON, BEIR and TREC, with the line of each part."""
