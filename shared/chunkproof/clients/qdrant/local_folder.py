"""The folder of a local store: which ones are opened, and what is read from them.

The SDK's local mode keeps points as pickles, and unpickling runs what a pickle says. So a folder that another user
made or can change is refused, and of a pickle only the SDK's own models are read.
"""

import io
import json
import os
import pickle
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from qdrant_client.local import persistence
from qdrant_client.local.qdrant_local import META_INFO_FILENAME

from chunkproof.clients.qdrant.store import is_invalid_collection_name
from chunkproof.errors import InvalidParameterError
from chunkproof.files import LOCK_FILE, write_file

MODELS = "qdrant_client.http.models.models"
# The classes that a stored point is made of; everything else in it is a JSON value.
ALLOWED = frozenset({"PointStruct", "SparseVector"})
COLLECTIONS = "collection"
OWN_FILES = frozenset({META_INFO_FILENAME, f"{META_INFO_FILENAME}.tmp", ".lock", LOCK_FILE, COLLECTIONS})


class _PointUnpickler(pickle.Unpickler):
    """Reads a stored point, and refuses every class that a point is not made of."""

    def find_class(self, module: str, name: str) -> Any:
        if module == MODELS and name in ALLOWED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which no point is made of; it may be an attack")


class _PointPickle:
    """What the SDK uses of `pickle`, with the restricted way to read."""

    dumps = staticmethod(pickle.dumps)

    @staticmethod
    def loads(data: bytes) -> Any:
        return _PointUnpickler(io.BytesIO(data)).load()


def restrict_unpickling() -> None:
    """Let the SDK's local mode read nothing but points from its files."""
    persistence.pickle = _PointPickle  # type: ignore[attr-defined, assignment]


def check_folder(folder: Path) -> None:
    """Raise `InvalidParameterError` for a folder that another user made or can change; let no other user read it."""
    if not folder.is_dir():
        return
    is_store_only = OWN_FILES.issuperset(path.name for path in folder.iterdir())
    if not any(folder.iterdir()) and folder.stat().st_uid == os.geteuid():
        _make_private(folder)
    for path in (folder, *_own_paths(folder)):
        _check_path(folder, path)
        if path != folder or is_store_only:
            _make_private(path)
    _check_names(folder)


def create_metadata(folder: Path) -> None:
    """Write the file of a new store; the SDK's own way leaves it empty when it is interrupted."""
    path = folder / META_INFO_FILENAME
    if not path.exists():
        write_file(path, json.dumps({"collections": {}, "aliases": {}}))


def _own_paths(folder: Path) -> Iterator[Path]:
    for name in sorted(OWN_FILES):
        path = folder / name
        if path.is_symlink() or path.exists():
            yield path
    for parent, folders, files in os.walk(folder / COLLECTIONS):
        yield from (Path(parent, name) for name in (*folders, *files))


def _make_private(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        with suppress(OSError):  # a file system that is read-only or has no permissions
            path.chmod(mode & 0o700)


def _check_path(folder: Path, path: Path) -> None:
    found = path.lstat() if path != folder else path.stat()
    if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
        problem = f"{path} is neither a file nor a folder"
    elif found.st_uid != os.geteuid():
        problem = f"{path} belongs to another user; if you trust its content, make it yours with chown"
    elif found.st_mode & 0o022:
        problem = f"other users can write to {path}; if you trust its content, run: chmod -R go-w {folder}"
    else:
        return
    raise InvalidParameterError(
        f"data folder {folder} is not opened, because opening a store of unknown origin can run code: {problem}"
    )


def _check_names(folder: Path) -> None:
    """Refuse collections whose names would lead out of the folder."""
    try:
        names = list(json.loads((folder / META_INFO_FILENAME).read_bytes())["collections"])
    except (OSError, ValueError, LookupError, TypeError):
        return  # new, or reported when the SDK reads it
    if wrong := [name for name in names if is_invalid_collection_name(str(name))]:
        raise InvalidParameterError(f"data folder {folder} is not opened: no collection can be named {wrong[0]!r}")
