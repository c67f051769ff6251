"""Chunkproof: retrieval that proves it returns what was stored."""

__version__ = "0.1.0"
CONTRACT_VERSION = "1.0"
