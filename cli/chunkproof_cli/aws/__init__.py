"""What commands ask of AWS: stacks, executions, metrics."""
