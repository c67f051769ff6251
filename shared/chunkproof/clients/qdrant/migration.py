"""Move the collections of a local-mode folder, which has pickles, into an Edge store in the same folder.

The old files are read once more after copying: every payload and every vector must be the same. Only then are they
moved aside, into a folder that nothing reads. Whatever interrupts it before, the next opening starts it again.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path

from chunkproof.clients.qdrant.edge import EdgeStore
from chunkproof.clients.qdrant.edge_folder import sync_folder
from chunkproof.clients.qdrant.filters import Json
from chunkproof.clients.qdrant.transfer import CALL_MS, Advance, Layout, compare_collections, copy_points
from chunkproof.deadline import Deadline
from chunkproof.errors import VectorStoreUnavailableError

METADATA = "meta.json"
COLLECTIONS = "collection"
ASIDE = "local-mode"
# Takes what is done and the number of steps, and returns a function to call after each.
Progress = Callable[[str, int], AbstractContextManager[Advance]]
# Takes some payloads, and returns the fields whose words are to be indexed.
FindTextFields = Callable[[Sequence[Json]], Sequence[str]]
SAMPLE = 100
IDS = {"type": "keyword"}
WORDS = {"type": "text", "tokenizer": "word"}


def show_nothing(_label: str, _steps: int) -> AbstractContextManager[Advance]:
    """Report no progress."""
    return nullcontext(lambda _done: None)


def needs_migration(folder: Path) -> bool:
    """Whether the folder has collections of local mode."""
    try:
        return bool(json.loads((folder / METADATA).read_bytes())["collections"])
    except FileNotFoundError:
        return False
    except (OSError, ValueError, LookupError, TypeError):
        return True  # opening it reports what is wrong


def migrate_folder(folder: Path, progress: Progress, find_text_fields: FindTextFields) -> None:
    """Copy every collection into an Edge store, compare all points, and move the old files aside."""
    from chunkproof.clients.qdrant.local import LocalStore

    deadline = Deadline(CALL_MS)
    with closing(LocalStore(folder)) as old, closing(EdgeStore(folder)) as new:
        for name in old.collections(deadline):
            if name in new.collections(deadline):  # of a migration that was interrupted
                new.drop(name)
            count = old.count(name, (), deadline)
            payloads = [point["payload"] for point in old.read_points(name, None, SAMPLE, deadline)[0]]
            words = dict.fromkeys(find_text_fields(payloads) or ["text"], WORDS)
            layout: Layout = replace(old.layout(name, deadline), indexes={"chunk_id": IDS, **words})
            new.create_like(name, layout, deadline)
            with progress(f"Moving collection {name} to Qdrant Edge", 2 * count) as advance:
                copy_points(old, new, (name, name), advance)
                found = compare_collections(old, new, (name, name), advance)
            if not found.is_equal:
                new.drop(name)
                raise VectorStoreUnavailableError(
                    str(folder),
                    f"collection {name} could not be moved to Qdrant Edge: {found.differing} of {found.points} points "
                    f"differ, the first is {found.listed[0]}; nothing was changed",
                )
            new.optimize(name)
        _move_aside(folder)


def _move_aside(folder: Path) -> None:
    aside = folder / ASIDE
    aside.mkdir(mode=0o700, exist_ok=True)
    # The metadata goes first: without it, the folder has no collections of local mode.
    for name in (METADATA, COLLECTIONS):
        if (folder / name).exists():
            (folder / name).replace(_free_name(aside / name))
    sync_folder(folder)


def _free_name(path: Path) -> Path:
    number, free = 1, path
    while free.exists():
        number, free = number + 1, path.with_name(f"{path.name}.{number}")
    return free
