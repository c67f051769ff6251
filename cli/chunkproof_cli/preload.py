"""Load the local model of `chunkproof search` while the rest of the command is imported, to answer sooner."""

from collections.abc import Sequence
from contextlib import suppress

from chunkproof.errors import ChunkproofError

# Other embedders than that of the settings, or none.
OTHERS = ("--api", "--embedder", "--help")
BY_WORDS = ("--mode text", "--mode=text")


def preload_model(arguments: Sequence[str]) -> None:
    """Start to load the local model if these arguments of the command line will need it.

    What is wrong with the settings is for the command to report.
    """
    line = " ".join(arguments)
    if arguments[:1] != ["search"] or any(option in line for option in (*OTHERS, *BY_WORDS)):
        return
    from chunkproof.settings import Settings

    with suppress(ChunkproofError):
        settings = Settings.from_env()
        if settings.embedder_on_terminal == "local" and not settings.models:
            from chunkproof.clients.local_model import local_model

            local_model().prepare()
