"""Retrievers that a suite can test: HTTP services, Python objects, MCP tools and recorded runs."""
