"""Readers of the options of `chunkproof audit`, and the folder of `--state`: its name, its lock, what is removed."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import click

from chunkproof.audit.audit_run import FINDINGS_FILE
from chunkproof.audit.findings import FAULTS
from chunkproof.audit.ledger import LEDGER_FILE, LEDGER_FILES, load_progress
from chunkproof.audit.manifest_file import manifest_name
from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.files import LOCK_FILE, LockedError, lock_folder
from chunkproof.collection.services import Services
from chunkproof_cli.output import print_note

# From this similarity on, two stored texts are near duplicates.
NEAR_DUPLICATE = 0.8
# In the order in which they are removed: without a ledger there is nothing to resume, and by its lock the folder is
# recognized until the end.
OWN_FILES = (*LEDGER_FILES, FINDINGS_FILE, LOCK_FILE)


def read_kinds(value: str) -> tuple[str, ...]:
    """Read kinds of findings, comma-separated."""
    kinds = tuple(part.strip() for part in value.split(",") if part.strip())
    allowed = [kind.value for kind in FAULTS]
    unknown = [kind for kind in kinds if kind not in allowed]
    if unknown or not kinds:
        raise click.BadParameter(f"{', '.join(unknown) or 'nothing'}: choose among {', '.join(allowed)}")
    return kinds


def read_count(value: str) -> int:
    """Read a number of chunks from 1 on; 0 for `all`."""
    if not value.isdecimal() or not int(value):
        if value != "all":
            raise click.BadParameter(f"{value} is not a number of chunks")
        return 0
    return int(value)


def read_similarity(value: str) -> float:
    """Read a share of texts in common, above 0 and at most 1."""
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", value) or not 0 < float(value) <= 1:
        raise click.BadParameter(f"{value} is not a similarity above 0 and up to 1, such as 0.8")
    return float(value)


class OptionalValues(click.Command):
    """A command where some options take the next word as their value only if it looks like one.

    Otherwise click would take the manifest in `chunkproof audit --vectors manifest.jsonl` as the value.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Write out the default, as in `--vectors=all`, where the option has no value, then parse."""
        return super().parse_args(ctx, list(map(_write_out_default, args, [*args[1:], ""])))


def _write_out_default(word: str, next_word: str) -> str:
    if word == "--vectors" and not (next_word.isdecimal() or next_word == "all"):
        return "--vectors=all"
    if word == "--near-duplicates" and not re.fullmatch(r"[0-9]*\.?[0-9]+", next_word):
        return f"--near-duplicates={NEAR_DUPLICATE}"
    return word


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
    names: set[str] = set()
    with suppress(FileNotFoundError, NotADirectoryError):
        names = {file.name for file in folder.iterdir()}
    if others := sorted(names if names.isdisjoint((LEDGER_FILE, LOCK_FILE)) else names - set(OWN_FILES)):
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
    left = load_progress(folder)
    if left is None:
        if resume:
            print_note("There is no interrupted audit to resume; starting a new one.")
        return False
    if not resume:
        raise InvalidParameterError(
            f"{folder} holds an interrupted audit ({left.compared:,} of {left.spec.manifest.chunks:,} chunks): "
            "continue it with --resume, or start again with --restart"
        )
    return True
