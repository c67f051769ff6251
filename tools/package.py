"""What was built as files to deploy with Terraform or the CDK; `make package` runs this.

Each folder of functions/ is covered by what it has: `app.py`, a state machine (`*.asl.json`), a `template.yaml`.
"""

import argparse
import re
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
FUNCTIONS = ROOT / "functions"
OPENAPI = ROOT / "docs" / "openapi.json"
# Lambda reads all of these dates as long ago, and equal inputs give equal zips.
EPOCH = (1980, 1, 1, 0, 0, 0)


def zip_folder(folder: Path, target: Path, pattern: str = "*") -> tuple[int, int]:
    """The folder's files under their own names, in order; the size of the zip and of what is in it."""
    files = sorted(path for path in folder.rglob(pattern) if path.is_file())
    with ZipFile(target, "w", ZIP_DEFLATED, compresslevel=9) as archive:
        for file in files:
            entry = ZipInfo(file.relative_to(folder).as_posix(), EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
    return target.stat().st_size, sum(file.stat().st_size for file in files)


def package(
    build: Path, architecture: str, into: Path = DIST, functions: Path = FUNCTIONS
) -> dict[str, tuple[int, int]]:
    """Each artefact's name, its size and its size unzipped, in bytes."""
    into.mkdir(exist_ok=True)
    layer = f"chunkproof-layer-python3.13-{architecture}.zip"
    sizes = {layer: zip_folder(build / "SharedLayer", into / layer)}
    for folder in sorted(path for path in functions.iterdir() if path.is_dir()):
        sizes |= _application(folder, into)
    return sizes | {"openapi.json": _write(into / "openapi.json", OPENAPI.read_text("utf-8"))}


def _application(folder: Path, into: Path) -> dict[str, tuple[int, int]]:
    """What a folder of functions/ has of these: code, the definition of a state machine, a template."""
    name = f"chunkproof-{folder.name.replace('_', '-')}"
    code, definition, template = f"{name}.zip", f"{name}.asl.json", f"{name}.template.yaml"
    sizes = {}
    if (folder / "app.py").is_file():  # the packages that it needs are in the layer
        sizes[code] = zip_folder(folder, into / code, "*.py")
    for machine in folder.glob("*.asl.json"):
        sizes[definition] = _write(into / definition, machine.read_text("utf-8"))
    if (folder / "template.yaml").is_file():
        text = (folder / "template.yaml").read_text("utf-8")
        for property_, file in (("CodeUri", code), ("DefinitionUri", definition)):
            text = re.sub(rf"^( +{property_}:) .+$", rf"\1 {file}", text, flags=re.MULTILINE)
        sizes[template] = _write(into / template, text)
    return sizes


def _write(target: Path, text: str) -> tuple[int, int]:
    target.write_text(text, "utf-8", newline="\n")
    size = target.stat().st_size
    return size, size


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--build", type=Path, required=True)
    arguments.add_argument("--architecture", required=True)
    given = arguments.parse_args()
    for name, (size, unzipped) in package(given.build, given.architecture).items():
        print(f"  {size / 1e3:8,.0f} kB  {unzipped / 1e3:8,.0f} kB unzipped  dist/{name}")


if __name__ == "__main__":
    main()
