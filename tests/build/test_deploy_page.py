"""docs/guides/deploy.md has what a deployment needs besides its commands."""

import re

from support.template import ROOT, whole_stack

PAGE = (ROOT / "docs" / "guides" / "deploy.md").read_text("utf-8")
# Where IAM's prefix is not the service's name in CloudFormation.
PREFIXES = {"ApiGatewayV2": "apigateway", "StepFunctions": "states"}
EVERYTHING = {"Audit": "true", "Suite": "true", "GradualRollout": "true"}


def test_the_deployers_permissions_cover_every_service_of_the_stack() -> None:
    services = {resource["Type"].split("::")[1] for resource in whole_stack(**EVERYTHING).resources.values()}
    listed = set(re.findall(r"`([a-z0-9]+):` [A-Z]", PAGE))
    assert {PREFIXES.get(name, name.lower()) for name in services} <= listed


def test_a_network_without_internet_has_its_endpoints_listed() -> None:
    section = PAGE.split("\n## In a VPC\n")[1].split("\n## ")[0]
    found = set(re.findall(r"com\.amazonaws\.REGION\.([\w-]+)", section))
    assert found == {"secretsmanager", "s3", "bedrock-runtime", "xray"}
