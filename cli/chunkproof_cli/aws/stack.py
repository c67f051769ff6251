"""Stacks, metrics, secrets and published collections in AWS. Errors contain AWS's message and what to check."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from chunkproof.base.errors import InvalidParameterError, NotConfiguredError, UnavailableError
from chunkproof.base.request import Deadline
from chunkproof.collection.payload_map import parse_json
from chunkproof.net.secrets import check_key
from chunkproof.stores.published import Version, list_version
from chunkproof.stores.published_store import SPARE_BYTES
from chunkproof.stores.qdrant import open_edge_store

_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")


class AwsError(UnavailableError):
    """A call to AWS failed or was refused."""

    code = "AWS_FAILED"


@dataclass(frozen=True)
class Stack:
    """The state, outputs and parameters of a deployed stack."""

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
    """Describe the stack of this name, which must be one of Chunkproof's."""
    if not name.strip():  # without a name, AWS describes all stacks
        raise InvalidParameterError("--stack is empty; name a stack")
    with translate_aws_errors("cloudformation:DescribeStacks"):
        try:
            stack = aws_client("cloudformation").describe_stacks(StackName=name)["Stacks"][0]
        except _botocore().ClientError as error:
            if "does not exist" in str(error):  # AWS has no error code for it
                raise InvalidParameterError(
                    f"--stack {name}: there is no such stack in this AWS account and region"
                ) from None
            raise
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}
    if not {"ApiUrl", "Collection", "Authorization"} <= set(outputs):
        raise InvalidParameterError(
            f"--stack {name} ({stack['StackStatus']}): not a Chunkproof stack, it has no output ApiUrl"
        )
    parameters = {item["ParameterKey"]: item["ParameterValue"] for item in stack.get("Parameters", [])}
    return Stack(name, stack["StackStatus"], outputs, parameters)


def fetch_metric_data(queries: Iterable[MetricQuery], start: datetime, end: datetime) -> dict[MetricQuery, Points]:
    """Return the data points of up to 500 queries; a metric without data has none."""
    by_id = {f"q{number}": query for number, query in enumerate(dict.fromkeys(queries))}
    points: dict[MetricQuery, Points] = {query: [] for query in by_id.values()}
    data_queries = [_to_data_query(id_, query) for id_, query in by_id.items()]
    with translate_aws_errors("cloudwatch:GetMetricData"):
        pages = aws_client("cloudwatch").get_paginator("get_metric_data")
        for page in pages.paginate(MetricDataQueries=data_queries, StartTime=start, EndTime=end):
            for result in page["MetricDataResults"]:
                if result["StatusCode"] not in ("Complete", "PartialData"):  # partial: the next page continues
                    raise AwsError(
                        f"CloudWatch returned no data for {by_id[result['Id']].name}: {result['StatusCode']}"
                    )
                points[by_id[result["Id"]]] += zip(result["Timestamps"], result["Values"], strict=True)
    return points


def _to_data_query(id_: str, query: MetricQuery) -> dict[str, Any]:
    metric = {
        "Namespace": query.namespace,
        "MetricName": query.name,
        "Dimensions": [{"Name": name, "Value": value} for name, value in query.dimensions],
    }
    return {"Id": id_, "MetricStat": {"Metric": metric, "Period": query.period, "Stat": query.stat}}


def store_secret(name: str, keys: dict[str, str], kms_key: str | None) -> str:
    """Write the keys to a new or existing secret and return its ARN.

    An existing secret keeps the keys that are not in `keys`.
    """
    new = {key: value for key, value in keys.items() if value}
    if not new:
        raise InvalidParameterError("No key was entered: enter at least one")
    for key, value in new.items():
        check_key(key, value)
    secrets = aws_client("secretsmanager")
    encryption: dict[str, Any] = {"KmsKeyId": kms_key} if kms_key else {}
    with translate_aws_errors("secretsmanager:CreateSecret, GetSecretValue and UpdateSecret"):
        try:
            return str(secrets.create_secret(Name=name, SecretString=json.dumps(new), **encryption)["ARN"])
        except secrets.exceptions.ResourceExistsException:
            old = parse_json(secrets.get_secret_value(SecretId=name).get("SecretString") or "{}")
            if not isinstance(old, dict):
                another = "choose another name with --name"
                raise InvalidParameterError(f"The secret exists and is not a JSON object: {another}") from None
            content = json.dumps({**old, **new})
            return str(secrets.update_secret(SecretId=name, SecretString=content, **encryption)["ARN"])


def aws_client(service: str) -> Any:
    """Create boto3's client of a service."""
    import boto3

    with translate_aws_errors():
        return boto3.client(service)


@contextmanager
def translate_aws_errors(permissions: str = "") -> Iterator[None]:
    """Raise botocore's errors as `AwsError`; a refusal names the permissions that the call needs."""
    try:
        yield
    except _botocore().ClientError as error:
        detail = error.response.get("Error", {})
        hint = f"; the credentials need {permissions}" if detail.get("Code") in _DENIED else ""
        raise AwsError(f"AWS refused ({detail.get('Code')}): {detail.get('Message')}{hint}") from None
    except _botocore().NoRegionError:
        raise NotConfiguredError("There is no AWS region: set AWS_DEFAULT_REGION") from None
    except _botocore().NoCredentialsError:
        raise NotConfiguredError("There are no AWS credentials: run aws configure, or set AWS_PROFILE") from None
    except _botocore().BotoCoreError as error:
        raise AwsError(f"The call to AWS failed: {error}") from None


def _botocore() -> Any:
    import botocore.exceptions

    return botocore.exceptions


MB = 1 << 20
COUNT_MS = 600_000
# Of a function's memory, what the interpreter and its packages take (docs/guides/edge.md).
BASE_MEMORY_MB = 200


@dataclass(frozen=True)
class FunctionLimits:
    """Disk and memory of a function, in MB, as the template has them."""

    disk_mb: int = 10_240
    memory_mb: int = 1024

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> "FunctionLimits":
        """Read the limits of a deployed stack."""
        return cls(memory_mb=int(parameters.get("MemorySize") or cls.memory_mb))


@contextmanager
def list_locked(data: Path, collection: str) -> Iterator[tuple[Path, Version]]:
    """List the files of a collection, locked against writes of other processes."""
    with closing(open_edge_store(data)) as store:
        points = store.count(collection, (), Deadline(COUNT_MS))  # also repeats an interrupted write
    from chunkproof.stores.edge_folder import locked_files  # where there is no Qdrant Edge, it cannot be imported

    with locked_files(data, collection) as (folder, paths):
        yield folder, list_version(folder, paths, collection, points)


def find_misfit(size: int, limits: FunctionLimits) -> str | None:
    """Explain why a collection of this size does not fit into a function; None if it fits.

    On disk, the next version stands beside the one in use while it is fetched. In memory, the engine maps its files;
    a function whose memory holds them all reads no disk while it searches.
    """
    spare = SPARE_BYTES // MB
    needed_disk = 2 * size // MB + spare
    if needed_disk > limits.disk_mb:
        return (
            f"Two versions of it take {needed_disk:,} MB of disk, and the functions have {limits.disk_mb:,} MB, "
            "which is all that Lambda offers: use a server"
        )
    needed_memory = size // MB + BASE_MEMORY_MB
    if needed_memory > limits.memory_mb:
        rounded = -(-needed_memory // 256) * 256
        too_much = ", which is more than Lambda offers: use a server" if rounded > 10_240 else ""
        return (
            f"It takes {needed_memory:,} MB of memory, and the functions have {limits.memory_mb:,} MB: "
            f"deploy with MemorySize={rounded}{too_much}"
        )
    return None
