"""Zips of what was built, for those who deploy with Terraform or the CDK; `make package` runs this."""

import argparse
import shutil
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
# Lambda reads all of these dates as long ago, and equal inputs give equal zips.
EPOCH = (1980, 1, 1, 0, 0, 0)


def zipped(folder: Path, target: Path) -> None:
    """The folder's files under their own names, in order."""
    with ZipFile(target, "w", ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = ZipInfo(file.relative_to(folder).as_posix(), EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())


def unzipped_size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def package(build: Path, architecture: str, into: Path = DIST) -> dict[str, tuple[int, int]]:
    """Each artefact's name, its size and its size unzipped, in bytes."""
    into.mkdir(exist_ok=True)
    sources = {
        f"chunkproof-layer-python3.13-{architecture}.zip": build / "SharedLayer",
        "chunkproof-search.zip": build / "SearchFunction",
        "chunkproof-validate-chunk.zip": build / "ValidateChunkFunction",
    }
    sizes = {}
    for name, folder in sources.items():
        zipped(folder, into / name)
        sizes[name] = ((into / name).stat().st_size, unzipped_size(folder))
    shutil.copy(ROOT / "docs" / "openapi.json", into / "openapi.json")
    size = (into / "openapi.json").stat().st_size
    return {**sizes, "openapi.json": (size, size)}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--build", type=Path, required=True)
    arguments.add_argument("--architecture", required=True)
    given = arguments.parse_args()
    for name, (size, unzipped) in package(given.build, given.architecture).items():
        print(f"  {size / 1e6:8.2f} MB  {unzipped / 1e6:8.2f} MB unzipped  dist/{name}")


if __name__ == "__main__":
    main()
