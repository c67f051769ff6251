"""The digest of a release: code, layer, template, processor, and the parameters that reach the functions.

Before that, the parameters are checked (`check`): a wrong setting fails the build, not the first request.

The alias moves when a version is published, and SAM publishes one when this digest changes; without it, a
change of the layer or of a parameter alone would leave the alias on the old version. `make build` puts it into the
built template.
"""

import argparse
import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from chunkproof.base.errors import SettingsError
from chunkproof.base.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
INPUTS = ("shared", "functions/search", "functions/validate_chunk", "template.yaml")
CONFIG = "samconfig.toml"
# An HTTP API gives up after 30 s.
LONGEST_DEADLINE_MS = 29_000
# Properties of a function that are not part of its versions.
NOT_VERSIONED = {"ReservedConcurrentExecutions", "DeploymentPreference", "Events", "AutoPublishCodeSha256", "Role"}


def given_parameters(root: Path, parameters: str = "", environment: str = "default") -> dict[str, str]:
    """Return the parameters of a deployment by name.

    Parameters of the command line replace all parameters in samconfig.toml, as they do for SAM.
    """
    return _parse(_split(parameters)) if parameters.strip() else _configured(root / CONFIG, environment)


def check(template: dict[str, Any], given: dict[str, str], architecture: str) -> list[str]:
    """List what is wrong with parameters, beyond what CloudFormation checks: unknown ones, and the settings."""
    wrong = [f"there is no parameter {name}" for name in sorted(set(given) - set(template["Parameters"]))]
    if given.get("Architecture", architecture) != architecture:
        wrong.append(f"Architecture is the processor that the layer was built for: set ARCH={given['Architecture']}")
    declared = template["Globals"]["Function"]["Environment"]["Variables"]
    text = given.get("Settings") or "{}"
    try:
        settings = Settings.from_env({"CHUNKPROOF_SETTINGS": text})
    except SettingsError as error:
        return [*wrong, *(f"Settings: {reason}" for reason in error.messages)]
    for variable in sorted(set(json.loads(text)) & set(declared)):
        wrong.append(f"Settings: {variable} has a parameter of its own")
    if (settings.deadline_ms or 0) > LONGEST_DEADLINE_MS:
        wrong.append(f"Settings: CHUNKPROOF_DEADLINE_MS must be at most {LONGEST_DEADLINE_MS} behind API Gateway")
    if settings.tenant_claim and not given.get("JwtIssuer"):
        wrong.append("Settings: CHUNKPROOF_TENANT_CLAIM needs JwtIssuer; IAM signatures carry no claims")
    if settings.embedder == "bedrock" and not given.get("BedrockModelArns"):
        wrong.append("Settings: CHUNKPROOF_EMBEDDER bedrock needs BedrockModelArns, which names the models it may call")
    if settings.embedder == "local":
        wrong.append("Settings: CHUNKPROOF_EMBEDDER must not be local, which Lambda does not have")
    return wrong


def digest(root: Path, parameters: str = "", architecture: str = "arm64", environment: str = "default") -> str:
    """The same for the same release, another for any other."""
    reaching = parameters_of_functions(read_template(root / "template.yaml"))
    given = given_parameters(root, parameters, environment)
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


def find_live(root: Path, environment: str) -> dict[str, str]:
    """Find the version of each of the two functions that callers reach; none before the first deployment."""
    import boto3

    config = tomllib.loads((root / CONFIG).read_text("utf-8"))
    stack = config[environment]["global"]["parameters"]["stack_name"]
    found = boto3.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]
    outputs = {output["OutputKey"]: output["OutputValue"] for output in found["Outputs"]}
    functions = (outputs["SearchFunctionName"], outputs["ValidateChunkFunctionName"])
    client = boto3.client("lambda")
    return {name: client.get_alias(FunctionName=name, Name="live")["FunctionVersion"] for name in functions}


def prune(live: Mapping[str, str], before: Mapping[str, str]) -> str | None:
    """Delete the versions of the two functions but the live ones and those that were live before; say which.

    CloudFormation keeps every version that it replaces, so that an alias can go back, and those of releases that were
    taken back, which never served. One step back is enough.
    """
    import boto3

    client, deleted = boto3.client("lambda"), []
    for function, version in live.items():
        if before.get(function, version) == version:
            continue
        pages = client.get_paginator("list_versions_by_function").paginate(FunctionName=function)
        numbers = {found["Version"] for page in pages for found in page["Versions"]}
        for number in sorted(numbers - {"$LATEST", version, before[function]}, key=int):
            client.delete_function(FunctionName=function, Qualifier=number)
            deleted.append(f"{function}:{number}")
    return f"Deleted former versions: {', '.join(deleted)}" if deleted else None


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
    return {name: _unquote(value) for name, _, value in (one.partition("=") for one in plain)}


def _unquote(value: str) -> str:
    bare = value.strip("\"'")
    return bare.replace('\\"', '"') if value[:1] == '"' else bare


def _files(root: Path) -> Iterator[Path]:
    for name in INPUTS:
        found = root / name
        yield from sorted(f for f in (found.rglob("*") if found.is_dir() else [found]) if _is_released(f))


def _is_released(file: Path) -> bool:
    return file.is_file() and "__pycache__" not in file.parts


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--stamp", type=Path, help="the built template")
    arguments.add_argument("--check", action="store_true", help="only check the parameters")
    arguments.add_argument("--architecture", default="arm64")
    arguments.add_argument("--environment", default="default", help="environment of samconfig.toml")
    arguments.add_argument("--parameters", default="", help="parameters given on the command line")
    arguments.add_argument("--live", action="store_true", help="print the versions that callers reach, for --prune")
    arguments.add_argument("--prune", metavar="LIVE", help="delete versions but the live ones and these")
    given = arguments.parse_args()
    if given.live:
        with suppress(Exception):  # no stack yet
            print(json.dumps(find_live(ROOT, given.environment)))
        return
    if given.prune is not None:
        try:
            print(prune(find_live(ROOT, given.environment), json.loads(given.prune or "{}")) or "", end="")
        except Exception as error:  # noqa: BLE001 - the release is deployed: boto3's own errors are only shown
            print(f"Former versions were not deleted: {error}")
        return
    parameters = given_parameters(ROOT, given.parameters, given.environment)
    if wrong := check(read_template(ROOT / "template.yaml"), parameters, given.architecture):
        raise SystemExit("\n".join(f"parameters: {reason}" for reason in wrong))
    if given.check:
        return
    release = digest(ROOT, given.parameters, given.architecture, given.environment)
    if given.stamp:
        stamp(given.stamp, given.architecture, release)
    print(release[:16])


if __name__ == "__main__":
    main()
