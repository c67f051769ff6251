"""The services' keys: from the environment, or from one Secrets Manager secret, read when first needed."""

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
RETRY_S = 15
NO_DEADLINE_S = 10

log = logging.getLogger(__name__)


class Keys:
    """What each service wants in its headers; an empty `CHUNKPROOF_SECRET_ARN` means no call to AWS."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def for_qdrant(self) -> Mapping[str, str]:
        """The key of Qdrant, if it has one."""
        key = self._key("QDRANT_API_KEY", self._settings.qdrant_api_key)
        return {"api-key": key} if key else {}

    def for_cohere(self) -> Mapping[str, str]:
        """The key of Cohere, which always wants one."""
        key = self._key("COHERE_API_KEY", self._settings.cohere_api_key)
        if not key:
            where = f"in the secret {self._settings.secret_arn}" if self._settings.secret_arn else "set"
            raise NotConfiguredError(f"COHERE_API_KEY is not {where}")
        return {"authorization": f"Bearer {key}"}

    def forget(self) -> None:
        """A key was refused: read the secret again before the next call, past its cache."""
        if arn := self._settings.secret_arn:
            self._secret(arn).expire()

    def _secret(self, arn: str) -> "_Secret":
        port, token = self._settings.secrets_port, self._settings.session_token
        extension = SecretsExtension(port, token.get_secret_value()) if port and token else None
        return _secret(arn, extension)

    def _key(self, name: str, given: SecretStr | None) -> str | None:
        arn = self._settings.secret_arn
        key = given.get_secret_value() if given else self._secret(arn).read().get(name) if arn else None
        if key:
            check_key(name, key)
        return key


def check_key(name: str, key: str) -> None:
    """Refuse a key that no header could carry; the message does not quote it."""
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise NotConfiguredError(f"{name} has a character that no key has: a space, a line end or the like")


class _Secret:
    """One secret, read again when it has grown old."""

    def __init__(self, arn: str, extension: SecretsExtension | None) -> None:
        self._arn = arn
        self._extension = extension
        self._was_refused = False
        self._read: Mapping[str, str] = {}
        self._good_until = 0.0
        self._read_at = -inf

    def expire(self) -> None:
        """Let it count as old, unless it was read a moment ago: a wrong key must not flood AWS with calls."""
        if monotonic() - self._read_at >= RETRY_S:
            self._good_until = 0.0
            self._was_refused = True

    def read(self) -> Mapping[str, str]:
        """What the secret holds."""
        if monotonic() >= self._good_until:
            self._read_at = monotonic()
            try:
                self._read = self._fetched()
                self._was_refused = False
                self._good_until = monotonic() + MAX_AGE_S
            except NotConfiguredError as error:
                if not self._read:
                    raise
                log.warning(
                    "the secret could not be read again; the old one stays", extra={"reason": error.message}
                )
                self._good_until = monotonic() + RETRY_S
        return self._read

    def _fetched(self) -> Mapping[str, str]:
        """From the extension, unless it gave a key that was refused: it has a cache of its own."""
        extension = None if self._was_refused else self._extension
        text = extension.read(self._arn, _left() / 2) if extension else None
        return _fetch(self._arn) if text is None else _checked(self._arn, _parsed(self._arn, text))


@cache
def _secret(arn: str, extension: SecretsExtension | None) -> _Secret:
    return _Secret(arn, extension)


def forget_secrets() -> None:
    """Read every secret again when it is next needed."""
    _secret.cache_clear()


def _fetch(arn: str) -> Mapping[str, str]:
    from aws_lambda_powertools.utilities.parameters import SecretsProvider
    from aws_lambda_powertools.utilities.parameters.exceptions import (
        GetParameterError,
        TransformParameterError,
    )
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    left = _left()
    config = Config(connect_timeout=left, read_timeout=left, retries={"total_max_attempts": 1})

    def get() -> Any:
        return SecretsProvider(boto_config=config).get(arn, transform="json", force_fetch=True)

    try:
        # AWS's timeouts hold for connecting and for each read, and for looking up the host there is none.
        secret = deadline.run_with_timeout(get, left)
    except TimeoutError:
        raise NotConfiguredError(f"The secret {arn} could not be read in time") from None
    except TransformParameterError:
        raise NotConfiguredError(f"The secret {arn} is not JSON") from None
    except (GetParameterError, BotoCoreError) as error:
        raise NotConfiguredError(f"The secret {arn} could not be read ({_reason(error)})") from None
    return _checked(arn, secret)


def _left() -> float:
    """Seconds for reading a secret."""
    budget = deadline.current()
    return max(0.05, budget.remaining_ms() / 1000) if budget else NO_DEADLINE_S


def _parsed(arn: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise NotConfiguredError(f"The secret {arn} is not JSON") from None


def _checked(arn: str, secret: Any) -> Mapping[str, str]:
    if not isinstance(secret, dict) or not all(isinstance(value, str) for value in secret.values()):
        raise NotConfiguredError(f"The secret {arn} is not a JSON object of strings")
    return secret


def _reason(error: Exception) -> str:
    """AWS's code for it, or the kind of failure: never a text that could quote the secret."""
    cause = error.__context__ if error.__context__ is not None else error
    answer = getattr(cause, "response", None)
    code = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else None
    return str(code or type(cause).__name__)
