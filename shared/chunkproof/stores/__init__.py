"""Vector stores: a Qdrant server, the embedded engine, published collections."""
