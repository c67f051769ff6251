"""AWS as a terminal needs it: a stack, its metrics, a secret. Failures name what AWS said and what to check."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from chunkproof.clients.secrets import check_key
from chunkproof.errors import InvalidParameterError, NotConfiguredError, UnavailableError

_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")


class AwsError(UnavailableError):
    """AWS could not be asked, or refused."""

    code = "AWS_FAILED"


@dataclass(frozen=True)
class Stack:
    """What a deployed stack says of itself."""

    name: str
    status: str
    outputs: Mapping[str, str]
    parameters: Mapping[str, str]


@dataclass(frozen=True)
class MetricQuery:
    """One statistic of one metric, for every `period` seconds."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    stat: str
    period: int


Points = list[tuple[datetime, float]]


def find_stack(name: str) -> Stack:
    """The stack of this name, which must be one of Chunkproof's."""
    if not name.strip():  # to AWS, no name means all stacks
        raise InvalidParameterError("--stack must name a stack")
    with translate_aws_errors("cloudformation:DescribeStacks"):
        try:
            found = aws_client("cloudformation").describe_stacks(StackName=name)["Stacks"][0]
        except _botocore().ClientError as error:
            if "does not exist" in str(error):  # AWS has no code of its own for it
                raise InvalidParameterError(f"There is no stack {name} in this account and region") from None
            raise
    outputs = {output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", [])}
    if not {"ApiUrl", "Collection", "Authorization"} <= set(outputs):
        raise InvalidParameterError(
            f"Stack {name} ({found['StackStatus']}) is not Chunkproof's: it has no ApiUrl"
        )
    parameters = {item["ParameterKey"]: item["ParameterValue"] for item in found.get("Parameters", [])}
    return Stack(name, found["StackStatus"], outputs, parameters)


def fetch_metric_data(
    queries: Iterable[MetricQuery], start: datetime, end: datetime
) -> dict[MetricQuery, Points]:
    """What CloudWatch has for each of up to 500 queries; nothing for a metric that nobody wrote."""
    by_id = {f"q{number}": query for number, query in enumerate(dict.fromkeys(queries))}
    found: dict[MetricQuery, Points] = {query: [] for query in by_id.values()}
    asked = [_as_asked(id_, query) for id_, query in by_id.items()]
    with translate_aws_errors("cloudwatch:GetMetricData"):
        pages = aws_client("cloudwatch").get_paginator("get_metric_data")
        for page in pages.paginate(MetricDataQueries=asked, StartTime=start, EndTime=end):
            for result in page["MetricDataResults"]:
                if result["StatusCode"] not in ("Complete", "PartialData"):  # partial: the next page goes on
                    raise AwsError(
                        f"CloudWatch could not tell {by_id[result['Id']].name}: {result['StatusCode']}"
                    )
                found[by_id[result["Id"]]] += zip(result["Timestamps"], result["Values"], strict=True)
    return found


def _as_asked(id_: str, query: MetricQuery) -> dict[str, Any]:
    metric = {
        "Namespace": query.namespace,
        "MetricName": query.name,
        "Dimensions": [{"Name": name, "Value": value} for name, value in query.dimensions],
    }
    return {"Id": id_, "MetricStat": {"Metric": metric, "Period": query.period, "Stat": query.stat}}


def store_secret(name: str, keys: dict[str, str], kms_key: str | None) -> str:
    """Write the keys, as a new secret or into the one there is; returns its ARN.

    A key that is not given stays as it was.
    """
    given = {key: value for key, value in keys.items() if value}
    if not given:
        raise InvalidParameterError("No key was given")
    for key, value in given.items():
        check_key(key, value)
    secrets = aws_client("secretsmanager")
    encryption: dict[str, Any] = {"KmsKeyId": kms_key} if kms_key else {}
    with translate_aws_errors("secretsmanager:CreateSecret, GetSecretValue and UpdateSecret"):
        try:
            return str(secrets.create_secret(Name=name, SecretString=json.dumps(given), **encryption)["ARN"])
        except secrets.exceptions.ResourceExistsException:
            kept = _read_object(secrets.get_secret_value(SecretId=name).get("SecretString"))
            content = json.dumps({**kept, **given})
            return str(secrets.update_secret(SecretId=name, SecretString=content, **encryption)["ARN"])


def _read_object(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidParameterError(
            "The secret of that name holds something else than a JSON object: choose another"
        )
    return found


def aws_client(service: str) -> Any:
    """boto3's client of a service; what is not configured is said in our words."""
    import boto3

    try:
        return boto3.client(service)
    except _botocore().NoRegionError:
        raise NotConfiguredError("No AWS region is configured: set AWS_DEFAULT_REGION") from None
    except _botocore().BotoCoreError as error:
        raise AwsError(f"AWS could not be asked: {error}") from None


@contextmanager
def translate_aws_errors(needed: str) -> Iterator[None]:
    """Failures of AWS inside the block as ours; a refusal names the permission that it needs."""
    try:
        yield
    except _botocore().ClientError as error:
        said = error.response.get("Error", {})
        hint = f"; the credentials need {needed}" if said.get("Code") in _DENIED else ""
        raise AwsError(f"AWS refused ({said.get('Code')}): {said.get('Message')}{hint}") from None
    except _botocore().NoCredentialsError:
        raise NotConfiguredError(
            "There are no AWS credentials: configure them (aws configure), or set AWS_PROFILE"
        ) from None
    except _botocore().BotoCoreError as error:
        raise AwsError(f"AWS could not be asked: {error}") from None


def _botocore() -> Any:
    import botocore.exceptions

    return botocore.exceptions
