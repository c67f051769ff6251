"""The services' keys: from the environment, or from one Secrets Manager secret, read when first needed."""

from collections.abc import Mapping
from typing import Any

from chunkproof.errors import NotConfiguredError
from chunkproof.settings import Settings

MAX_AGE_S = 300


class Keys:
    """What each service wants in its headers; an empty `CHUNKPROOF_SECRET_ARN` means no call to AWS."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def for_qdrant(self) -> Mapping[str, str]:
        """The key of Qdrant, if it has one."""
        given = self._settings.qdrant_api_key
        key = given.get_secret_value() if given else self._secret().get("QDRANT_API_KEY")
        return {"api-key": key} if key else {}

    def for_cohere(self) -> Mapping[str, str]:
        """The key of Cohere, which always wants one."""
        given = self._settings.cohere_api_key
        key = given.get_secret_value() if given else self._secret().get("COHERE_API_KEY")
        if not key:
            where = f"in the secret {self._settings.secret_arn}" if self._settings.secret_arn else "set"
            raise NotConfiguredError(f"COHERE_API_KEY is not {where}")
        return {"authorization": f"Bearer {key}"}

    def _secret(self) -> Mapping[str, str]:
        arn = self._settings.secret_arn
        return _read_secret(arn) if arn else {}


def _read_secret(arn: str) -> Mapping[str, str]:
    from aws_lambda_powertools.utilities import parameters
    from aws_lambda_powertools.utilities.parameters.exceptions import (
        GetParameterError,
        TransformParameterError,
    )

    try:
        secret: Any = parameters.get_secret(arn, transform="json", max_age=MAX_AGE_S)
    except TransformParameterError:
        raise NotConfiguredError(f"The secret {arn} is not JSON") from None
    except GetParameterError as error:
        cause = error.__context__ or error
        response = getattr(cause, "response", {})
        code = response.get("Error", {}).get("Code") or type(cause).__name__
        raise NotConfiguredError(f"The secret {arn} could not be read ({code})") from None
    if not isinstance(secret, dict) or not all(isinstance(value, str) for value in secret.values()):
        raise NotConfiguredError(f"The secret {arn} is not a JSON object of strings")
    return secret
