"""AWS services that commands use: stacks, executions, metrics, secrets."""
