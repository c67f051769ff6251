"""`chunkproof secret`."""

import re
import sys

import click

from chunkproof.base.errors import InvalidParameterError
from chunkproof.collection.payload_map import parse_json
from chunkproof_cli.aws.stack import store_secret
from chunkproof_cli.options import option, reject_api
from chunkproof_cli.output import print_line

KEYS = ("QDRANT_API_KEY", "COHERE_API_KEY", "OPENAI_API_KEY")
OTHER_KEY = re.compile(r"[A-Z][A-Z0-9_]*_API_KEY")

EXAMPLES = """\b
Examples:
  chunkproof secret
  chunkproof secret --name chunkproof-prod < keys.json
"""


@click.command(epilog=EXAMPLES)
@option("--name TEXT", "Name of the secret.", "chunkproof-keys")
@option("--kms-key ARN", "Customer-managed key to encrypt it with.")
@reject_api("keys are stored in Secrets Manager, not in a stack")
def secret(name: str, kms_key: str | None) -> None:
    """Store the keys of Qdrant and embedding services in Secrets Manager, where a deployed stack reads them.

    The command prompts for the keys, or reads {"QDRANT_API_KEY": …, "COHERE_API_KEY": …, "OPENAI_API_KEY": …} from
    standard input, which may also have a key that CHUNKPROOF_MODELS names. Press Enter at a key that is not needed.
    Keys are never taken from the command line, where other users and the shell's history could see them.
    """
    if sys.stdin.isatty():
        keys = {key: click.prompt(key, hide_input=True, default="", show_default=False, err=True) for key in KEYS}
    else:
        keys = _parse_keys(sys.stdin.read())
    print_line(store_secret(name, keys, kms_key))


def _parse_keys(text: str) -> dict[str, str]:
    keys = parse_json(text.removeprefix("\ufeff"))  # a BOM, which some editors write
    if not isinstance(keys, dict) or not keys or not all(isinstance(value, str) for value in keys.values()):
        raise InvalidParameterError(f"Standard input must be a JSON object of strings with the keys {', '.join(KEYS)}")
    if unknown := sorted(name for name in keys if not OTHER_KEY.fullmatch(name)):
        raise InvalidParameterError(
            f"{unknown[0]} is neither one of {', '.join(KEYS)} nor a key that CHUNKPROOF_MODELS can name, "
            "which ends in _API_KEY"
        )
    return keys
