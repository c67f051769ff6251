"""Latency of requests, read from log lines or from CloudWatch."""
