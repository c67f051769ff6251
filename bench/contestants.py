"""Who is measured: each has a folder as Lambda would unpack it, a handler, a collection in its own payload shape."""

from dataclasses import dataclass
from pathlib import Path

CHUNKPROOF = "chunkproof"
PEERS = ("langchain", "llamaindex", "haystack")
BY_SAM = ("plain", *PEERS)
TITLES = {
    CHUNKPROOF: "Chunkproof",
    "plain": "(a) plain handler on the SDKs",
    "langchain": "(b) LangChain",
    "llamaindex": "(c) LlamaIndex",
    "haystack": "(d) Haystack",
    "floor": "(e) standard library alone",
    "bare_sdk": "bare SDK calls",
}
# Lambda's names for what a function finds on its path, in that order.
TASK, LAYER = "task", "layer"


@dataclass(frozen=True)
class Contestant:
    """One that answers searches: where it is unpacked and how it is called."""

    name: str
    folder: Path
    handler: str
    collection: str
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> str:
        return TITLES[self.name]

    @property
    def task(self) -> Path:
        return self.folder / TASK

    @property
    def path(self) -> list[Path]:
        """Its part of `sys.path`: the function's folder, then the layer's."""
        return [self.task, *(folder for folder in [self.folder / LAYER / "python"] if folder.is_dir())]
