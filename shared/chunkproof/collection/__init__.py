"""The collection: what is known of it, and how its points are read."""
