"""Short ways to make keys, seal collections and search with receipts."""

from pathlib import Path
from typing import Any

from chunkproof.collection.reader import Reader
from chunkproof.collection.services import Services
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
