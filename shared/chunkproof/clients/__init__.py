"""Clients of other services. The use cases know only the protocols in `ports`."""
