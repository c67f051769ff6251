"""`chunkproof snapshot`."""

from pathlib import Path
from typing import Any

import click

from chunkproof.audit.snapshot_file import SnapshotWriter
from chunkproof.base.errors import ChunkproofError, InvalidParameterError
from chunkproof.collection.reader import Reader
from chunkproof.service.terminal import new_deadline
from chunkproof_cli.connections import open_services
from chunkproof_cli.options import common_options, file_option, parse_options, reject_api
from chunkproof_cli.output import print_json, print_line, print_note, progress_bar

EXAMPLES = """\b
Examples:
  chunkproof snapshot -o before.snapshot
  chunkproof snapshot --texts --vectors -o before.snapshot
  chunkproof why "how are backups made" --expect vectordb-operations-03 --snapshot before.snapshot
  chunkproof suite run suite.yaml --baseline before.json --blame --snapshot before.snapshot
"""


@click.command(epilog=EXAMPLES)
@file_option("-o", "--output", help="File to write, COLLECTION.snapshot by default.")
@click.option("--texts", is_flag=True, help="Keep the texts in full: blame can then put a former text back.")
@click.option("--vectors", is_flag=True, help="Keep the vectors in full: blame can then put a former vector back.")
@click.option("--restart", is_flag=True, help="Start again instead of continuing an interrupted snapshot.")
@common_options
@reject_api("a snapshot is taken from the collection itself; set QDRANT_URL")
def snapshot(output: Path | None, texts: bool, vectors: bool, restart: bool, **common: Any) -> None:
    """Keep what a collection holds now, to find out later what changed and what it cost.

    By default it keeps ids, the fields that filters use, and the hashes of texts and vectors: no text leaves the
    store. An interrupted snapshot goes on where it stopped when the command is run again.
    """
    given = parse_options(**common)
    with open_services(given) as services:
        collection = services.collection(given.collection).name
        file = output or Path(f"{collection.replace('/', '-')}.snapshot")
        if not file.parent.is_dir():
            raise click.BadParameter(f"{file.parent}: no such folder", param_hint="-o")
        total = services.store.describe(collection, new_deadline(services.settings)).points_count
        with progress_bar("Reading", total) as done:
            reader = Reader(services, collection)
            writer = SnapshotWriter(
                file,
                reader,
                texts=texts,
                vectors=vectors,
                restart=restart,
                on_progress=done,
                on_resume=lambda points: print_note(f"Continuing the interrupted snapshot after {points:,} points."),
            )
            try:
                count = writer.write()
            except (KeyboardInterrupt, ChunkproofError, OSError) as error:
                if writer.folder.exists() and not isinstance(error, InvalidParameterError):
                    print_note("Stopped; the same command continues it.")
                if isinstance(error, OSError) and not isinstance(error, ChunkproofError) and error.filename is None:
                    raise OSError(error.errno, error.strerror, str(file)) from None
                raise
    if reader.change_note:
        print_note(reader.change_note)
    kept = " and ".join(name for name, is_kept in (("texts", texts), ("vectors", vectors)) if is_kept)
    if given.json:
        size = file.stat().st_size
        print_json({"snapshot": str(file), "collection": collection, "points": count, "bytes": size})
    else:
        described = f"with {kept} in full" if kept else "texts and vectors as hashes"
        print_line(f"{count:,} points of {collection} are in {file} ({described}).")
