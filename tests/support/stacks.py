"""CloudFormation as far as `sam deploy` and `sam delete` ask for it.

Templates go through SAM's own translator and through `support.template`, which refuses what CloudFormation refuses.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from support.resources import REGION, Deployment, Maker, Resource, arn, suffix
from support.template import (
    RefusedError,
    Stack,
    failed_assertions,
    parameter_values,
    parse,
    resolve,
    translate,
)

SAM = "AWS::Serverless-2016-10-31"
NOTHING_NEW = "The submitted information didn't contain changes. Submit different information to create a change set."
Form = dict[str, str]


class AwsRefusal(Exception):  # noqa: N818 - an answer, not a fault of this code
    """What CloudFormation answers instead."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class ChangeSet:
    """A requested change and its effects."""

    name: str
    stack: str
    kind: str
    written: str
    parameters: dict[str, str]
    tags: dict[str, str]
    planned: Stack
    status: str = "CREATE_COMPLETE"


class CloudFormation:
    """The stacks of an account. `read` gets a template by its address; `buckets` makes and removes buckets.

    `run_hook` invokes the function that checks a release, and says whether it let the new versions have traffic.
    """

    def __init__(
        self,
        read: Callable[[str], str],
        buckets: Callable[[str, bool], None],
        run_hook: Callable[[dict[str, Any]], bool],
    ) -> None:
        self.stacks: dict[str, Deployment] = {}
        # Where their content is, by ARN: a function keeps its layers even when a stack has them no more.
        self.layers: dict[str, dict[str, str]] = {}
        # The properties that a function had when each version was published, by the version's ARN.
        self.versions: dict[str, dict[str, Any]] = {}
        self._read = read
        self._run_hook = run_hook
        self._buckets = buckets
        self._change_sets: dict[str, ChangeSet] = {}
        self._numbers: dict[str, int] = {}  # versions and layer versions, which are never given twice

    def answer(self, form: Form) -> tuple[int, str]:
        """A request's answer, as a status and XML."""
        action = form["Action"]
        method = "_" + re.sub(r"(?<!^)([A-Z])", r"_\1", action).lower()
        try:
            if not hasattr(self, method):
                raise AwsRefusal("InvalidAction", f"{action} is not understood here")
            result = getattr(self, method)(form)
        except AwsRefusal as refusal:
            said = _xml({"Error": {"Type": "Sender", "Code": refusal.code, "Message": str(refusal)}})
            return 400, f"<ErrorResponse>{said}</ErrorResponse>"
        inner = _xml({f"{action}Result": result or {}, "ResponseMetadata": {"RequestId": "r"}})
        return 200, f"<{action}Response>{inner}</{action}Response>"

    def resources(self, kind: str) -> Iterator[Resource]:
        """Those of a type, in all stacks."""
        for stack in self.stacks.values():
            yield from (resource for resource in stack.resources.values() if resource.type == kind)

    # The actions that sam calls.

    def _describe_stacks(self, form: Form) -> dict[str, Any]:
        stack = self._named(form["StackName"])
        return {
            "Stacks": [
                {
                    "StackName": stack.name,
                    "StackId": stack.id,
                    "CreationTime": stack.events[-1]["Timestamp"],
                    "StackStatus": stack.status,
                    "EnableTerminationProtection": "false",
                    "Parameters": [{"ParameterKey": k, "ParameterValue": v} for k, v in stack.parameters.items()],
                    "Outputs": [{"OutputKey": k, "OutputValue": v} for k, v in stack.outputs.items()],
                    "Tags": [{"Key": k, "Value": v} for k, v in stack.tags.items()],
                }
            ]
        }

    def _describe_stack_events(self, form: Form) -> dict[str, Any]:
        return {"StackEvents": self._named(form["StackName"]).events}

    def _describe_stack_resource(self, form: Form) -> dict[str, Any]:
        stack, logical = self._named(form["StackName"]), form["LogicalResourceId"]
        if logical not in stack.resources:
            raise AwsRefusal("ValidationError", f"Resource {logical} does not exist for stack {stack.name}")
        return {"StackResourceDetail": {"PhysicalResourceId": stack.resources[logical].name}}

    def _get_template(self, form: Form) -> dict[str, Any]:
        return {"TemplateBody": self._named(form["StackName"]).written}

    def _get_template_summary(self, form: Form) -> dict[str, Any]:
        declared = parse(self._named(form["StackName"]).written).get("Parameters", {})
        return {"Parameters": [{"ParameterKey": name} for name in declared]}

    def _create_change_set(self, form: Form) -> dict[str, Any]:
        name, kind = form["StackName"], form["ChangeSetType"]
        before = self.stacks.get(name)
        if (kind == "CREATE") == (before is not None and before.status != "REVIEW_IN_PROGRESS"):
            raise AwsRefusal("ValidationError", f"Stack [{name}] does not suit a change set of type {kind}")
        stack = before or Deployment(name, arn("cloudformation", f"stack/{name}/{suffix(name)}"))
        text = form.get("TemplateBody") or self._read(form["TemplateURL"])
        given = _given(form, stack.parameters)
        planned = self._plan(text, given, {v for k, v in form.items() if k.startswith("Capabilities.member")})
        id_ = arn("cloudformation", f"changeSet/{form['ChangeSetName']}/{suffix(name)}")
        tags = {tag["Key"]: tag["Value"] for tag in _members(form, "Tags")}
        change = ChangeSet(form["ChangeSetName"], name, kind, text, given, tags, planned)
        if kind == "UPDATE" and (text, _all_parameters(text, given)) == (stack.written, stack.parameters):
            change.status = "FAILED"
        if before is None:
            self.stacks[name] = stack
            stack.add_event("REVIEW_IN_PROGRESS")
        self._change_sets[id_] = self._change_sets[change.name] = change
        return {"Id": id_, "StackId": stack.id}

    def _describe_change_set(self, form: Form) -> dict[str, Any]:
        change = self._change_sets[form["ChangeSetName"]]
        before = self.stacks[change.stack].resources
        changes = [
            {
                "Type": "Resource",
                "ResourceChange": {
                    "Action": "Modify" if logical in before else "Add",
                    "LogicalResourceId": logical,
                    "ResourceType": resource["Type"],
                },
            }
            for logical, resource in change.planned.resources.items()
        ]
        failed = change.status == "FAILED"
        return {
            "ChangeSetName": change.name,
            "StackName": change.stack,
            "Status": change.status,
            "StatusReason": NOTHING_NEW if failed else "",
            "ExecutionStatus": "UNAVAILABLE" if failed else "AVAILABLE",
            "Changes": [] if failed else changes,
        }

    def _execute_change_set(self, form: Form) -> None:
        change = self._change_sets[form["ChangeSetName"]]
        stack = self.stacks[change.stack]
        stack.add_event(f"{change.kind}_IN_PROGRESS")
        before = (stack.written, stack.tags, stack.parameters)
        stack.written, stack.tags = change.written, change.tags
        stack.parameters = _all_parameters(change.written, change.parameters)
        if Maker(self, stack, change.planned).make():
            stack.add_event(f"{change.kind}_COMPLETE")
        else:
            stack.written, stack.tags, stack.parameters = before
            stack.add_event("UPDATE_ROLLBACK_COMPLETE")

    def _delete_stack(self, form: Form) -> None:
        self._remove(self._named(form["StackName"]))

    # What comes of it.

    def _named(self, name: str) -> Deployment:
        for stack in self.stacks.values():
            if name in (stack.name, stack.id):
                return stack
        raise AwsRefusal("ValidationError", f"Stack with id {name} does not exist")

    def _plan(self, text: str, given: dict[str, str], capabilities: set[str]) -> Stack:
        written = parse(text)
        try:
            values = parameter_values(written, given)
            if failed := failed_assertions(written, values):
                raise RefusedError(failed[0])
            plain = written if written.get("Transform") != SAM else translate(written, given, REGION)
            planned = resolve(plain, values)
        except RefusedError as refused:
            raise AwsRefusal("ValidationError", f"Template error: {refused}") from None
        if missing := _needed(planned) - capabilities:
            raise AwsRefusal("InsufficientCapabilitiesException", f"Requires capabilities : {sorted(missing)}")
        return planned

    def nest(self, name: str, url: str, parameters: dict[str, Any]) -> None:
        """A stack inside another, made or updated."""
        nested = self.stacks.setdefault(name, Deployment(name, arn("cloudformation", f"stack/{name}/{suffix(name)}")))
        nested.written, nested.parameters = self._read(url), {k: str(v) for k, v in parameters.items()}
        everything = {"CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"}
        Maker(self, nested, self._plan(nested.written, nested.parameters, everything)).make()
        nested.add_event("CREATE_COMPLETE")

    def check_release(self, hook: Resource) -> bool:
        """Whether the function that CodeDeploy calls before traffic moves lets it."""
        return self._run_hook(hook.properties)

    def next_number(self, name: str) -> int:
        """The number of a new version of a function or layer."""
        self._numbers[name] = self._numbers.get(name, 0) + 1
        return self._numbers[name]

    def last_number(self, name: str) -> int:
        """The number of the newest version of a function or layer."""
        return self._numbers.get(name, 0)

    def make_bucket(self, name: str) -> None:
        """A real one: things are put into it."""
        self._buckets(name, True)

    def _remove(self, stack: Deployment) -> None:
        for resource in stack.resources.values():
            if resource.type == "AWS::S3::Bucket" and not resource.retained:
                self._buckets(resource.name, False)
            elif resource.type == "AWS::CloudFormation::Stack":
                self._remove(self.stacks[resource.name])
        del self.stacks[stack.name]


def _needed(planned: Stack) -> set[str]:
    """The capabilities that CloudFormation wants acknowledged."""
    needed: set[str] = set()
    for resource in planned.resources.values():
        if resource["Type"].startswith("AWS::IAM::"):
            own = {"RoleName", "ManagedPolicyName"} & set(resource["Properties"])
            needed.add("CAPABILITY_NAMED_IAM" if own else "CAPABILITY_IAM")
        elif resource["Type"] == "AWS::CloudFormation::Stack":
            needed.add("CAPABILITY_AUTO_EXPAND")
    return needed


def _all_parameters(text: str, given: dict[str, str]) -> dict[str, str]:
    """A stack keeps its defaults as if they had been given: an update that names them no more does not change them."""
    declared = parse(text).get("Parameters", {})
    return {name: given.get(name, str(rules.get("Default", ""))) for name, rules in declared.items()}


def _given(form: Form, before: dict[str, str]) -> dict[str, str]:
    return {
        item["ParameterKey"]: before[item["ParameterKey"]]
        if item.get("UsePreviousValue") == "true"
        else item["ParameterValue"]
        for item in _members(form, "Parameters")
    }


def _members(form: Form, name: str) -> list[dict[str, str]]:
    """A list of structures, such as `Tags.member.1.Key`."""
    found: dict[int, dict[str, str]] = {}
    for key, value in form.items():
        if match := re.fullmatch(rf"{name}\.member\.(\d+)\.(\w+)", key):
            found.setdefault(int(match[1]), {})[match[2]] = value
    return [found[number] for number in sorted(found)]


def _xml(node: Any) -> str:
    if isinstance(node, dict):
        return "".join(f"<{key}>{_xml(part)}</{key}>" for key, part in node.items())
    if isinstance(node, list):
        return "".join(f"<member>{_xml(part)}</member>" for part in node)
    return escape(str(node))
