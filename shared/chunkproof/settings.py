"""One frozen `Settings`, read from the environment once. Nothing else reads `os.environ`."""

import json
import os
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from chunkproof.errors import SettingsError
from chunkproof.models import ChunkMetadata, Limits
from chunkproof.models.extras import MODEL_NAME, MODEL_PATTERN
from chunkproof.models.filters import is_payload_path

_HOST = re.compile(r"[A-Za-z0-9._-]+")
_ODD = re.compile(r"[\s\x00-\x1f\x7f\ud800-\udfff]")
CANONICAL_FIELDS = ("text", *ChunkMetadata.model_fields)


def _comma_separated(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    names = tuple(part.strip() for part in value.split(",") if part.strip())
    if not names:  # an empty list would allow every collection
        raise ValueError("no name in it")
    return names


def _payload_map(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        rows = json.loads(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(rows, dict):
        raise ValueError("not an object")
    return {name: (paths,) if isinstance(paths, str) else paths for name, paths in rows.items()}


def _known_fields(rows: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    if unknown := sorted(set(rows) - set(CANONICAL_FIELDS)):
        raise ValueError(f"unknown field {unknown[0]}")
    if empty := [name for name, paths in rows.items() if not paths or not all(paths)]:
        raise ValueError(f"no path for {empty[0]}")
    return rows


def _payload_path(path: str) -> str:
    if not is_payload_path(path):
        raise ValueError("not names joined by dots")
    return path


def is_http_url(url: str) -> bool:
    """Whether the HTTP clients accept the URL; they would each refuse it in their own way, and late."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_host = ":" in host or _HOST.fullmatch(_ascii(host)) is not None
        return parts.scheme in ("http", "https") and is_host and parts.port != 0 and not _ODD.search(url)
    except ValueError:
        return False


def _ascii(host: str) -> str:
    """Return the host name in ASCII; `ValueError` when it is not a host name."""
    if host.isascii():
        return host.encode("idna").decode()  # finds empty and overlong labels
    import idna  # what the HTTP clients use; rarely needed

    return idna.encode(host, strict=True, std3_rules=True).decode()


def _http_url(url: str) -> str:
    if not is_http_url(url):
        raise ValueError("not an http or https address")
    return url.rstrip("/")


Url = Annotated[str, AfterValidator(_http_url)]
PayloadPath = Annotated[str, AfterValidator(_payload_path)]
Names = Annotated[tuple[str, ...], BeforeValidator(_comma_separated)]
PayloadRows = Annotated[dict[str, tuple[str, ...]], BeforeValidator(_payload_map), AfterValidator(_known_fields)]


def _setting(variable: str, default: Any, description: str, allowed: str, **rule: Any) -> Any:
    return Field(default, alias=variable, description=description, json_schema_extra={"allowed": allowed}, **rule)


class Settings(BaseModel):
    """Every setting: its variable, default, meaning and allowed values (docs/reference/settings.md is generated)."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    qdrant_url: Url | None = _setting(
        "QDRANT_URL",
        None,
        "Qdrant's address. Unset on a terminal: the embedded store.",
        "an http or https URL",
    )
    qdrant_api_key: SecretStr | None = _setting("QDRANT_API_KEY", None, "Key for Qdrant.", "text")
    cohere_api_key: SecretStr | None = _setting(
        "COHERE_API_KEY", None, "Key for Cohere; `CO_API_KEY` is read too.", "text"
    )
    cohere_base_url: Url | None = _setting(
        "COHERE_BASE_URL", None, "Another address that speaks Cohere's API.", "an http or https URL"
    )
    secret_arn: str | None = _setting(
        "CHUNKPROOF_SECRET_ARN",
        None,
        "Secrets Manager secret that holds `QDRANT_API_KEY` and `COHERE_API_KEY` as JSON.",
        "an ARN or a name",
    )
    secrets_port: int | None = _setting(
        "CHUNKPROOF_SECRETS_PORT",
        None,
        "Port of AWS's Parameters and Secrets extension. Unset: the function calls Secrets Manager.",
        "1 to 65535",
        ge=1,
        le=65_535,
    )
    session_token: SecretStr | None = _setting(
        "AWS_SESSION_TOKEN", None, "Set by Lambda; the extension knows a function by it.", "text"
    )
    token: SecretStr | None = _setting(
        "CHUNKPROOF_TOKEN", None, "Bearer token for a deployed stack that asks for one (`--api`).", "text"
    )
    collection: str = _setting(
        "CHUNKPROOF_COLLECTION",
        "documentation",
        "Collection of requests that name none.",
        "a collection's name",
    )
    allowed_collections: Names = _setting(
        "CHUNKPROOF_ALLOWED_COLLECTIONS",
        (),
        "Collections a caller may name; empty allows all.",
        "names, comma-separated",
    )
    vector_name: str | None = _setting(
        "CHUNKPROOF_VECTOR_NAME",
        None,
        "Which dense vector, where a collection has several.",
        "a vector's name",
    )
    embedder: Literal["cohere", "local"] | None = _setting(
        "CHUNKPROOF_EMBEDDER",
        None,
        "Where queries are embedded. Unset: `cohere` when its key is set or in Lambda, else `local`.",
        "`cohere` or `local`",
    )
    model: str = _setting("CHUNKPROOF_MODEL", "embed-english-v3.0", "Cohere's embedding model.", "a model's name")
    dimension: int | None = _setting(
        "CHUNKPROOF_DIMENSION",
        None,
        "Size of embeddings to ask for, where the model offers several (embed-v4 on).",
        "1 to 65536",
        ge=1,
        le=65536,
    )
    rerank: Literal["requested", "always", "never"] = _setting(
        "CHUNKPROOF_RERANK",
        "requested",
        "Whether results are reranked: when a request asks for it, always unless it says `rerank: false`, or never.",
        "`requested`, `always` or `never`",
    )
    rerank_model: str = _setting(
        "CHUNKPROOF_RERANK_MODEL",
        "rerank-v3.5",
        "Cohere's reranking model, unless a request names one.",
        MODEL_NAME,
        pattern=MODEL_PATTERN,
    )
    rerank_candidates: int = _setting(
        "CHUNKPROOF_RERANK_CANDIDATES",
        50,
        "Results of a search that are reranked, unless a request says otherwise.",
        "1 to 1000",
        ge=1,
        le=1_000,
    )
    min_query_chars: int = _setting(
        "CHUNKPROOF_MIN_QUERY_CHARS", 1, "Minimum length of a query.", "1 to 10000", ge=1, le=10_000
    )
    max_query_chars: int = _setting(
        "CHUNKPROOF_MAX_QUERY_CHARS", 10_000, "Maximum length of a query.", "1 to 10000", ge=1, le=10_000
    )
    max_top_k: int = _setting("CHUNKPROOF_MAX_TOP_K", 1_000, "Maximum `top_k`.", "1 to 1000", ge=1, le=1_000)
    deadline_ms: int | None = _setting(
        "CHUNKPROOF_DEADLINE_MS",
        None,
        "Time limit of a response. Unset: 2000 in Lambda, 10000 on a terminal.",
        "1 to 900000",
        ge=1,
        le=900_000,
    )
    latency_target_ms: int = _setting(
        "CHUNKPROOF_LATENCY_TARGET_MS",
        2_000,
        "Target for the time of a response; slower ones are counted and logged.",
        "1 to 900000",
        ge=1,
        le=900_000,
    )
    environment: str = _setting(
        "CHUNKPROOF_ENVIRONMENT",
        "local",
        "Name of the deployment in metrics, such as dev or prod.",
        "1 to 50 letters, digits, dots, dashes and underscores",
        pattern=r"^[A-Za-z0-9._-]{1,50}$",
    )
    tracing: bool = _setting(
        "CHUNKPROOF_TRACING",
        False,
        "Whether each stage of a request becomes a span of OpenTelemetry, which a Lambda layer must bring.",
        "`true` or `false`",
    )
    cache_entries: int = _setting(
        "CHUNKPROOF_CACHE_ENTRIES",
        1_000,
        "Query embeddings kept in memory; 0 keeps none.",
        "0 to 100000",
        ge=0,
        le=100_000,
    )
    payload_map: PayloadRows = _setting(
        "CHUNKPROOF_PAYLOAD_MAP",
        {},
        "Where a payload keeps a field, when the built-in names do not find it.",
        'JSON such as {"text": "body.raw"}, for: ' + ", ".join(CANONICAL_FIELDS),
    )

    log_queries: bool = _setting(
        "CHUNKPROOF_LOG_QUERIES",
        False,
        "Whether logs show the text of queries; otherwise its length and a hash.",
        "`true` or `false`",
    )
    tenant_claim: str | None = _setting(
        "CHUNKPROOF_TENANT_CLAIM",
        None,
        "Claim of a caller's token that names its tenant; with `CHUNKPROOF_TENANT_FIELD`.",
        "a claim's name",
    )
    tenant_field: PayloadPath | None = _setting(
        "CHUNKPROOF_TENANT_FIELD",
        None,
        "Payload field, a string, that names the tenant a chunk belongs to; callers see their own chunks only.",
        "a payload path such as `metadata.tenant`",
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> "Settings":
        """Read the settings; an empty variable counts as unset. `SettingsError` lists every wrong value."""
        given = {name: value for name, value in (os.environ if environ is None else environ).items() if value}
        if "CO_API_KEY" in given:
            given.setdefault("COHERE_API_KEY", given["CO_API_KEY"])
        try:
            settings = cls.model_validate({name: given[name] for name in cls.variables() if name in given})
        except ValidationError as error:
            raise SettingsError(*dict.fromkeys(cls._message(detail["loc"][0]) for detail in error.errors())) from None

        if settings.min_query_chars > settings.max_query_chars:
            raise SettingsError("CHUNKPROOF_MIN_QUERY_CHARS must not be above CHUNKPROOF_MAX_QUERY_CHARS")
        if (settings.tenant_claim is None) != (settings.tenant_field is None):
            raise SettingsError("CHUNKPROOF_TENANT_CLAIM and CHUNKPROOF_TENANT_FIELD must be set together")
        return settings

    @classmethod
    def variables(cls) -> dict[str, str]:
        """Map each variable to the field that it sets."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}

    @classmethod
    def allowed_values(cls, variable: str) -> str:
        """Describe the values that a variable may have."""
        extra = cls.model_fields[cls.variables()[variable]].json_schema_extra
        return str(extra["allowed"]) if isinstance(extra, dict) else ""

    @classmethod
    def _message(cls, variable: Any) -> str:
        return f"{variable} must be {cls.allowed_values(str(variable))}"

    @cached_property
    def limits(self) -> Limits:
        """The limits that requests are checked against."""
        return Limits(
            self.min_query_chars,
            self.max_query_chars,
            self.max_top_k,
            max(self.max_top_k, self.rerank_candidates),
        )
