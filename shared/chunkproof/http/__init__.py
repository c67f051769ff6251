"""HTTP: API Gateway events in, JSON responses out."""
