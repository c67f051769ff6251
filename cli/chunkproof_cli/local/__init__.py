"""Local stand-ins for cloud services: gateway, handlers, embedding model, sample data."""
