"""`chunkproof`, also as `python -m chunkproof_cli`: Ctrl-C ends it without a traceback, whatever it is doing."""

import os
import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the command is imported


def run() -> None:
    """Run the command. After Ctrl-C, end at once: threads of native code may abort a process that Python ends."""
    from chunkproof_cli.exits import INTERRUPTED
    from chunkproof_cli.main import main

    try:
        main()
    except BaseException as end:
        if is_wrapped := "KeyboardInterrupt" in str(end):  # by pydantic, while it builds a model
            print("Interrupted", file=sys.stderr, flush=True)
        if is_wrapped or getattr(end, "code", None) == INTERRUPTED:
            os._exit(INTERRUPTED)
        raise


if __name__ == "__main__":
    run()
