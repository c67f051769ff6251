"""The stack that template.yaml makes for given parameters: transformed as SAM does, then resolved.

What only a deployment knows stays a reference, always written as in `Fn::Sub`: `${Api}`, `${SearchLogs.Arn}`,
`${AWS::Region}`. What CloudFormation would refuse, such as a reference to nothing, is an error here too.
"""

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "template.yaml"
REGION = "eu-central-1"
QDRANT_URL = "https://qdrant.example:6333"  # the one parameter without a default

REFERENCE = re.compile(r"\$\{([^}]+)\}")
NOTHING = object()


class RefusedError(Exception):
    """CloudFormation would not take this template, or not with these parameters."""


@dataclass(frozen=True)
class Stack:
    """What would be created. Shared between tests: copy it before changing it."""

    resources: dict[str, Any]
    outputs: dict[str, Any]

    def of_type(self, name: str) -> dict[str, Any]:
        """Properties of the resources of a type, by logical id."""
        return {key: found["Properties"] for key, found in self.resources.items() if found["Type"] == f"AWS::{name}"}

    def only(self, name: str) -> dict[str, Any]:
        """Properties of the one resource of a type."""
        (properties,) = self.of_type(name).values()
        return dict(properties)

    @property
    def api(self) -> dict[str, Any]:
        """The API's definition."""
        return dict(self.only("ApiGatewayV2::Api")["Body"])


def stack(**parameters: str) -> Stack:
    """The stack for these parameters, the rest at their defaults."""
    return _stack(tuple(sorted({"QdrantUrl": QDRANT_URL, **parameters}.items())))


@cache
def _stack(parameters: tuple[tuple[str, str], ...]) -> Stack:
    written, given = template(), dict(parameters)
    return resolve(transform(written, given), parameter_values(written, given))


def nested_stack(application: str, **parameters: str) -> Stack:
    """The stack of a nested application of the stack for these parameters."""
    return _nested(application, tuple(sorted(parameters.items())))


@cache
def _nested(application: str, parameters: tuple[tuple[str, str], ...]) -> Stack:
    made = stack(**dict(parameters)).resources[application]["Properties"]
    written = template(ROOT / made["TemplateURL"])
    values = parameter_values(written, made["Parameters"])
    return resolve(transform(written, made["Parameters"]), values)


def part_of_stack(title: str, **parameters: str) -> Stack:
    """Of the stack for these parameters, what belongs to audits (`Audit`) or to suites (`Suite`)."""
    prefixes = (title, "Canary") if title == "Suite" else (title,)
    found = stack(**parameters)
    return Stack({name: made for name, made in found.resources.items() if name.startswith(prefixes)}, found.outputs)


def whole_stack(**parameters: str) -> Stack:
    """The stack for these parameters, together with its nested applications."""
    root = stack(**parameters)
    resources = dict(root.resources)
    for application in root.of_type("CloudFormation::Stack"):
        within = nested_stack(application, **parameters).resources
        assert not set(within) & set(resources), "a scan cannot distinguish resources of the same name"
        resources |= within
    return Stack(resources, root.outputs)


def template(path: Path = TEMPLATE) -> dict[str, Any]:
    """A template as written, short forms such as `!Ref` in their long form."""
    return parse(path.read_text("utf-8"))


def parse(text: str) -> dict[str, Any]:
    """The same of a text, YAML or JSON."""
    return dict(yaml.load(text, _Loader))


class _Loader(yaml.CSafeLoader):
    """Plain YAML, and CloudFormation's tags. The loader in C is eight times as fast, and templates are read often."""

    def long_form(self, name: str, node: yaml.Node) -> dict[str, Any]:
        key = name if name in ("Ref", "Condition") else f"Fn::{name}"
        if isinstance(node, yaml.ScalarNode):
            text = self.construct_scalar(node)
            return {key: text.split(".", 1) if name == "GetAtt" else text}
        if isinstance(node, yaml.SequenceNode):
            return {key: self.construct_sequence(node, deep=True)}
        return {key: self.construct_mapping(node, deep=True)}


_Loader.add_multi_constructor("!", _Loader.long_form)


def transform(written: dict[str, Any], given: dict[str, str], packaged: str = "s3://packaged") -> dict[str, Any]:
    """SAM's resources as CloudFormation's. Folders become addresses below `packaged`, as `sam package` does."""
    uploaded = copy.deepcopy(written)
    for name, resource in uploaded["Resources"].items():
        for folder in {"CodeUri", "ContentUri", "DefinitionUri"} & set(resource.get("Properties", {})):
            resource["Properties"][folder] = f"{packaged}/{name}"
    return translate(uploaded, given)


def translate(uploaded: dict[str, Any], given: dict[str, str], region: str = REGION) -> dict[str, Any]:
    """A packaged template as SAM's transform leaves it."""
    from samtranslator.parser.parser import Parser
    from samtranslator.translator.translator import Translator

    # Of the session only the region is read; a real one would read the AWS profile of this machine.
    translator = Translator({}, Parser(), boto_session=SimpleNamespace(region_name=region))
    return dict(translator.translate(copy.deepcopy(uploaded), dict(given)))


def parameter_values(written: dict[str, Any], given: dict[str, str]) -> dict[str, str | list[str]]:
    """What `Ref` yields for each parameter. Raises `RefusedError` for a missing or forbidden value."""
    declared = written.get("Parameters", {})
    if unknown := sorted(set(given) - set(declared)):
        raise RefusedError(f"no parameter {unknown[0]}")
    values: dict[str, str | list[str]] = {}
    for name, rules in declared.items():
        if name not in given and "Default" not in rules:
            raise RefusedError(f"{name} must be given")
        value = str(given.get(name, rules.get("Default")))
        if reason := refusal(rules, value):
            raise RefusedError(f"{name} {reason}")
        values[name] = value.split(",") if rules["Type"] == "CommaDelimitedList" else value
    return values


def refusal(rules: dict[str, Any], value: str) -> str | None:
    """Why CloudFormation would reject the value, or None."""
    if rules["Type"] == "Number":
        try:
            number = float(value)
        except ValueError:
            return "is no number"
        if not rules.get("MinValue", number) <= number <= rules.get("MaxValue", number):
            return "is out of range"
    if not rules.get("MinLength", 0) <= len(value) <= rules.get("MaxLength", len(value)):
        return "is too short or too long"
    if "AllowedValues" in rules and value not in map(str, rules["AllowedValues"]):
        return "is not one of the allowed values"
    if "AllowedPattern" in rules and not re.fullmatch(rules["AllowedPattern"], value):
        return "does not match the pattern"
    return None


def broken_rules(**parameters: str) -> list[str]:
    """The template's rules that these parameters break, as their messages."""
    written = template()
    given = {"QdrantUrl": QDRANT_URL, "ReleaseDigest": "0a1b", **parameters}
    return failed_assertions(written, parameter_values(written, given))


def failed_assertions(written: dict[str, Any], values: dict[str, str | list[str]]) -> list[str]:
    """The same of any template."""
    resolver = _Resolver({"Resources": {}}, values)
    return [
        assertion["AssertDescription"]
        for rule in written.get("Rules", {}).values()
        if "RuleCondition" not in rule or resolver.decides(rule["RuleCondition"])
        for assertion in rule["Assertions"]
        if not resolver.decides(assertion["Assert"])
    ]


def resolve(changed: dict[str, Any], values: dict[str, Any]) -> Stack:
    """A transformed template with its conditions decided and its parameters filled in."""
    resolver = _Resolver(changed, values)
    resources = {
        name: {key: resolver.value(part) for key, part in resource.items() if key != "Condition"}
        for name, resource in changed["Resources"].items()
        if resolver.exists(name)
    }
    outputs = {
        name: resolver.value(output)
        for name, output in changed.get("Outputs", {}).items()
        if resolver.holds(output.get("Condition"))
    }
    return Stack(resources, outputs)


class _Resolver:
    def __init__(self, changed: dict[str, Any], values: dict[str, Any]) -> None:
        self.conditions = changed.get("Conditions", {})
        self.mappings = changed.get("Mappings", {})
        self.resources = changed["Resources"]
        self.values = values

    def holds(self, name: str | None) -> bool:
        return name is None or self.decides(self.conditions[name])

    def exists(self, name: str) -> bool:
        return name in self.resources and self.holds(self.resources[name].get("Condition"))

    def decides(self, node: Any) -> bool:
        """Whether a condition, of a resource or of a rule, holds."""
        match node:
            case {"Condition": name}:
                return self.holds(name)
            case {"Fn::Equals": [left, right]}:
                return str(self.value(left)) == str(self.value(right))
            case {"Fn::Not": [condition]}:
                return not self.decides(condition)
            case {"Fn::And": conditions}:
                return all(self.decides(condition) for condition in conditions)
            case {"Fn::Or": conditions}:
                return any(self.decides(condition) for condition in conditions)
            case {"Fn::Contains": [values, value]}:
                return value in self.value(values)
        raise RefusedError(f"no condition: {node}")

    def value(self, node: Any) -> Any:  # noqa: PLR0911 - one for each function of CloudFormation
        """The node with everything resolved that is known before a deployment."""
        match node:
            case {"Ref": name, **rest} if not rest:
                return self._reference(name)
            case {"Fn::GetAtt": [name, attribute]}:
                return self._reference(f"{name}.{attribute}")
            case {"Fn::If": [condition, then, otherwise]}:
                return self.value(then if self.holds(condition) else otherwise)
            case {"Fn::Join": [separator, parts]}:
                return separator.join(self.value(parts))
            case {"Fn::Split": [separator, text]}:
                return str(self.value(text)).split(separator)
            case {"Fn::Select": [index, parts]}:
                return self.value(parts)[int(index)]
            case {"Fn::FindInMap": [name, first, second]}:
                return self.mappings[name][self.value(first)][self.value(second)]
            case {"Fn::Sub": text}:
                return self._filled(*text) if isinstance(text, list) else self._filled(text, {})
            case dict():
                return self._mapping(node)
            case list():
                return [part for part in map(self.value, node) if part is not NOTHING]
        return node

    def _mapping(self, node: dict[str, Any]) -> dict[str, Any]:
        if unknown := [key for key in node if key.startswith("Fn::")]:
            raise RefusedError(f"{unknown[0]} is not understood here")
        parts = {key: self.value(part) for key, part in node.items()}
        return {key: part for key, part in parts.items() if part is not NOTHING}

    def _filled(self, text: str, names: dict[str, Any]) -> str:
        def fill(found: re.Match[str]) -> str:
            name = found[1]
            return str(self.value(names[name]) if name in names else self._reference(name))

        return REFERENCE.sub(fill, text)

    def _reference(self, name: str) -> Any:
        if name == "AWS::NoValue":
            return NOTHING
        if name in self.values:
            return self.values[name]
        if not name.startswith("AWS::") and not self.exists(name.partition(".")[0]):
            raise RefusedError(f"nothing is called {name}")
        return f"${{{name}}}"


def routes(api: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every route of an API's definition, such as `POST /search`, and its operation."""
    for path, item in api["paths"].items():
        for method in set(item) - {"parameters", "summary", "description", "servers"}:
            yield f"{method.upper()} {path}", item[method]


def open_routes(api: dict[str, Any]) -> set[str]:
    """Routes that someone without a signature or token may call.

    Alternatives are enough one by one, so all must guard; API Gateway ignores `security` above operations.
    """
    guards = {name for name, scheme in api["components"]["securitySchemes"].items() if _guards(scheme)}
    return {
        route
        for route, operation in routes(api)
        if not operation.get("security") or any(not need or not set(need) <= guards for need in operation["security"])
    }


def _guards(scheme: dict[str, Any]) -> bool:
    match scheme:
        case {"x-amazon-apigateway-authtype": "awsSigv4"}:
            return True
        case {
            "x-amazon-apigateway-authorizer": {
                "type": "jwt",
                "identitySource": "$request.header.Authorization",
                "jwtConfiguration": {"issuer": str(issuer), "audience": [_, *_]},
            }
        }:
            return bool(issuer)
    return False


def references(node: Any) -> set[str]:
    """Names that a resolved node still refers to."""
    return {name.partition(".")[0] for text in strings(node) for name in REFERENCE.findall(text)}


def strings(node: Any) -> Iterator[str]:
    """Every string in a node, keys left out."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict | list):
        for part in node.values() if isinstance(node, dict) else node:
            yield from strings(part)


def values_under(node: Any, key: str) -> Iterator[Any]:
    """Every value under this key, at any depth."""
    if isinstance(node, dict):
        if key in node:
            yield node[key]
        for part in node.values():
            yield from values_under(part, key)
    elif isinstance(node, list):
        for part in node:
            yield from values_under(part, key)
