"""Send odd requests: any body to the handlers, and bodies made from the OpenAPI document to `serve` (`make test-fuzz`).

Stops at the first request that gets a 500 or a response that the document does not describe, and prints it.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from chunkproof.embedders.local_model import local_model
from chunkproof.stores.edge import EdgeStore
from chunkproof_cli.loading import ChunkRecord, Loader
from chunkproof_cli.local.corpus import sample_chunks

from support.fuzzing import operations, send_anything, send_by_schema
from support.handbook import COLLECTION
from support.memory_handlers import in_memory_handlers
from support.quiet import silence_handlers
from support.serving import serving


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=2_000, help="Requests of each kind.")
    examples = parser.parse_args().examples
    with silence_handlers() as say:
        with in_memory_handlers():
            report(say, "any body", send_anything(examples))
        with tempfile.TemporaryDirectory() as folder:
            load_handbook(Path(folder, "loaded"))
            with serving(Path(folder, "loaded"), Path(folder)) as server:
                for route, operation in operations().items():
                    report(say, route, send_by_schema(operation, server.url, examples))
        say("no 500, and every answer as the document promises")
    return 0


def load_handbook(folder: Path) -> None:
    store = EdgeStore(folder)
    records = [ChunkRecord.parse(chunk) for chunk in sample_chunks()]
    Loader(store, local_model(), COLLECTION, None).load(records)
    store.close()


def report(say: Callable[[str], None], what: str, answered: Counter[str]) -> None:
    say(f"{what}: {sum(answered.values())} requests")
    for answer, count in answered.most_common():
        say(f"  {count:6}  {answer}")


if __name__ == "__main__":
    sys.exit(main())
