"""Latency reports as text and HTML."""
