"""The REST client of Qdrant's SDK, without the start-up of the rest of it.

`import qdrant_client` builds a thousand models, gRPC stubs and a store for local mode, and needs numpy and grpc
for that: 0.7 s and 75 MB (docs/guides/performance.md). A function that asks a server needs one class of it,
`qdrant_client.http.ApiClient`, whose own module imports the rest only to hand it on. So that module is imported
here while empty stand-ins are in the place of what it hands on, and given a lighter HTTP client. Should a release
of the SDK not fit, its front door is used.
"""

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from chunkproof.clients.transport import DirectClient

SDK = "qdrant_client"
CLIENT = "qdrant_client.http.api_client"


@cache
def rest_client() -> Any:
    """The module that has `ApiClient` and its exceptions; they belong together, whichever door they came by."""
    try:
        return _alone()
    except (ImportError, AttributeError):
        return import_module(CLIENT)


def _alone() -> ModuleType:
    found = find_spec(SDK)
    if found is None or found.origin is None:
        raise ImportError(f"{SDK} is not installed")
    folder = Path(found.origin).parent
    imported = _taken_out()
    try:
        for package in (folder, folder / "http", folder / "http" / "api"):
            _stand_in(folder, package)
        for file in (folder / "http" / "api").glob("*_api.py"):
            _stand_in(folder, file.with_suffix(""))
        alone = import_module(CLIENT)
        alone.Client = DirectClient  # type: ignore[attr-defined]
        return alone
    finally:  # whoever imports the SDK gets it whole
        _taken_out()
        sys.modules.update(imported)


def _taken_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == SDK]
    return {name: sys.modules.pop(name) for name in names}


def _stand_in(folder: Path, package: Path) -> None:
    name = ".".join((SDK, *package.relative_to(folder).parts))
    sys.modules[name] = _StandIn(name, package)


class _StandIn(ModuleType):
    """A package whose modules can be imported, and which has any class that is asked for, empty."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name)
        self.__path__ = [str(folder)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})
