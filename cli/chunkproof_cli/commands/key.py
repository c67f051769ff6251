"""`chunkproof key`."""

from pathlib import Path
from typing import Any

import click

from chunkproof.seals.notes import KmsSigner, make_key
from chunkproof_cli.options import json_option, reject_api
from chunkproof_cli.output import print_json, print_line, print_note

EXAMPLES = """\b
Examples:
  chunkproof key example.com/docs                         # writes seal.key and seal.key.pub
  chunkproof key example.com/docs -o keys/2027.key
  chunkproof key example.com/docs --kms alias/chunkproof-seal
"""


@click.command(epilog=EXAMPLES)
@click.argument("name", metavar="NAME")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("seal.key"),
    show_default=True,
    help="File to write; it must not exist. The public key is written beside it, with .pub.",
)
@click.option(
    "--kms", metavar="KEY-ID", help="Print the public key of this key of AWS KMS instead: nothing is written."
)
@json_option
@reject_api("a key is made on this machine")
def key(name: str, output: Path, kms: str | None, as_json: bool, **_: Any) -> None:
    """Make a key NAME that signs seals, receipts and reports.

    The private key is an Ed25519 key in a file that only you can read. Give the public key to everyone who verifies.
    """
    try:
        public = KmsSigner(kms, name).public if kms else make_key(name, output)
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
