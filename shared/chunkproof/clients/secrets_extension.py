"""A secret from AWS's Parameters and Secrets extension, which runs beside a function and keeps it at hand.

Asking it takes a millisecond; the first call through boto3 takes longer than everything else in a cold start
(docs/guides/performance.md).
"""

import json
import logging
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from urllib.parse import quote

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SecretsExtension:
    """Where it listens, and the token by which it knows the function."""

    port: int
    token: str

    def read(self, arn: str, seconds: float) -> str | None:
        """The secret's text; None when it cannot be had here, and is to be asked of Secrets Manager itself."""
        connection = HTTPConnection("localhost", self.port, timeout=seconds)
        try:
            path = f"/secretsmanager/get?secretId={quote(arn, safe='')}"
            connection.request("GET", path, headers={"X-Aws-Parameters-Secrets-Token": self.token})
            answer = connection.getresponse()
            if answer.status == 200:
                return str(json.loads(answer.read())["SecretString"])
            reason = f"it answered {answer.status}"
        except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
            reason = type(error).__name__
        finally:
            connection.close()
        log.warning("the secrets extension did not give the secret", extra={"reason": reason})
        return None
