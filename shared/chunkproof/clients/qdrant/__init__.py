"""Qdrant: a server, or its SDK's local mode."""
