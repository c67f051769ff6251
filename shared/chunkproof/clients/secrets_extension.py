"""Read a secret from the AWS Parameters and Secrets Lambda extension, a local cache that runs next to the function.

A read takes a millisecond; the first call through boto3 takes longer than the rest of a cold start
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
    """The extension's port, and the session token that it requires."""

    port: int
    token: str

    def read(self, arn: str, seconds: float) -> str | None:
        """Return the secret's text, or None when the caller should ask Secrets Manager itself."""
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
