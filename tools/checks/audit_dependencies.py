"""Look up every pinned package in the OSV database with pip-audit (`make audit-deps`).

Every version in every pinned file is looked up, those for other platforms and Pythons too. Exit 1 for a
vulnerability without an exception, or an exception without a vulnerability; 3 when the database cannot be
reached, or 0 and a warning with --may-be-offline; 2 when pip-audit fails otherwise.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from tools import pins

ROOT = Path(__file__).resolve().parents[2]
EXCEPTIONS = ROOT / "tests" / "audit-exceptions.toml"
# What pip-audit's HTTP client says when it gets no answer, or none that it can read.
NO_ANSWER = re.compile(r"^requests\.exceptions\.(\w+: .*)$", re.M)
# What pip-audit says when it leaves out an advisory that it cannot read.
LEFT_OUT = re.compile(r"^WARNING:pip_audit\._service\S*:(.*)$", re.M)

Pin = tuple[str, str]


class UncheckedError(Exception):
    """The database could not be reached."""


class BrokenError(Exception):
    """pip-audit did not look everything up, and the database is not the reason."""


@dataclass(frozen=True)
class Vulnerable:
    """A pinned version with a known vulnerability."""

    package: str
    version: str
    advisories: tuple[str, ...]
    fixed_in: tuple[str, ...]


@dataclass(frozen=True)
class Excepted:
    """An advisory about a package that may stay."""

    package: str
    advisory: str
    reason: str

    def covers(self, found: Vulnerable) -> bool:
        """Whether it is about this one, by any of its names."""
        return self.package == found.package and self.advisory in found.advisories


def find_pins() -> dict[Pin, list[str]]:
    """Every pinned version, and the files that pin it."""
    found: dict[Pin, list[str]] = {}
    for file in pins.FILES:
        for package, versions in pins.pins(file).items():
            for version in versions:
                found.setdefault((package, version), []).append(file)
    return found


def rounds(wanted: list[Pin]) -> list[list[Pin]]:
    """The same pins, in lists that name a package once each: pip-audit takes no second version."""
    versions: dict[str, list[Pin]] = {}
    for pin in wanted:
        versions.setdefault(pin[0], []).append(pin)
    return [[pin for pin in column if pin] for column in zip_longest(*versions.values())]


def find_vulnerable(wanted: list[Pin], *, osv_url: str | None = None, timeout: int = 15) -> list[Vulnerable]:
    """What is known about these pins. Raises `UncheckedError` or `BrokenError` unless each was looked up."""
    return [one for some in rounds(wanted) for one in _query_database(some, osv_url, timeout)]


def _query_database(wanted: list[Pin], osv_url: str | None, timeout: int) -> list[Vulnerable]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text("".join(f"{package}=={version}\n" for package, version in wanted), "utf-8")
        # OSV, not PyPI: behind a mirror, every package that PyPI does not answer for is passed over as if it were fine.
        options = f"--vulnerability-service osv --timeout {timeout} --format json --progress-spinner off"
        command = [sys.executable, "-m", "pip_audit", *options.split(), "--cache-dir", folder]
        command += ["--disable-pip", "--no-deps", "--requirement", str(file)]
        run = subprocess.run(
            [*command, *(["--osv-url", osv_url] if osv_url else [])],
            capture_output=True,
            text=True,
            check=False,
        )
    return read(wanted, run.stdout, run.stderr)


def read(wanted: list[Pin], report: str, trouble: str) -> list[Vulnerable]:
    """What a run of pip-audit found; its exit code is 1 for a vulnerability and for a failure alike."""
    try:
        entries = json.loads(report)["dependencies"]
    except ValueError:
        if reasons := NO_ANSWER.findall(trouble):
            raise UncheckedError(reasons[-1]) from None
        raise BrokenError(trouble.strip() or "pip-audit said nothing") from None
    if left_out := LEFT_OUT.findall(trouble):
        raise BrokenError("; ".join(left_out))
    if missing := set(wanted) - {(entry["name"], entry.get("version")) for entry in entries}:
        raise BrokenError(f"left out: {', '.join('=='.join(pin) for pin in sorted(missing))}")
    return [
        Vulnerable(
            entry["name"],
            entry["version"],
            (found["id"], *sorted(found["aliases"])),
            tuple(found["fix_versions"]),
        )
        for entry in entries
        for found in entry["vulns"]
    ]


def exceptions() -> list[Excepted]:
    """Those of `tests/audit-exceptions.toml`."""
    document = tomllib.loads(EXCEPTIONS.read_text("utf-8"))
    return [Excepted(**entry) for entry in document.get("dependencies", [])]


def problems(found: list[Vulnerable], excepted: list[Excepted], files: dict[Pin, list[str]]) -> list[str]:
    """A line for each vulnerability without an exception and each exception without a vulnerability."""
    return [
        *(_shown(v, files[v.package, v.version]) for v in found if not any(e.covers(v) for e in excepted)),
        *(
            f"{e.package}: {e.advisory} is excepted but no longer found; remove the exception"
            for e in excepted
            if not any(e.covers(v) for v in found)
        ),
    ]


def _shown(found: Vulnerable, files: list[str]) -> str:
    mended = f"fixed in {', '.join(found.fixed_in)}" if found.fixed_in else "no fixed version yet"
    names = " ".join(found.advisories)
    return f"{found.package} {found.version}: {names}, {mended} ({', '.join(files)})"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--may-be-offline", action="store_true", help="only warn when nothing can be checked")
    arguments.add_argument("--osv-url", help="another address that speaks OSV's API")
    given, files = arguments.parse_args(), find_pins()
    try:
        found = find_vulnerable(list(files), osv_url=given.osv_url)
    except UncheckedError as error:
        print(
            f"NOT CHECKED for known vulnerabilities: the database cannot be reached ({error})",
            file=sys.stderr,
        )
        raise SystemExit(0 if given.may_be_offline else 3) from None
    except BrokenError as error:
        print(f"pip-audit failed: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    if wrong := problems(found, exceptions(), files):
        print(*wrong, sep="\n")
        print(
            f"{len(wrong)} to fix (raise the version in pyproject.toml, then make lock), "
            f"or to except with a reason in {EXCEPTIONS.relative_to(ROOT)}"
        )
        raise SystemExit(1)
    print(f"{len(files)} pinned versions: no known vulnerability, {len(found)} excepted ones aside")


if __name__ == "__main__":
    main()
