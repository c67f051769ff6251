"""`chunkproof seal` and `chunkproof key`."""

from pathlib import Path
from typing import Any

import click

from chunkproof.base.errors import NotConfiguredError
from chunkproof.collection.reader import Reader
from chunkproof.collection.services import Services
from chunkproof.seals.merkle import open_files
from chunkproof.seals.notes import make_key, open_kms_key, open_signer
from chunkproof.seals.sealing import SealReport, seal_collection
from chunkproof.service.terminal import default_data_folder, new_deadline
from chunkproof_cli.connections import open_services
from chunkproof_cli.options import common_options, json_option, option, parse_options, reject_api
from chunkproof_cli.output import print_json, print_line, print_note, print_result, progress_bar

EXAMPLES = """\b
Examples:
  chunkproof key example.com/docs
  chunkproof seal docs --key seal.key --to seals
  chunkproof seal docs --key kms:alias/chunkproof-seal --to s3://my-bucket/seals
  chunkproof seal docs --key 2026.key --key 2027.key --to seals     # while keys are changed
"""

key_option = option(
    "--key keys FILE|kms:ID*",
    "Key that signs, of `chunkproof key` or of AWS KMS; may be repeated. CHUNKPROOF_SEAL_KEY by default.",
    envvar="CHUNKPROOF_SEAL_KEY",
    show_envvar=False,
)


@click.command(epilog=EXAMPLES)
@click.argument("name", metavar="[COLLECTION]", required=False)
@key_option
@option("--to target FOLDER|s3://…", "Where the seals of all collections are; CHUNKPROOF_SEALS by default.")
@common_options
@reject_api("a seal is made from the collection itself; set QDRANT_URL")
def seal(name: str | None, keys: tuple[str, ...], target: str | None, **common: Any) -> None:
    """Commit to what COLLECTION holds now: a signed root over all of its texts, vectors and payloads.

    The next seal adds what is new and proves that nothing else changed, or says what was removed or rewritten. An
    interrupted seal leaves the last one in force; run again, it reads the collection from its start.
    """
    if name is not None:
        common["collection"] = name
    given = parse_options(**common)
    with open_services(given) as services:
        report = seal_with_progress(services, given.collection, keys, target)
    print_result(report, print_seal, as_json=given.json)


def seal_with_progress(
    services: Services, collection: str | None, keys: tuple[str, ...], target: str | None
) -> SealReport:
    """Seal a collection into the folder or bucket of seals, with a progress bar."""
    place = target or services.settings.seals
    if not place:
        raise NotConfiguredError("Nowhere to write the seal: give --to, or set CHUNKPROOF_SEALS")
    signers = [open_signer(key) for key in keys] or [open_signer(None)]
    name = services.collection(collection).name
    total = services.store.describe(name, new_deadline(services.settings)).points_count
    work = default_data_folder() / "sealing"
    with progress_bar("Sealing", total) as done:
        return seal_collection(Reader(services, name), open_files(place), signers, work, done)


def print_seal(report: SealReport) -> None:
    """Print what was sealed, and what changed since the last seal."""
    print_line(f"{report.size:,} chunks of {report.collection} are sealed in {report.address}.", "green")
    print_line(f"{report.origin}, root {report.root}")
    if report.is_append_only:
        print_line(f"{report.added:,} added; nothing that was sealed before has changed.")
    for verb, count, points in (
        ("removed", report.removed, report.removed_points),
        ("rewritten", report.rewritten, report.rewritten_points),
    ):
        if count:
            shown = ", ".join(points[:10]) + (", …" if count > 10 else "")
            print_line(f"{count:,} {verb} since the last seal: {shown}", "yellow")
    if report.removed or report.rewritten:
        print_line(f"History {report.history} begins with this seal.", "yellow")
    if report.note:
        print_note(report.note)


KEY_EXAMPLES = """\b
Examples:
  chunkproof key example.com/docs                         # writes seal.key and seal.key.pub
  chunkproof key example.com/docs -o keys/2027.key
  chunkproof key example.com/docs --kms alias/chunkproof-seal
"""


@click.command(epilog=KEY_EXAMPLES)
@click.argument("name", metavar="NAME")
@option(
    "-o --output",
    "File to write; it must not exist. The public key is written beside it, with .pub.",
    Path("seal.key"),
    type=click.Path(path_type=Path, dir_okay=False),
)
@option("--kms KEY-ID", "Print the public key of this key of AWS KMS instead: nothing is written.")
@json_option
@reject_api("a key is made on this machine")
def key(name: str, output: Path, kms: str | None, as_json: bool, **_: Any) -> None:
    """Make a key NAME that signs seals, receipts and reports.

    The private key is an Ed25519 key in a file that only you can read. Give the public key to everyone who verifies.
    """
    try:
        public = open_kms_key(kms, name).public if kms else make_key(name, output)
    except FileExistsError:
        raise click.BadParameter(f"{output} exists: choose another file", param_hint="--output") from None
    except OSError as error:
        raise click.BadParameter(f"{output}: {error.strerror}", param_hint="--output") from None
    if as_json:
        print_json({"public_key": str(public), "file": None if kms else str(output)})
        return
    print_line(str(public))
    if kms:
        print_note(f"Sign with --key kms:{kms}={name}")
    else:
        print_note(f"The private key is in {output}: keep it secret. The public key is in {output}.pub.")
