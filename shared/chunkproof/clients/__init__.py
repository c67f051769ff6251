"""Clients of other services, each behind a port of `ports.py`."""
