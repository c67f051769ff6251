"""The digest of a release: code, layer, template, processor, and the parameters that reach the functions.

The alias moves when a version is published, and SAM publishes one when this digest changes; without it, a
change of the layer or of a parameter alone would leave the alias on the old version. `make build` puts it into the
built template.
"""

import argparse
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
INPUTS = ("shared", "functions/search", "functions/validate_chunk", "template.yaml")
CONFIG = "samconfig.toml"
# Properties of a function that are not part of its versions.
NOT_VERSIONED = {"ReservedConcurrentExecutions", "DeploymentPreference", "Events", "AutoPublishCodeSha256", "Role"}


def digest(root: Path, parameters: str = "", architecture: str = "arm64", environment: str = "default") -> str:
    """The same for the same release, another for any other.

    Parameters of the command line replace all those of the environment in samconfig.toml, as they do for SAM.
    """
    reaching = parameters_of_functions(read_template(root / "template.yaml"))
    given = _parse(_split(parameters)) if parameters.strip() else _configured(root / CONFIG, environment)
    relevant = sorted((name, value) for name, value in given.items() if name in reaching)
    found = sha256(f"{architecture}\0{relevant}".encode())
    for file in _files(root):
        found.update(b"\0" + file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return found.hexdigest()


def parameters_of_functions(template: dict[str, Any]) -> set[str]:
    """Names of the parameters that a published version depends on: directly, through a condition or the layer."""
    resources = template["Resources"].values()
    shared = template.get("Globals", {}).get("Function", {})
    functions = [r["Properties"] for r in resources if r["Type"] == "AWS::Serverless::Function"]
    layers = [r["Properties"] for r in resources if r["Type"] == "AWS::Serverless::LayerVersion"]
    versioned = [{k: v for k, v in one.items() if k not in NOT_VERSIONED} for one in (shared, *functions)]
    names, pending = set[str](), [*versioned, *layers]
    while pending:
        found = set(_names(pending.pop())) - names
        names |= found
        pending += [template.get("Conditions", {})[name] for name in found & set(template.get("Conditions", {}))]
    return names & set(template["Parameters"]) - {"ReleaseDigest"}


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


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's tags, whose name is kept as a key."""


def _tagged(loader: _Loader, name: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        return {name: loader.construct_scalar(node)}
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    raise ValueError(f"!{name} is not read here")


_Loader.add_multi_constructor("!", _tagged)


def read_template(file: Path) -> dict[str, Any]:
    """A template as written, its tags as keys without `Fn::`."""
    return dict(yaml.load(file.read_text("utf-8"), _Loader))


def _names(node: Any) -> Iterator[str]:
    """Everything that a part of a template refers to: parameters, conditions, resources."""
    if isinstance(node, dict):
        for key, part in node.items():
            if key in ("Ref", "Condition") and isinstance(part, str):
                yield part
            elif key == "If":
                yield part[0]
                yield from _names(part[1:])
            elif key == "Sub":
                text = part if isinstance(part, str) else part[0]
                yield from re.findall(r"\$\{(\w+)", text)
                yield from _names(part)
            else:
                yield from _names(part)
    elif isinstance(node, list):
        for part in node:
            yield from _names(part)


def _configured(file: Path, environment: str) -> dict[str, str]:
    """Parameters of an environment of samconfig.toml, where they are a list or one text."""
    config = tomllib.loads(file.read_text("utf-8"))
    given = config.get(environment, {}).get("deploy", {}).get("parameters", {}).get("parameter_overrides", [])
    return _parse(_split(given) if isinstance(given, str) else given)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation mark that is part of a value: the shell has removed those around it
        return text.split()


def _parse(overrides: Iterable[str]) -> dict[str, str]:
    """Parameters by name, from SAM's two ways to write them: `A=1` and `ParameterKey=A,ParameterValue=1`."""
    plain = (re.sub(r"^ParameterKey=(\w+),ParameterValue=", r"\1=", one) for one in overrides)
    return {name: value.strip("\"'") for name, _, value in (one.partition("=") for one in plain)}


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
    arguments.add_argument("--environment", default="default", help="environment of samconfig.toml")
    arguments.add_argument("--parameters", default="", help="parameters given on the command line")
    given = arguments.parse_args()
    release = digest(ROOT, given.parameters, given.architecture, given.environment)
    if given.stamp:
        stamp(given.stamp, given.architecture, release)
    print(release[:16])


if __name__ == "__main__":
    main()
