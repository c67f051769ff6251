"""Compare two collections: texts, metadata, vectors, and what they return for the queries of a suite."""
