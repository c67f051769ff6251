"""Search: the plan of a query, its ranking, and one module for each option that a request can ask for."""
