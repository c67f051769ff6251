"""Artefacts as a deployment has them: built by `sam build`, then unpacked from a zip file, read-only.

A zip file made by SAM dates everything 1980-01-01, so that ordinary bytecode would be stale. What is unpacked here has
those dates; the zip file itself is left out, for it changes nothing else.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import yaml

from bench.contestants import BY_SAM, CHUNKPROOF, LAYER, TASK, Contestant

ROOT = Path(__file__).resolve().parents[1]
SOURCES = Path(__file__).resolve().parent / "contenders"
ZIP_DATE = 315_532_800  # 1980-01-01, the oldest that a zip file can say
RUNTIME_PACKAGES = ("boto3", "botocore", "s3transfer", "jmespath", "python-dateutil", "six", "urllib3")


class NotBuiltError(Exception):
    """An artefact could not be made, or is not there; the message says why."""


@dataclass(frozen=True)
class Workshop:
    """Where artefacts are made, and with what."""

    folder: Path
    python: Path
    sam: Path
    architecture: str
    say: Callable[[str], None]

    def contestants(self, build: Path) -> dict[str, Contestant]:
        """All of them, unpacked; `build` is what `make build` made of Chunkproof."""
        made = {CHUNKPROOF: self._chunkproof(build, "SearchFunction", CHUNKPROOF)}
        for name in BY_SAM:
            built = self._sam_build(name)
            made[name] = Contestant(name, self._unpacked(name, {TASK: built}), "app.lambda_handler", name)
        made["bare_sdk"] = Contestant(
            "bare_sdk", made["plain"].folder, "bare_sdk.lambda_handler", made["plain"].collection
        )
        floor = self._staged("floor", {"app.py": SOURCES / "floor.py"})
        made["floor"] = Contestant("floor", self._unpacked("floor", {TASK: floor}), "app.lambda_handler", "plain")
        return made

    def validator(self, build: Path) -> Contestant:
        """Chunkproof's other function."""
        return self._chunkproof(build, "ValidateChunkFunction", f"{CHUNKPROOF}-validate")

    def runtime(self) -> Path:
        """The packages that Lambda's own runtime brings, compiled: found last on the path, never counted."""
        target, wanted = self.folder / "runtime", self.folder / "runtime.txt"
        entries = (ROOT / "tests" / "requirements.txt").read_text("utf-8").split("\n")
        wanted.write_text("\n".join(_only(entries, RUNTIME_PACKAGES)), "utf-8")
        stamp = _digest([wanted], str(self.python))
        if not _is_made(target, stamp):
            self.say("Installing what Lambda's runtime brings (once)")
            shutil.rmtree(target, ignore_errors=True)
            pip = [
                "-m",
                "pip",
                "--quiet",
                "--disable-pip-version-check",
                "install",
                "--no-deps",
                "--require-hashes",
            ]
            self._run([self.python, *pip, "--target", target, "-r", wanted], "runtime")
            _stamp(target, stamp)
        return target

    def _chunkproof(self, build: Path, function: str, name: str) -> Contestant:
        file = build / "template.yaml"
        if not file.is_file():
            raise NotBuiltError(f"{build} holds no build of Chunkproof; `make bench` makes one")
        template = yaml.load(file.read_text("utf-8"), Loader=_AnyTag)
        shared = template.get("Globals", {}).get("Function", {})
        own = template["Resources"][function]["Properties"]
        variables = {
            **shared.get("Environment", {}).get("Variables", {}),
            **own.get("Environment", {}).get("Variables", {}),
        }
        given = {key: value for key, value in variables.items() if isinstance(value, str) and value}
        folder = self._unpacked(name, {TASK: build / function, LAYER: build / "SharedLayer"})
        handler = own.get("Handler") or shared["Handler"]
        return Contestant(CHUNKPROOF, folder, handler, "plain", tuple(sorted(given.items())))

    def _staged(self, name: str, files: Mapping[str, Path]) -> Path:
        folder = self.folder / "source" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for target, source in files.items():
            shutil.copyfile(source, folder / target)
        return folder

    def _sam_build(self, name: str) -> Path:
        """The handler's folder as plain `sam build` leaves it."""
        files = {
            "app.py": SOURCES / f"{name}.py",
            "search_handler.py": SOURCES / "search_handler.py",
            "requirements.txt": SOURCES / f"{name}.txt",
        }
        if name == "plain":
            files["bare_sdk.py"] = SOURCES / "bare_sdk.py"
        target = self.folder / "built" / name
        stamp = _digest(files.values(), str(self.python), self.architecture)
        if not _is_made(target, stamp):
            self.say(f"sam build of {name} (once, a minute or so)")
            staged = self._staged(name, files)
            template = self.folder / "source" / f"{name}.json"
            template.write_text(json.dumps(_template(staged, self.architecture)), "utf-8")
            options = ["--template", template, "--build-dir", target]
            options += ["--cached", "--cache-dir", self.folder / "cache"]
            self._run([self.sam, "build", *options], name)
            _stamp(target, stamp)
        return target / "Contender"

    def _run(self, command: list[str | Path], name: str) -> None:
        # SAM's builder takes the first python3.13 of the path.
        path = f"{self.python.parent}{os.pathsep}{os.environ.get('PATH', '')}"
        run = subprocess.run(
            list(map(str, command)),
            env={**os.environ, "PATH": path, "SAM_CLI_TELEMETRY": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            raise NotBuiltError(f"{name} could not be built:\n{(run.stdout + run.stderr)[-3000:]}")

    def _unpacked(self, name: str, parts: Mapping[str, Path]) -> Path:
        target = self.folder / "unpacked" / name
        stamp = _digest(file for part in parts.values() for file in _stamps_of(part))
        if stamp != NO_STAMP and _is_made(target, stamp):
            return target
        remove(target)
        for part, source in parts.items():
            shutil.copytree(source, target / part)
        for path in [*target.rglob("*"), target]:
            path.chmod(0o555 if path.is_dir() else path.stat().st_mode & 0o555)
            os.utime(path, (ZIP_DATE, ZIP_DATE))
        _stamp(target, stamp)
        return target


class _AnyTag(yaml.SafeLoader):
    """Reads a template without resolving it: what is computed is None."""


_AnyTag.add_multi_constructor("!", lambda *_: None)


def remove(folder: Path) -> None:
    """Remove a folder that may be read-only."""
    if folder.is_dir():
        for path in [folder, *folder.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)
        shutil.rmtree(folder)


def size_of(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def bytecode_in(folder: Path) -> int:
    """How many files of bytecode there are."""
    return sum(1 for _ in folder.rglob("*.pyc"))


def _template(code: Path, architecture: str) -> dict[str, object]:
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Transform": "AWS::Serverless-2016-10-31",
        "Resources": {
            "Contender": {
                "Type": "AWS::Serverless::Function",
                "Properties": {
                    "Runtime": "python3.13",
                    "Handler": "app.lambda_handler",
                    "CodeUri": str(code),
                    "Architectures": [architecture],
                },
            }
        },
    }


def _only(lines: list[str], packages: tuple[str, ...]) -> list[str]:
    """The entries of a pinned file that are about these packages."""
    kept: list[str] = []
    is_wanted = False
    for line in lines:
        if line[:1].isalnum():
            is_wanted = line.partition("==")[0] in packages
        if is_wanted:
            kept.append(line)
    return kept


def _digest(files: Iterable[Path], *more: str) -> str:
    digest = sha256("\n".join(more).encode())
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _stamp_file(target: Path) -> Path:
    return target.with_name(f"{target.name}.stamp")


def _stamps_of(built: Path) -> Iterator[Path]:
    """The files that change when SAM rebuilds a folder; none for other folders, which are always unpacked."""
    if _stamp_file(built.parent).is_file():
        yield _stamp_file(built.parent)


def _is_made(target: Path, stamp: str) -> bool:
    file = _stamp_file(target)
    return target.is_dir() and file.is_file() and file.read_text("ascii") == stamp


def _stamp(target: Path, stamp: str) -> None:
    _stamp_file(target).write_text(stamp, "ascii")


NO_STAMP = _digest(())
