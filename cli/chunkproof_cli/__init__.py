"""The `chunkproof` command line."""
