"""The folder that holds the state of an audit while it runs: its name, its lock, and what is removed at the end."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from chunkproof.audit.manifest_files import manifest_name
from chunkproof.audit.prepare import MOVED_FILE, SORTED_FILE
from chunkproof.audit.run import FINDINGS_FILE
from chunkproof.audit.state import LOG_NAMES, STATE_FILE, load_state
from chunkproof.errors import InvalidParameterError
from chunkproof.files import LOCK_FILE, LockedError, lock_folder
from chunkproof.retrieval.services import Services
from chunkproof_cli.output import print_note

# In the order in which they are removed: without a state there is nothing to resume, and by its lock the folder is
# recognized until the end.
OWN_FILES = (
    STATE_FILE,
    f"{STATE_FILE}.new",
    SORTED_FILE,
    MOVED_FILE,
    *(f"{name}.log" for name in LOG_NAMES),
    "sample.sorted",
    "vectors.sorted",
    FINDINGS_FILE,
    LOCK_FILE,
)


def default_folder(manifest: Path, services: Services, collection: str) -> Path:
    """Name the folder after the manifest, the collection and where that is, so that no two audits share it."""
    is_embedded = services.settings.qdrant_url is None
    host = os.path.realpath(services.store.host) if is_embedded else services.store.host
    place = sha256(f"{host}\n{collection}".encode()).hexdigest()[:8]
    name = manifest_name(manifest)
    beside = manifest if name == manifest.name else Path(name.replace(" ", "-"))
    shown = re.sub(r"[^\w.-]+", "-", collection)[:40]
    return beside.with_name(f"{beside.name}.{shown}-{place}.audit")


@contextmanager
def lock_state(folder: Path, outputs: tuple[Path, ...]) -> Iterator[None]:
    """Keep the folder for this audit alone; a crash releases it."""
    _check_folder(folder, outputs)
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_folder(folder))
        except LockedError:
            raise InvalidParameterError(
                f"{folder} is in use by another audit: wait for it, or name another folder with --state"
            ) from None
        except OSError as error:
            raise InvalidParameterError(f"--state {folder}: {error.strerror}") from None
        yield


def _check_folder(folder: Path, outputs: tuple[Path, ...]) -> None:
    """Refuse a folder with other files, and reports in it: it is emptied when the audit is done."""
    found: set[str] = set()
    with suppress(FileNotFoundError, NotADirectoryError):
        found = {file.name for file in folder.iterdir()}
    if others := sorted(found if found.isdisjoint((STATE_FILE, SORTED_FILE, LOCK_FILE)) else found - set(OWN_FILES)):
        raise InvalidParameterError(
            f"{folder} holds other files ({others[0]}): name a folder for this audit alone with --state"
        )
    if inside := [file for file in outputs if file.resolve().parent == folder.resolve()]:
        raise InvalidParameterError(f"{inside[0]}: {folder} is for the state of the audit; write the report elsewhere")


def clear_folder(folder: Path) -> None:
    """Remove the files of an audit, and the folder if it is empty then and no link.

    What cannot be removed is left: it must not cost a finished audit its report.
    """
    with suppress(OSError):
        _remove_files(folder, OWN_FILES)
        if not folder.is_symlink():
            folder.rmdir()


def _remove_files(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)


def check_resume(folder: Path, resume: bool, restart: bool) -> bool:
    """Return whether to resume; refuse to overwrite an interrupted audit without --restart."""
    if restart:
        _remove_files(folder, OWN_FILES[:-1])
        return False
    left = load_state(folder)
    if left is None:
        if resume:
            print_note("There is no interrupted audit to resume; starting a new one.")
        return False
    if not resume:
        raise InvalidParameterError(
            f"{folder} holds an interrupted audit ({left.compared:,} of {left.spec.chunks:,} chunks): "
            "continue it with --resume, or start again with --restart"
        )
    return True
