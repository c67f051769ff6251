"""Import the REST client of Qdrant's SDK without the rest of the SDK.

`import qdrant_client` builds a thousand models, gRPC stubs and the local mode, and needs numpy and grpc: 0.7 s and
75 MB (docs/guides/performance.md). Calling a server takes only `ApiClient` and its exceptions, but importing their
module imports the packages around it first. So these packages are replaced by empty ones during that import.

This runs wherever a server is used: in Lambda, where the layer has neither numpy nor grpc, and in the CLI with
QDRANT_URL. Local mode imports the whole SDK, before or after. There is no fallback: the layer pins the SDK, and
tests/integration/test_light_sdk_imports.py fails when a release no longer fits.
See docs/decisions/light-sdk-imports.md.
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
def load_rest_client() -> Any:
    """Import and return the module that defines `ApiClient` and its exceptions, with a lighter HTTP client in it.

    `sys.modules` is left as it was, so a later `import qdrant_client` gets the whole SDK. Its classes are then not
    the ones of this module: take `ApiClient` and the exceptions to catch from here.
    """
    spec = find_spec(SDK)
    if spec is None or spec.origin is None:
        raise ImportError(f"{SDK} is not installed")
    folder = Path(spec.origin).parent
    imported = _remove_sdk_modules()
    try:
        for package in (folder, folder / "http", folder / "http" / "api"):
            _replace_by_empty(folder, package)
        for file in (folder / "http" / "api").glob("*_api.py"):
            _replace_by_empty(folder, file.with_suffix(""))
        module = import_module(CLIENT)
        module.Client = DirectClient  # type: ignore[attr-defined]
        return module
    finally:
        _remove_sdk_modules()
        sys.modules.update(imported)


def _remove_sdk_modules() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == SDK]
    return {name: sys.modules.pop(name) for name in names}


def _replace_by_empty(folder: Path, package: Path) -> None:
    name = ".".join((SDK, *package.relative_to(folder).parts))
    sys.modules[name] = _EmptyPackage(name, package)


class _EmptyPackage(ModuleType):
    """A package that runs no code of its own, while modules in its folder can be imported.

    `api_client` imports about twenty classes from these packages, only to list them as attributes of clients that
    are not used here. An empty class satisfies each of those imports.
    """

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name)
        self.__path__ = [str(folder)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})
