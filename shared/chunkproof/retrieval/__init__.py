"""Search, validation and collection info: the use cases, and what they share."""
