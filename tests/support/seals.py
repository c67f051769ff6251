"""Short ways to make keys, seal collections and search with receipts."""

from pathlib import Path
from typing import Any

from chunkproof.collection.reader import Reader
from chunkproof.collection.services import Services
from chunkproof.seals.entries import read_row, write_row
from chunkproof.seals.merkle import SealFiles
from chunkproof.seals.notes import Signer, make_key, open_signer
from chunkproof.seals.sealing import Seal, SealReport, files_of, seal_collection


def new_signer(folder: Path, name: str = "example.com/seal") -> Signer:
    """A key in a file of this folder."""
    path = folder / f"{len(list(folder.glob('*.key')))}.key"
    make_key(name, path)
    return open_signer(str(path))


def seal(
    services: Services, place: Path | SealFiles, *signers: Signer, collection: str | None = None, **options: Any
) -> SealReport:
    """Seal a collection, by default the services' own, into a folder or a bucket."""
    files = SealFiles(str(place)) if isinstance(place, Path) else place
    name = services.collection(collection).name
    work = options.pop("work", None) or (place.parent if isinstance(place, Path) else Path("/tmp")) / "sealing-work"
    return seal_collection(Reader(services, name), files, signers, work, **options)


def find_seal(place: Path | SealFiles, collection: str) -> Seal:
    """The latest seal of a collection."""
    files = SealFiles(str(place)) if isinstance(place, Path) else place
    found = Seal.find(files_of(files, collection))
    assert found is not None
    return found


def unpack(document: Any) -> Any:
    """Write out each result of the receipt in a response, so that a test can change any part of it."""
    receipt = document["receipt"]
    receipt["results"] = [read_row(row, receipt.get("tenant")) for row in receipt["results"]]
    return document


def pack(document: Any) -> Any:
    """Write the results of a receipt short again; those that are lists stay as they are."""
    receipt = document["receipt"]
    for at, row in enumerate(receipt["results"]):
        if isinstance(row, dict):
            receipt["results"][at] = write_row(row["leaf"], 0.0, row["entry"], receipt.get("tenant"))
            receipt["results"][at][1] = row["score"]
    return document
