"""The services' API keys, from the environment or from one Secrets Manager secret."""

import json
import logging
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from math import inf
from threading import Lock
from time import monotonic
from typing import Any
from urllib.parse import quote

from pydantic import SecretStr

from chunkproof.base.errors import NotConfiguredError, SecretTimeoutError
from chunkproof.base.request import current, start
from chunkproof.base.settings import Settings

MAX_AGE_S = 300
MIN_REFETCH_S = 15
NO_DEADLINE_S = 10
SOURCE = "secret of CHUNKPROOF_SECRET_ARN"

log = logging.getLogger(__name__)
_building = Lock()  # a session of boto3 builds one client at a time


@dataclass(frozen=True, slots=True)
class SecretsExtension:
    """The extension's port, and the session token that it requires."""

    port: int
    token: str

    def read(self, arn: str, seconds: float) -> str | None:
        """Return the secret's text, or None when the caller should ask Secrets Manager itself."""
        from http.client import HTTPConnection, HTTPException

        connection = HTTPConnection("localhost", self.port, timeout=seconds)
        try:
            path = f"/secretsmanager/get?secretId={quote(arn, safe='')}"
            connection.request("GET", path, headers={"X-Aws-Parameters-Secrets-Token": self.token})
            response = connection.getresponse()
            if response.status == 200:
                return str(json.loads(response.read())["SecretString"])
            reason = f"status {response.status}"
        except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
            reason = type(error).__name__
        finally:
            connection.close()
        log.warning("the secrets extension did not return the secret", extra={"reason": reason})
        return None


class Keys:
    """The headers that carry each service's key.

    The secret is read when a key is first needed. Without `CHUNKPROOF_SECRET_ARN` there is no call to AWS.
    Messages name that setting, and never the secret's ARN, because callers see them.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def for_qdrant(self) -> Mapping[str, str]:
        """Return the header with Qdrant's key, or none: a server may need no key."""
        key = self._key("QDRANT_API_KEY", self._settings.qdrant_api_key)
        return {"api-key": key} if key else {}

    def for_cohere(self) -> Mapping[str, str]:
        """Return the header with Cohere's key, which is required."""
        return self.bearer("COHERE_API_KEY", required=True)

    def bearer(self, name: str, *, required: bool) -> Mapping[str, str]:
        """Return the header with the key of this name; none if it is neither set nor required."""
        key = self._key(name, self._setting(name))
        if not key and required:
            where = f"in the {SOURCE}" if self._settings.secret_arn else "set"
            raise NotConfiguredError(f"{name} is not {where}")
        return {"authorization": f"Bearer {key}"} if key else {}

    def has(self, name: str) -> bool:
        """Whether the environment has the key of this name."""
        return self._setting(name) is not None

    def derive(self, purpose: str) -> bytes:
        """Return a key for this purpose that all processes of a deployment have, made of its services' keys.

        Without any key, it is made of the addresses alone.
        """
        own = self._settings
        keys = [self._key("QDRANT_API_KEY", own.qdrant_api_key), self._key("COHERE_API_KEY", own.cohere_api_key)]
        keys += [self._key("OPENAI_API_KEY", own.openai_api_key)]
        keys += [key.get_secret_value() for key in own.other_keys.values()]
        parts = (purpose, own.qdrant_url, own.published_bucket, own.secret_arn, *keys)
        return sha256("\0".join(part or "" for part in parts).encode()).digest()

    def _setting(self, name: str) -> SecretStr | None:
        settings = self._settings
        named = {"COHERE_API_KEY": settings.cohere_api_key, "OPENAI_API_KEY": settings.openai_api_key}
        return named.get(name) or settings.other_keys.get(name)

    def prepare(self) -> None:
        """Import what reading the secret needs, before the first request; opens no socket."""
        if self._settings.secret_arn and self._is_secret_needed and self._extension() is None:
            _aws_session()

    @property
    def _is_secret_needed(self) -> bool:
        return not (self._settings.qdrant_api_key and self._settings.cohere_api_key)

    def read_early(self) -> None:
        """Begin to read the secret, in a thread, if a key is in it; errors are left to the request that needs one."""
        if (arn := self._settings.secret_arn) and self._is_secret_needed:
            _secret(arn, self._extension()).begin(NO_DEADLINE_S)

    def expire(self) -> None:
        """Read the secret again before the next call, because a service refused a key."""
        if arn := self._settings.secret_arn:
            _secret(arn, self._extension()).expire()

    def _extension(self) -> SecretsExtension | None:
        port, token = self._settings.secrets_port, self._settings.session_token
        return SecretsExtension(port, token.get_secret_value()) if port and token else None

    def _key(self, name: str, setting: SecretStr | None) -> str | None:
        arn = self._settings.secret_arn
        key = setting.get_secret_value() if setting else None
        if setting is None and arn:
            key = _secret(arn, self._extension()).read().get(name)
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
        self._reading: Future[Mapping[str, str]] | None = None
        self._lock = Lock()

    def expire(self) -> None:
        """Read it again at the next use, unless it was just read: a wrong key must not flood AWS with calls."""
        if monotonic() - self._fetched_at >= MIN_REFETCH_S:
            self._valid_until = 0.0
            self._was_refused = True

    def read(self) -> Mapping[str, str]:
        """Return the secret's keys by name."""
        if monotonic() >= self._valid_until:
            try:
                self._values = self._fetch()
                self._was_refused = False
                self._valid_until = monotonic() + MAX_AGE_S
            except (NotConfiguredError, SecretTimeoutError) as error:
                about = {"secret_arn": self._arn, "reason": error.message}
                if not self._values:
                    log.warning("the secret could not be read", extra=about)
                    raise
                log.warning("the secret could not be read again; the old one is used", extra=about)
                self._valid_until = monotonic() + MIN_REFETCH_S
        return self._values

    def begin(self, seconds: float) -> "Future[Mapping[str, str]]":
        """Begin to read it, unless that is under way: threads that need it at the same time share one call.

        In a thread: the timeouts of both clients apply to each read, and a DNS lookup or an import has none.
        """
        with self._lock:
            reading = self._reading
            if reading is None or (reading.done() and reading.exception()):
                self._fetched_at = monotonic()
                reading = self._reading = start(lambda: _check(self._read_text(seconds)))
            return reading

    def _fetch(self) -> Mapping[str, str]:
        budget = current()
        seconds = max(0.05, budget.remaining_ms() / 1000) if budget else NO_DEADLINE_S
        reading = self.begin(seconds)
        try:
            return reading.result(seconds)
        except TimeoutError:
            raise SecretTimeoutError(f"The {SOURCE} could not be read in time") from None
        finally:
            with self._lock:
                self._reading = None if self._reading is reading else self._reading

    def _read_text(self, seconds: float) -> str | bytes:
        """Read from the extension, unless it returned a key that was refused: it has a cache of its own."""
        extension = None if self._was_refused else self._extension
        text = extension.read(self._arn, seconds / 2) if extension else None
        return _read_from_aws(self._arn, seconds) if text is None else text


@cache
def _secret(arn: str, extension: SecretsExtension | None) -> _Secret:
    return _Secret(arn, extension)


def clear_secret_cache() -> None:
    """Read every secret again when it is next needed."""
    _secret.cache_clear()
    _aws_session.cache_clear()


@cache
def _aws_session() -> Any:
    """Import boto3 and load its description of Secrets Manager, which takes longer than the rest of a cold start.

    No credentials are looked up yet: under SnapStart they come from an HTTP endpoint, and not before the restore.
    """
    import boto3
    from botocore.exceptions import BotoCoreError

    session = boto3.Session()
    with suppress(BotoCoreError):  # such as no region: reading the secret will report it
        session.client("secretsmanager", aws_access_key_id="unused", aws_secret_access_key="unused")  # noqa: S106
    return session


def _read_from_aws(arn: str, seconds: float) -> str | bytes:
    session = _aws_session()
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, ReadTimeoutError

    config = Config(connect_timeout=seconds, read_timeout=seconds, retries={"total_max_attempts": 1})
    try:
        with _building:
            client = session.client("secretsmanager", config=config)
        secret = client.get_secret_value(SecretId=arn)
    except (ConnectTimeoutError, ReadTimeoutError):
        raise TimeoutError from None
    except (ClientError, BotoCoreError) as error:
        # AWS's error code or the type of the error, but no message: it could quote the secret.
        code = getattr(error, "response", {}).get("Error", {}).get("Code")
        raise NotConfiguredError(f"The {SOURCE} could not be read ({code or type(error).__name__})") from None
    return secret.get("SecretString") or secret.get("SecretBinary") or ""


def _check(text: str | bytes) -> Mapping[str, str]:
    try:
        secret = json.loads(text)
    except (ValueError, RecursionError):
        raise NotConfiguredError(f"The {SOURCE} is not JSON") from None
    if not isinstance(secret, dict) or not all(isinstance(value, str) for value in secret.values()):
        raise NotConfiguredError(f"The {SOURCE} is not a JSON object of strings")
    return secret
