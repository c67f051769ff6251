"""Wheel and source distribution, reproducibly: `make dist`."""

import argparse
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def build(folder: Path) -> list[Path]:
    """Build both into a folder; files carry the date of the last commit, so that a build can be repeated."""
    date = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": date.stdout.strip() or "0"}
    command = [
        sys.executable,
        "-m",
        "uv",
        "--quiet",
        "build",
        "--no-build-isolation",
        "--python",
        sys.executable,
        "--out-dir",
        str(folder),
    ]
    subprocess.run([*command, str(ROOT)], env=environment, check=True)
    return sorted([*folder.glob("chunkproof-*.whl"), *folder.glob("chunkproof-*.tar.gz")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "dist")
    for file in build(parser.parse_args().folder):
        print(f"{file.stat().st_size / 1024:8,.0f} kB  {sha256(file.read_bytes()).hexdigest()}  {file.name}")


if __name__ == "__main__":
    main()
