"""Proof: whether a stored chunk is what was written."""
