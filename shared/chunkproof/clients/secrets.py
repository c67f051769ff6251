"""The services' API keys, from the environment or from one Secrets Manager secret."""

import json
import logging
from collections.abc import Mapping
from functools import cache
from math import inf
from time import monotonic
from typing import Any

from pydantic import SecretStr

from chunkproof import deadline
from chunkproof.clients.secrets_extension import SecretsExtension
from chunkproof.errors import NotConfiguredError
from chunkproof.settings import Settings

MAX_AGE_S = 300
MIN_REFETCH_S = 15
NO_DEADLINE_S = 10

log = logging.getLogger(__name__)


class Keys:
    """The headers that carry each service's key.

    The secret is read when a key is first needed. Without `CHUNKPROOF_SECRET_ARN` there is no call to AWS.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def for_qdrant(self) -> Mapping[str, str]:
        """Return the header with Qdrant's key, or none: a server may need no key."""
        key = self._key("QDRANT_API_KEY", self._settings.qdrant_api_key)
        return {"api-key": key} if key else {}

    def for_cohere(self) -> Mapping[str, str]:
        """Return the header with Cohere's key, which is required."""
        key = self._key("COHERE_API_KEY", self._settings.cohere_api_key)
        if not key:
            where = f"in the secret {self._settings.secret_arn}" if self._settings.secret_arn else "set"
            raise NotConfiguredError(f"COHERE_API_KEY is not {where}")
        return {"authorization": f"Bearer {key}"}

    def expire(self) -> None:
        """Read the secret again before the next call, because a service refused a key."""
        if arn := self._settings.secret_arn:
            self._secret(arn).expire()

    def _secret(self, arn: str) -> "_Secret":
        port, token = self._settings.secrets_port, self._settings.session_token
        extension = SecretsExtension(port, token.get_secret_value()) if port and token else None
        return _secret(arn, extension)

    def _key(self, name: str, setting: SecretStr | None) -> str | None:
        arn = self._settings.secret_arn
        key = setting.get_secret_value() if setting else self._secret(arn).read().get(name) if arn else None
        if key:
            check_key(name, key)
        return key


def check_key(name: str, key: str) -> None:
    """Raise `NotConfiguredError` for a key that cannot be sent in a header; the message does not quote it."""
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise NotConfiguredError(f"{name} has a character that no key can have, such as a space or a line break")


class _Secret:
    """One secret, cached for `MAX_AGE_S`."""

    def __init__(self, arn: str, extension: SecretsExtension | None) -> None:
        self._arn = arn
        self._extension = extension
        self._was_refused = False
        self._values: Mapping[str, str] = {}
        self._valid_until = 0.0
        self._fetched_at = -inf

    def expire(self) -> None:
        """Read it again at the next use, unless it was just read: a wrong key must not flood AWS with calls."""
        if monotonic() - self._fetched_at >= MIN_REFETCH_S:
            self._valid_until = 0.0
            self._was_refused = True

    def read(self) -> Mapping[str, str]:
        """Return the secret's keys by name."""
        if monotonic() >= self._valid_until:
            self._fetched_at = monotonic()
            try:
                self._values = self._fetch()
                self._was_refused = False
                self._valid_until = monotonic() + MAX_AGE_S
            except NotConfiguredError as error:
                if not self._values:
                    raise
                log.warning(
                    "the secret could not be read again; the old one is used",
                    extra={"reason": error.message},
                )
                self._valid_until = monotonic() + MIN_REFETCH_S
        return self._values

    def _fetch(self) -> Mapping[str, str]:
        """Read from the extension, unless it returned a key that was refused: it has a cache of its own."""
        extension = None if self._was_refused else self._extension
        text = extension.read(self._arn, _seconds_left() / 2) if extension else None
        return _fetch_from_aws(self._arn) if text is None else _check(self._arn, _parse(self._arn, text))


@cache
def _secret(arn: str, extension: SecretsExtension | None) -> _Secret:
    return _Secret(arn, extension)


def clear_secret_cache() -> None:
    """Read every secret again when it is next needed."""
    _secret.cache_clear()


def _fetch_from_aws(arn: str) -> Mapping[str, str]:
    from aws_lambda_powertools.utilities.parameters import SecretsProvider
    from aws_lambda_powertools.utilities.parameters.exceptions import (
        GetParameterError,
        TransformParameterError,
    )
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    left = _seconds_left()
    config = Config(connect_timeout=left, read_timeout=left, retries={"total_max_attempts": 1})

    def get() -> Any:
        return SecretsProvider(boto_config=config).get(arn, transform="json", force_fetch=True)

    try:
        # botocore's timeouts apply to the connect and to each read; its DNS lookup has none.
        secret = deadline.run_with_timeout(get, left)
    except TimeoutError:
        raise NotConfiguredError(f"The secret {arn} could not be read in time") from None
    except TransformParameterError:
        raise NotConfiguredError(f"The secret {arn} is not JSON") from None
    except (GetParameterError, BotoCoreError) as error:
        raise NotConfiguredError(f"The secret {arn} could not be read ({_reason(error)})") from None
    return _check(arn, secret)


def _seconds_left() -> float:
    """Return the seconds that reading a secret may take."""
    budget = deadline.current()
    return max(0.05, budget.remaining_ms() / 1000) if budget else NO_DEADLINE_S


def _parse(arn: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise NotConfiguredError(f"The secret {arn} is not JSON") from None


def _check(arn: str, secret: Any) -> Mapping[str, str]:
    if not isinstance(secret, dict) or not all(isinstance(value, str) for value in secret.values()):
        raise NotConfiguredError(f"The secret {arn} is not a JSON object of strings")
    return secret


def _reason(error: Exception) -> str:
    """Return AWS's error code or the type of the error, but no message: it could quote the secret."""
    cause = error.__context__ if error.__context__ is not None else error
    response = getattr(cause, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return str(code or type(cause).__name__)
