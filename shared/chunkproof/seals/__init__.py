"""Seals of collections and receipts of searches: what was stored, signed, so that anybody can check it."""
