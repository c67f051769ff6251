"""What a stack makes: names, numbers and addresses of its resources, and references filled in.

Resources are remembered as they would be made; of a Lambda function, the account keeps what each published version was.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Protocol

from support.template import REFERENCE, Stack

ACCOUNT = "123456789012"
REGION = "us-east-1"
# Types whose `Ref` yields the ARN.
REFERRED_BY_ARN = {"AWS::IAM::ManagedPolicy", "AWS::SNS::Topic", "AWS::StepFunctions::StateMachine"}


@dataclass
class Resource:
    """A resource as made: its type, its name in the account, its properties without references."""

    type: str
    name: str
    properties: dict[str, Any]
    retained: bool = False
    number: int = 0  # of a Lambda version or layer version


@dataclass
class Deployment:
    """A stack, which may have been updated several times."""

    name: str
    id: str
    status: str = "REVIEW_IN_PROGRESS"
    written: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    resources: dict[str, Resource] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    events: list[dict[str, str]] = field(default_factory=list)

    def add_event(self, status: str, logical: str = "", kind: str = "AWS::CloudFormation::Stack") -> None:
        """Add an event, as DescribeStackEvents returns it."""
        self.status = self.status if logical else status
        self.events.insert(
            0,
            {
                "StackId": self.id,
                "EventId": f"{self.name}-{len(self.events)}",
                "StackName": self.name,
                "LogicalResourceId": logical or self.name,
                "PhysicalResourceId": self.id,
                "ResourceType": kind,
                "Timestamp": datetime.now(UTC).isoformat(),
                "ResourceStatus": status,
            },
        )


class Account(Protocol):
    """What is the account's and not a stack's."""

    stacks: dict[str, Deployment]
    layers: dict[str, dict[str, str]]
    versions: dict[str, dict[str, Any]]

    def check_release(self, hook: Resource) -> bool: ...

    def nest(self, name: str, url: str, parameters: dict[str, Any]) -> None: ...

    def next_number(self, name: str) -> int: ...

    def make_bucket(self, name: str) -> None: ...


class Maker:
    """Gives a planned stack's resources their names and fills in references, in the order in which they are needed."""

    def __init__(self, account: Account, stack: Deployment, planned: Stack) -> None:
        self._account = account
        self._stack = stack
        self._planned = planned
        self._before = stack.resources
        self._made: dict[str, Resource] = {}

    def make(self) -> bool:
        """Make everything; False if CodeDeploy's hook refuses the new versions: the stack then stays what it was."""
        for logical in self._planned.resources:
            made = self._resource(logical)
            self._stack.add_event("CREATE_COMPLETE", logical, made.type)
        hooks = {
            policy["CodeDeployLambdaAliasUpdate"]["BeforeAllowTrafficHook"]
            for logical, planned in self._planned.resources.items()
            if (policy := planned.get("UpdatePolicy")) and self._moves(logical)
        }
        if not all(self._account.check_release(self._resource(hook.strip("${}"))) for hook in hooks):
            return False
        self._stack.resources = self._made
        self._finish_outputs()
        return True

    def _moves(self, alias: str) -> bool:
        before, now = self._before.get(alias), self._made[alias]
        return before is not None and before.properties["FunctionVersion"] != now.properties["FunctionVersion"]

    def _finish_outputs(self) -> None:
        self._stack.outputs = {key: str(self._filled(output["Value"])) for key, output in self._planned.outputs.items()}

    def _resource(self, logical: str) -> Resource:
        if logical in self._made:
            return self._made[logical]
        planned = self._planned.resources[logical]
        properties = self._filled(planned.get("Properties", {}))
        before = self._before.get(logical)
        kind = planned["Type"]
        name = before.name if before else self._name(logical, kind, properties)
        resource = Resource(kind, name, properties, planned.get("DeletionPolicy", "").startswith("Retain"))
        self._made[logical] = resource
        if kind == "AWS::Lambda::Version":
            # One is never changed: another release is a version of another logical id.
            function = self._function(properties["FunctionName"])
            resource.number = before.number if before else self._account.next_number(function.name)
            if not before:
                self._account.versions[_attribute(resource, "")] = function.properties
        elif kind == "AWS::Lambda::LayerVersion":
            resource.number = before.number if before else self._account.next_number(name)
            self._account.layers[_attribute(resource, "")] = properties["Content"]
        elif kind == "AWS::S3::Bucket" and not before:
            self._account.make_bucket(name)
        elif kind == "AWS::CloudFormation::Stack":
            self._account.nest(name, properties["TemplateURL"], properties.get("Parameters", {}))
        return resource

    def _function(self, name: str) -> Resource:
        return next(r for r in self._made.values() if (r.type, r.name) == ("AWS::Lambda::Function", name))

    def _name(self, logical: str, kind: str, properties: dict[str, Any]) -> str:
        short = kind.rpartition("::")[2]
        own = properties.get("LayerName" if short == "LayerVersion" else f"{short}Name")
        if own and short not in ("Version", "Alias"):
            return str(own)
        unique = suffix(self._stack.id + logical)
        if kind == "AWS::ApiGatewayV2::Api":
            return unique
        name = f"{self._stack.name}-{logical}-{unique}"
        return name.lower() if kind == "AWS::S3::Bucket" else name

    def _filled(self, node: Any) -> Any:
        if isinstance(node, str):
            return REFERENCE.sub(lambda found: self._reference(found[1]), node)
        if isinstance(node, dict):
            return {key: self._filled(part) for key, part in node.items()}
        return [self._filled(part) for part in node] if isinstance(node, list) else node

    def _reference(self, reference: str) -> str:
        pseudo = {
            "AWS::Region": REGION,
            "AWS::AccountId": ACCOUNT,
            "AWS::Partition": "aws",
            "AWS::URLSuffix": "amazonaws.com",
            "AWS::StackName": self._stack.name,
            "AWS::StackId": self._stack.id,
        }
        if reference in pseudo:
            return pseudo[reference]
        logical, _, attribute = reference.partition(".")
        made = self._resource(logical)
        if attribute.startswith("Outputs."):
            return self._account.stacks[made.name].outputs[attribute.removeprefix("Outputs.")]
        return _attribute(made, attribute)


def _attribute(made: Resource, attribute: str) -> str:
    """What `Ref`, or `GetAtt` with an attribute, yields."""
    if made.type == "AWS::Lambda::Version":
        number = str(made.number)
        return number if attribute == "Version" else _function_arn(made.properties["FunctionName"], number)
    if made.type == "AWS::Lambda::Alias":
        return _function_arn(made.properties["FunctionName"], made.properties["Name"])
    if made.type == "AWS::Lambda::LayerVersion":
        return arn("lambda", f"layer:{made.name}:{made.number}")
    if made.type == "AWS::Lambda::Function":
        return _function_arn(made.name) if attribute == "Arn" else made.name
    if attribute == "Arn" or (not attribute and made.type in REFERRED_BY_ARN):
        return arn(made.type.split("::")[1].lower(), made.name)
    return f"{made.name}.{attribute}" if attribute else made.name


def arn(service: str, resource: str) -> str:
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{resource}"


def _function_arn(name: str, qualifier: str = "") -> str:
    return arn("lambda", f"function:{name}" + (f":{qualifier}" if qualifier else ""))


def suffix(text: str) -> str:
    """A suffix that makes a name unique; the same for the same resource."""
    return sha256(text.encode()).hexdigest()[:10]
