"""What `chunkproof doctor` examines."""
