"""What a running process has: the container of clients, telemetry and metrics."""
