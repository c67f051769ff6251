"""How long requests took: read from log lines or from CloudWatch, shown in a terminal, as JSON or as a page."""
