"""`python -m chunkproof_cli`."""

from chunkproof_cli.main import main

main()
