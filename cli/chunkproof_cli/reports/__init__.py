"""Reports for people and CI, a package per kind."""
