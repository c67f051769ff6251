"""Qdrant: a server, or the SDK's local mode."""
