"""The checks of `chunkproof doctor`."""
