"""AWS as a terminal needs it: a stack's outputs, a secret. Failures name what AWS said and what to check."""

import json
from typing import Any

from chunkproof.clients.secrets import check_key
from chunkproof.errors import InvalidParameterError, NotConfiguredError, UnavailableError


class AwsError(UnavailableError):
    """AWS could not be asked, or refused."""

    code = "AWS_FAILED"


def stack_outputs(name: str) -> dict[str, str]:
    """What a deployed stack says of itself."""
    try:
        stack = _client("cloudformation").describe_stacks(StackName=name)["Stacks"][0]
    except _botocore().ClientError as error:
        if "does not exist" in str(error):  # AWS has no code of its own for it
            raise InvalidParameterError(f"There is no stack {name} in this account and region") from None
        raise _refused(error) from None
    except _botocore().BotoCoreError as error:
        raise AwsError(f"AWS could not be asked: {error}") from None
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}
    if not {"ApiUrl", "Collection", "Authorization"} <= set(outputs):
        raise InvalidParameterError(
            f"Stack {name} ({stack['StackStatus']}) is not Chunkproof's: it has no ApiUrl"
        )
    return {**outputs, "StackStatus": stack["StackStatus"]}


def store_secret(name: str, keys: dict[str, str], kms_key: str | None) -> str:
    """Write the keys, as a new secret or into the one there is; returns its ARN.

    A key that is not given stays as it was.
    """
    given = {key: value for key, value in keys.items() if value}
    if not given:
        raise InvalidParameterError("No key was given")
    for key, value in given.items():
        check_key(key, value)
    client = _client("secretsmanager")
    encryption: dict[str, Any] = {"KmsKeyId": kms_key} if kms_key else {}
    try:
        try:
            return str(client.create_secret(Name=name, SecretString=json.dumps(given), **encryption)["ARN"])
        except client.exceptions.ResourceExistsException:
            kept = _read_object(client.get_secret_value(SecretId=name).get("SecretString"))
            content = json.dumps({**kept, **given})
            return str(client.update_secret(SecretId=name, SecretString=content, **encryption)["ARN"])
    except _botocore().ClientError as error:
        raise _refused(error) from None
    except _botocore().BotoCoreError as error:
        raise AwsError(f"AWS could not be asked: {error}") from None


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


def _client(service: str) -> Any:
    import boto3

    try:
        return boto3.client(service)
    except _botocore().NoRegionError:
        raise NotConfiguredError("No AWS region is configured: set AWS_DEFAULT_REGION") from None
    except _botocore().BotoCoreError as error:
        raise AwsError(f"AWS could not be asked: {error}") from None


def _refused(error: Any) -> AwsError:
    said = error.response.get("Error", {})
    return AwsError(f"AWS refused ({said.get('Code')}): {said.get('Message')}")


def _botocore() -> Any:
    import botocore.exceptions

    return botocore.exceptions
