"""The Lambda service: API, events, telemetry, and what a process is built from."""
