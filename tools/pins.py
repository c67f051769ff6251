"""Pinned dependencies, with hashes and without addresses; `make lock` runs this.

Each file names the digest of what it was made from, so that a test can find a stale one.
"""

import re
import subprocess
import sys
import tomllib
from hashlib import sha256
from json import dumps
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Lambda's runtime brings boto3. The rest is imported by parts of the SDKs that a function never enters
# (docs/decisions/light-sdk-imports.md); tests/build runs the handlers without it.
NOT_IN_THE_LAYER = {
    *("boto3", "botocore", "s3transfer", "python-dateutil", "six", "urllib3"),
    *("numpy", "grpcio", "protobuf", "portalocker", "h2", "hpack", "hyperframe"),
    *(
        "fastavro",
        "tokenizers",
        "huggingface-hub",
        "hf-xet",
        "fsspec",
        "tqdm",
        "filelock",
        "pyyaml",
        "packaging",
    ),
    *(
        "requests",
        "types-requests",
        "charset-normalizer",
        "httpx2",
        "httpx2-jsfetch",
        "httpcore2",
        "truststore",
    ),
    # What only httpx's own transport imports, and only when one is made: net/transport.py has another.
    *("httpcore", "h11", "anyio"),
    # What only the command line uses.
    *("click", "colorama", "platformdirs", "rich", "markdown-it-py", "mdurl", "pygments", "uvicorn"),
    *("vl-convert-python", "backports-zstd", "cryptography", "cffi", "pycparser", "rfc8785"),
    # The embedded store, 35 MB.
    "qdrant-edge-py",
}
# In this order: the smaller sets follow the versions of the largest. Tools with a virtualenv of their own stand apart.
FILES = {
    "tests/requirements.txt": ("3.11", ["pyproject.toml", "--all-extras", "--group", "pyproject.toml:build"]),
    "cli/requirements.txt": (
        "3.11",
        [
            "pyproject.toml",
            *(f"--extra={name}" for name in ("local", "qdrant", "cohere", "aws", "charts")),
            "--group",
            "pyproject.toml:build",
            "--constraint",
            "tests/requirements.txt",
        ],
    ),
    # What the Dockerfile installs.
    "cli/requirements-image.txt": (
        "3.13",
        [
            "pyproject.toml",
            *(f"--extra={name}" for name in ("local", "qdrant", "cohere", "mcp", "otel")),
            "--group",
            "pyproject.toml:build",
            "--constraint",
            "tests/requirements.txt",
        ],
    ),
    "shared/requirements.txt": (
        "3.13",
        [
            "pyproject.toml",
            "--extra=qdrant",
            "--extra=cohere",
            "--constraint",
            "tests/requirements.txt",
            *(f"--no-emit-package={name}" for name in sorted(NOT_IN_THE_LAYER)),
        ],
    ),
    "shared/requirements-edge.txt": (
        "3.13",
        ["--group", "pyproject.toml:edge", "--constraint", "tests/requirements.txt"],
    ),
    "tests/requirements-sam.txt": ("3.11", ["--group", "pyproject.toml:sam"]),
    "tests/requirements-scan.txt": ("3.11", ["--group", "pyproject.toml:scan"]),
    "tests/requirements-site.txt": ("3.11", ["--group", "pyproject.toml:site"]),
}
LARGEST = next(iter(FILES))
APART = {"tests/requirements-sam.txt", "tests/requirements-scan.txt", "tests/requirements-site.txt"}
# What `make bench` measures beside Chunkproof. Nothing else installs these, so `make audit-deps` does not look them up.
CONTENDERS = {
    f"bench/contenders/{name}.txt": ("3.13", [f"bench/contenders/{name}.in", *constraint])
    for name, constraint in {
        "plain": ["--constraint", "tests/requirements.txt"],
        "langchain": [],
        "llamaindex": [],
        "haystack": [],
    }.items()
}
# An emulator for `make test-states`, which nothing else installs either.
CONTENDERS["tools/checks/localstack.txt"] = ("3.13", ["tools/checks/localstack.in", "--no-universal"])


def requirements() -> dict[str, object]:
    """The requirements in pyproject.toml."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = document["project"]
    return {
        "dependencies": project["dependencies"],
        "optional": project["optional-dependencies"],
        "groups": document["dependency-groups"],
    }


def header(name: str) -> str:
    """The first line of a file that is not stale."""
    if name in CONTENDERS:
        source = ROOT / CONTENDERS[name][1][0]
        made_from, content = source.name, source.read_bytes()
    else:
        made_from, content = "pyproject.toml", dumps(requirements()).encode()
    return f"# made by `make lock` from {made_from} {sha256(content).hexdigest()[:16]}"


def pins(name: str) -> dict[str, list[str]]:
    """Each pinned package and its versions (one per Python where they differ)."""
    found: dict[str, list[str]] = {}
    for package, version in re.findall(r"^([a-z0-9._-]+)==([^ ;]+)", (ROOT / name).read_text("utf-8"), re.M):
        found.setdefault(package, []).append(version)
    return found


# The bill of materials of the wheel and of the layer: what each was tested with.
SBOMS = {"cli/sbom.cdx.json": "cli/requirements.txt", "shared/sbom.cdx.json": "shared/requirements.txt"}


def sbom(requirements: str) -> str:
    """Return the pinned packages of a file as CycloneDX 1.6; `make lock` writes it, the same from the same pins."""
    version = re.search(r'__version__ = "(.+)"', (ROOT / "shared/chunkproof/__init__.py").read_text("utf-8"))
    listed = sorted((name, one) for name, versions in pins(requirements).items() for one in dict.fromkeys(versions))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component("chunkproof", version[1] if version else "0")},
        "components": [_component(name, one) for name, one in listed],
    }
    return dumps(document, indent=1) + "\n"


def _component(name: str, version: str) -> dict[str, str]:
    reference = f"pkg:pypi/{name}@{version}"
    return {"type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference}


def main() -> None:
    options = "--universal --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links"
    for name, (python, source) in {**FILES, **CONTENDERS}.items():
        compile_ = [sys.executable, "-m", "uv", "--quiet", "pip", "compile", "--upgrade", *options.split()]
        subprocess.run([*compile_, "--python-version", python, *source, "--output-file", name], cwd=ROOT, check=True)
        file = ROOT / name
        file.write_text(header(name) + "\n" + file.read_text("utf-8"), "utf-8")
    for name, source in SBOMS.items():
        (ROOT / name).write_text(sbom(source), "utf-8")


if __name__ == "__main__":
    main()
