"""HTTP with deadlines, retries and circuit breakers; secrets; S3."""
