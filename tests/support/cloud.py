"""Services for a Lambda container: those of `chunkproof sandbox`, on free ports."""

from chunkproof_cli.local.sandbox import Sandbox as Host
from chunkproof_cli.local.sandbox import run_sandbox as handbook_host

__all__ = ["Host", "handbook_host"]
