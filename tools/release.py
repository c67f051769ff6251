"""The digest of a release: code, layer, template, parameters, processor. `make build` puts it into the built template.

The alias moves when a version is published, and SAM publishes one when this digest changes; without it, a
change of the layer or of a parameter alone would leave the alias on the old version.
"""

import argparse
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INPUTS = ("shared", "functions", "template.yaml", "samconfig.toml")


def digest(root: Path, parameters: str = "", architecture: str = "arm64") -> str:
    """The same for the same release, another for any other."""
    found = sha256(f"{architecture}\0{parameters}".encode())
    for file in _files(root):
        found.update(b"\0" + file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return found.hexdigest()


def stamp(template: Path, architecture: str, release: str) -> None:
    """Write digest and architecture into a built template, in place of the parameters.

    As parameters they would not do: an update of a stack keeps the previous value of each one not given.
    """
    text = template.read_text("utf-8")
    for parameter, value in (("ReleaseDigest", release), ("Architecture", architecture)):
        text, block = re.subn(rf":\n +Ref: {parameter}\n", f": {value}\n", text)
        text, item = re.subn(rf"- Ref: {parameter}\n", f"- {value}\n", text)
        if not block + item or f"Ref: {parameter}" in text:
            raise SystemExit(f"{template}: {parameter} is not used as expected")
    template.write_text(text, "utf-8")


def _files(root: Path) -> Iterator[Path]:
    for name in INPUTS:
        found = root / name
        yield from sorted(f for f in (found.rglob("*") if found.is_dir() else [found]) if _is_released(f))


def _is_released(file: Path) -> bool:
    return file.is_file() and "__pycache__" not in file.parts


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--stamp", type=Path, help="the built template")
    arguments.add_argument("--architecture", default="arm64")
    arguments.add_argument("--parameters", default="", help="parameters given on the command line")
    given = arguments.parse_args()
    release = digest(ROOT, given.parameters, given.architecture)
    if given.stamp:
        stamp(given.stamp, given.architecture, release)
    print(release[:16])


if __name__ == "__main__":
    main()
