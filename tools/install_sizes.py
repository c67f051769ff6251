"""Install each line of the documentation into an empty virtualenv; print size and time (`make sizes`).

Sizes are of site-packages without pip, compiled as pip does it. Packages come from where pip is configured to
get them, in the versions of tests/requirements.txt, and from pip's cache if they were fetched before.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.dist import build

ROOT = Path(__file__).resolve().parents[1]
LINES = ("", "[qdrant,cohere]", "[local]", "[local,charts]", "[mcp]", "[aws]", "[otel]", "[pdf]", "[sql]", "[all]")


def measure(wheel: Path, extras: str, folder: Path) -> tuple[float, float]:
    """Return the megabytes and the seconds of an installation."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    site = next((folder / "lib").glob("python*")) / "site-packages"
    before = _size(site)
    began = time.monotonic()
    wanted = [f"chunkproof{extras} @ {wheel.as_uri()}", "--constraint", str(folder.parent / "constraints.txt")]
    subprocess.run([*pip, "install", *wanted], check=True, stderr=subprocess.DEVNULL)
    return (_size(site) - before) / 1e6, time.monotonic() - began


def _size(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())


def write_constraints(file: Path) -> None:
    """Write the pinned versions without hashes, which pip does not take in constraints."""
    lines = (ROOT / "tests" / "requirements.txt").read_text("utf-8").splitlines()
    pinned = (line.removesuffix(" \\").rstrip() for line in lines if "==" in line and not line.startswith((" ", "#")))
    file.write_text("\n".join(pinned) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*", default=LINES, help="such as '[local]'; all lines by default")
    print("| `pip install` | MB | seconds |\n|---|---|---|")
    with TemporaryDirectory() as folder:
        root = Path(folder)
        write_constraints(root / "constraints.txt")
        wheel = next(file for file in build(root) if file.suffix == ".whl")
        for number, extras in enumerate(parser.parse_args().extras):
            size, seconds = measure(wheel, extras, root / str(number))
            print(f"| `chunkproof{extras}` | {size:,.0f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
