"""One frozen `Settings`, read from the environment once. Nothing else reads `os.environ`."""

import json
import os
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from chunkproof.base.embedder_config import (
    ALLOWED_PROVIDERS,
    FIELD_NAMES,
    EmbedderConfig,
    Url,
    is_provider,
    parse_models,
)
from chunkproof.base.errors import SettingsError
from chunkproof.contract import ChunkMetadata, Limits
from chunkproof.contract.conditions import is_payload_path
from chunkproof.contract.query_options import MODEL_NAME, MODEL_PATTERN

CANONICAL_FIELDS = ("text", *ChunkMetadata.model_fields)
# The settings that an embedder has fields for.
_EMBEDDER_FIELDS = ("model", "query_model", "dimension", "query_prefix", "document_prefix", "max_tokens", "same_space")


def _comma_separated(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    names = tuple(part.strip() for part in value.split(",") if part.strip())
    if not names:  # an empty list would allow every collection
        raise ValueError("no name in it")
    return names


def _collections(value: Any) -> Any:
    names = _comma_separated(value)
    return () if names == ("*",) else names


def _as_variable(value: Any) -> str:
    """Convert a JSON value to the text of an environment variable."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    return value if isinstance(value, str) else json.dumps(value)


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


def _provider(value: str) -> str:
    if not is_provider(value):
        raise ValueError("no such provider")
    return value


Provider = Annotated[str, AfterValidator(_provider)]
Models = Annotated[dict[str, EmbedderConfig], BeforeValidator(parse_models)]
PayloadPath = Annotated[str, AfterValidator(_payload_path)]
Names = Annotated[tuple[str, ...], BeforeValidator(_comma_separated)]
CollectionNames = Annotated[tuple[str, ...], BeforeValidator(_collections)]
PayloadRows = Annotated[dict[str, tuple[str, ...]], BeforeValidator(_payload_map), AfterValidator(_known_fields)]


def _setting(variable: str, default: Any, description: str, allowed: str = "", **rule: Any) -> Any:
    allowed = allowed or f"{rule['ge']} to {rule['le']}"
    return Field(default, alias=variable, description=description, json_schema_extra={"allowed": allowed}, **rule)


class Settings(BaseModel):
    """Every setting: its variable, default, meaning and allowed values (docs/reference/settings.md is generated)."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    qdrant_url: Url | None = _setting(
        "QDRANT_URL", None, "Qdrant's address. Unset on a terminal: the embedded store.", "an http or https URL"
    )
    published_bucket: str | None = _setting(
        "CHUNKPROOF_PUBLISHED_BUCKET",
        None,
        "Bucket of published collections, which functions search instead of a Qdrant server (`Store=edge`).",
        "a bucket's name",
    )
    qdrant_api_key: SecretStr | None = _setting("QDRANT_API_KEY", None, "Key for Qdrant.", "text")
    cohere_api_key: SecretStr | None = _setting(
        "COHERE_API_KEY", None, "Key for Cohere; `CO_API_KEY` is read too.", "text"
    )
    cohere_base_url: Url | None = _setting(
        "COHERE_BASE_URL", None, "Another address that speaks Cohere's API.", "an http or https URL"
    )
    openai_api_key: SecretStr | None = _setting(
        "OPENAI_API_KEY", None, "Key for OpenAI, or for the service at `OPENAI_BASE_URL` if that wants one.", "text"
    )
    openai_base_url: Url | None = _setting(
        "OPENAI_BASE_URL",
        None,
        "Address of a service that speaks OpenAI's API (vLLM, TEI, Ollama, LM Studio, Voyage), up to `/v1`.",
        "an http or https URL",
    )
    bedrock_url: Url | None = _setting(
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        None,
        "Another address of Amazon Bedrock, such as a VPC endpoint.",
        "an http or https URL",
    )
    bedrock_region: str | None = _setting(
        "CHUNKPROOF_BEDROCK_REGION",
        None,
        "Region of Amazon Bedrock. Unset: the region of the AWS settings.",
        "a region such as us-east-1",
        pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]+$",
    )
    secret_arn: str | None = _setting(
        "CHUNKPROOF_SECRET_ARN",
        None,
        "Secrets Manager secret that holds `QDRANT_API_KEY`, `COHERE_API_KEY` and `OPENAI_API_KEY` as JSON.",
        "an ARN or a name",
    )
    secrets_port: int | None = _setting(
        "CHUNKPROOF_SECRETS_PORT",
        None,
        "Port of AWS's Parameters and Secrets extension. Unset: the function calls Secrets Manager.",
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
        "CHUNKPROOF_COLLECTION", "documentation", "Collection of requests that name none.", "a collection's name"
    )
    allowed_collections: CollectionNames = _setting(
        "CHUNKPROOF_ALLOWED_COLLECTIONS",
        (),
        "Collections a caller may name, besides `CHUNKPROOF_COLLECTION`. Unset: none in a stack, else all.",
        "names, comma-separated, or `*` for all",
    )
    vector_name: str | None = _setting(
        "CHUNKPROOF_VECTOR_NAME", None, "Which dense vector, where a collection has several.", "a vector's name"
    )
    embedder: Provider | None = _setting(
        "CHUNKPROOF_EMBEDDER",
        None,
        "Where texts are embedded. Unset: `cohere` when its key is set or in Lambda, else `local`.",
        ALLOWED_PROVIDERS,
    )
    model: str = _setting(
        "CHUNKPROOF_MODEL",
        "embed-english-v3.0",
        "The embedding model: the default is one of Cohere's; `bedrock` and `openai` need it to be set.",
        "a model's name",
    )
    query_model: str | None = _setting(
        "CHUNKPROOF_QUERY_MODEL",
        None,
        "Model of queries, where it differs from the documents' and shares their space. Unset: `CHUNKPROOF_MODEL`.",
        "a model's name",
    )
    dimension: int | None = _setting(
        "CHUNKPROOF_DIMENSION",
        None,
        "Size of embeddings to ask for, where the model offers several (Cohere's from embed-v4 on).",
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
        ge=1,
        le=1_000,
    )
    query_prefix: str = _setting(
        "CHUNKPROOF_QUERY_PREFIX",
        "",
        "Text that the model expects before a query, such as `query: ` (not with Cohere's API or the local model).",
        "text",
    )
    document_prefix: str = _setting(
        "CHUNKPROOF_DOCUMENT_PREFIX", "", "Text that the model expects before a document, such as `passage: `.", "text"
    )
    max_tokens: int | None = _setting(
        "CHUNKPROOF_MAX_TOKENS",
        None,
        "Tokens that the model of an OpenAI-compatible service reads. Longer texts are tested for being cut.",
        "1 or more",
        ge=1,
    )
    same_space: Names = _setting(
        "CHUNKPROOF_SAME_SPACE",
        (),
        "Further names or models whose stored vectors are comparable: no warning about another model.",
        "model names, comma-separated",
    )
    models: Models = _setting(
        "CHUNKPROOF_MODELS",
        {},
        "Embedders of single collections, by name; the others use the settings above.",
        'JSON such as {"docs": {"provider": "openai", "model": "text-embedding-3-small"}}, with the fields '
        + ", ".join(FIELD_NAMES),
    )
    min_query_chars: int = _setting("CHUNKPROOF_MIN_QUERY_CHARS", 1, "Minimum length of a query.", ge=1, le=10_000)
    max_query_chars: int = _setting("CHUNKPROOF_MAX_QUERY_CHARS", 10_000, "Maximum length of a query.", ge=1, le=10_000)
    max_top_k: int = _setting("CHUNKPROOF_MAX_TOP_K", 1_000, "Maximum `top_k`.", ge=1, le=1_000)
    deadline_ms: int | None = _setting(
        "CHUNKPROOF_DEADLINE_MS",
        None,
        "Time limit of a response. Unset: 2000 in Lambda, 10000 on a terminal.",
        ge=1,
        le=900_000,
    )
    latency_target_ms: int = _setting(
        "CHUNKPROOF_LATENCY_TARGET_MS",
        2_000,
        "Target for the time of a response; slower ones are counted and logged.",
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
    cache_entries: int = _setting(
        "CHUNKPROOF_CACHE_ENTRIES",
        1_000,
        "Query embeddings kept in memory, some 8 kB each for 1,024 values; 0 keeps none.",
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
    mcp: bool = _setting(
        "CHUNKPROOF_MCP",
        True,
        "Whether `POST /mcp` offers searches and validations to agents as tools.",
        "`true` or `false`",
    )
    seals: str | None = _setting(
        "CHUNKPROOF_SEALS",
        None,
        "Where seals are, for receipts: a folder, or `s3://BUCKET/PREFIX`. With `Store=edge`, `seals` in the bucket of "
        "published collections by default.",
        "a folder, or an address in S3",
    )
    receipt_key: str | None = _setting(
        "CHUNKPROOF_RECEIPT_KEY",
        None,
        "Key that signs each receipt, so that the service is bound to its answer: a file of `chunkproof key`, or "
        "`kms:KEY-ID`. Unset: only the seal is signed.",
        "a file, or `kms:` and a key of AWS KMS",
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

    # The keys that `CHUNKPROOF_MODELS` names, by variable.
    other_keys: dict[str, SecretStr] = Field(default={}, exclude=True)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> "Settings":
        """Read the settings; an empty variable counts as unset. `SettingsError` lists every wrong value.

        `CHUNKPROOF_SETTINGS` may hold several as a JSON object; a variable of its own takes precedence.
        """
        given = {name: value for name, value in (os.environ if environ is None else environ).items() if value}
        if "CHUNKPROOF_SETTINGS" in given:
            given = cls._read_object(given["CHUNKPROOF_SETTINGS"]) | given
            # A stack always sets it: callers of a deployment may name only the collections that it allows.
            given.setdefault("CHUNKPROOF_ALLOWED_COLLECTIONS", given.get("CHUNKPROOF_COLLECTION", "documentation"))
        if "CO_API_KEY" in given:
            given.setdefault("COHERE_API_KEY", given["CO_API_KEY"])
        try:
            settings = cls.model_validate({name: given[name] for name in cls.variables() if name in given})
        except ValidationError as error:
            found = [message for detail in error.errors() for message in cls._messages(detail)]
            raise SettingsError(*dict.fromkeys(found)) from None

        if settings.min_query_chars > settings.max_query_chars:
            raise SettingsError("CHUNKPROOF_MIN_QUERY_CHARS must not be above CHUNKPROOF_MAX_QUERY_CHARS")
        if (settings.tenant_claim is None) != (settings.tenant_field is None):
            raise SettingsError("CHUNKPROOF_TENANT_CLAIM and CHUNKPROOF_TENANT_FIELD must be set together")
        if settings.embedder is not None:
            settings.default_embedder(settings.embedder)  # a wrong value is refused at the start
        names = {config.key for config in settings.models.values() if config.key}
        keys = {name: SecretStr(given[name]) for name in sorted(names) if name in given}
        models = {name: settings._add_address(config) for name, config in settings.models.items()}
        return settings.model_copy(update={"other_keys": keys, "models": models}) if models else settings

    @classmethod
    def _read_object(cls, text: str) -> dict[str, str]:
        """Return the variables in a JSON object as their texts; null leaves one unset."""
        try:
            rows = json.loads(text)
        except (ValueError, RecursionError):
            rows = None
        if not isinstance(rows, dict):
            raise SettingsError('CHUNKPROOF_SETTINGS must be a JSON object such as {"CHUNKPROOF_MAX_TOP_K": 20}')
        wrong = [f"CHUNKPROOF_SETTINGS: there is no setting {name}" for name in rows if name not in cls.variables()]
        wrong += [
            f"CHUNKPROOF_SETTINGS: {name} is a key, which belongs in the secret"
            for name in rows
            if name in cls.variables() and "SecretStr" in str(cls.model_fields[cls.variables()[name]].annotation)
        ]
        if wrong:
            raise SettingsError(*wrong)
        return {name: _as_variable(value) for name, value in rows.items() if value not in (None, "", [])}

    def _add_address(self, config: EmbedderConfig) -> EmbedderConfig:
        """Return a collection's own embedder with the address of its service, which it may leave to the settings."""
        if config.base_url or config.key or (config.region or self.bedrock_region) != self.bedrock_region:
            return config
        update = {"base_url": self._addresses.get(config.provider)}
        if config.provider == "bedrock":
            update["region"] = self.bedrock_region
        return config.model_copy(update=update)

    @property
    def _addresses(self) -> Mapping[str, str | None]:
        return {"cohere": self.cohere_base_url, "openai": self.openai_base_url, "bedrock": self.bedrock_url}

    @property
    def embedder_on_terminal(self) -> str:
        """What commands and scripts embed with: the configured service, Cohere with a key, or the local model."""
        return self.embedder or ("cohere" if self.cohere_api_key else "local")

    def with_embedder(self, provider: str) -> "Settings":
        """Return the same settings with this embedder for every collection."""
        return self.model_copy(update={"embedder": provider, "models": {}})

    def default_embedder(self, provider: str) -> EmbedderConfig:
        """Return the embedder of collections that have none of their own, with this provider.

        `SettingsError` for a setting that does not fit the provider.
        """
        given: dict[str, Any] = {name: getattr(self, name) for name in _EMBEDDER_FIELDS}
        given |= {
            "base_url": self._addresses.get(provider),
            "region": self.bedrock_region if provider == "bedrock" else None,
        }
        if provider != "cohere" and "model" not in self.model_fields_set:
            given["model"] = None
        if provider == "local":  # as long as there is a local model, a model's name and size have not been an error
            given |= {"model": None, "query_model": None, "dimension": None}
        try:
            return EmbedderConfig.model_validate({"provider": provider, "place": "CHUNKPROOF_EMBEDDER", **given})
        except ValidationError as error:
            reason = str(error.errors()[0].get("ctx", {}).get("error", "it does not fit"))
            for name in _EMBEDDER_FIELDS:
                reason = re.sub(rf"^{name}\b", str(type(self).model_fields[name].alias), reason)
            raise SettingsError(f"CHUNKPROOF_EMBEDDER is {provider}: {reason}") from None

    @classmethod
    def variables(cls) -> dict[str, str]:
        """Map each variable to the field that it sets."""
        return {field.alias: name for name, field in cls.model_fields.items() if field.alias}

    @classmethod
    def allowed_values(cls, variable: str) -> str:
        """Describe the values that a variable may have."""
        extra = cls.model_fields[cls.variables()[variable]].json_schema_extra
        return str(extra["allowed"]) if isinstance(extra, dict) else ""

    @classmethod
    def _messages(cls, detail: Any) -> list[str]:
        variable = str(detail["loc"][0])
        if variable == "CHUNKPROOF_MODELS" and detail["type"] == "value_error":
            return str(detail["ctx"]["error"]).splitlines()  # with the place of each
        return [f"{variable} must be {cls.allowed_values(variable)}"]

    @cached_property
    def limits(self) -> Limits:
        """The limits that requests are checked against."""
        return Limits(
            self.min_query_chars, self.max_query_chars, self.max_top_k, max(self.max_top_k, self.rerank_candidates)
        )
