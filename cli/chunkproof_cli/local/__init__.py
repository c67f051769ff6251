"""What stands in for a cloud service on a machine that has none."""
