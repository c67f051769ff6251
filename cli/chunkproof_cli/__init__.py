"""Chunkproof on a terminal."""
