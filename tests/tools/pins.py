"""Pinned dependencies, with hashes and without addresses; `make lock` runs this.

Each file names the digest of what it was made from, so that a test tells when it is stale.
"""

import re
import subprocess
import sys
import tomllib
from hashlib import sha256
from json import dumps
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# In this order: the smaller sets follow the versions of the largest.
FILES = {
    "tests/requirements.txt": ("3.11", ["--extra", "dev", "--extra", "cli"]),
    "cli/requirements.txt": ("3.11", ["--extra", "cli"]),
    "shared/requirements.txt": ("3.13", []),
}
LARGEST = next(iter(FILES))


def wanted() -> dict[str, object]:
    """What pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {"dependencies": project["dependencies"], "optional": project["optional-dependencies"]}


def header() -> str:
    """The first line of a file that is not stale."""
    return f"# made by `make lock` from pyproject.toml {sha256(dumps(wanted()).encode()).hexdigest()[:16]}"


def pins(name: str) -> dict[str, list[str]]:
    """Each pinned package and its versions (one per Python where they differ)."""
    found: dict[str, list[str]] = {}
    for package, version in re.findall(r"^([a-z0-9._-]+)==([^ ;]+)", (ROOT / name).read_text("utf-8"), re.M):
        found.setdefault(package, []).append(version)
    return found


def main() -> None:
    for name, (python, extras) in FILES.items():
        constraint = [] if name == LARGEST else ["--constraint", LARGEST]
        options = (
            "--universal --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links"
        )
        compile_ = [
            sys.executable,
            "-m",
            "uv",
            "--quiet",
            "pip",
            "compile",
            "pyproject.toml",
            *options.split(),
        ]
        choice = ["--python-version", python, "--upgrade", *extras, *constraint, "--output-file", name]
        subprocess.run([*compile_, *choice], cwd=ROOT, check=True)
        file = ROOT / name
        file.write_text(header() + "\n" + file.read_text("utf-8"), "utf-8")


if __name__ == "__main__":
    main()
