"""How a collection's texts are embedded: the service, its models and what they are called with."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from chunkproof.contract.model import display_name, find_faults, format_path, read_json

_HOST = re.compile(r"[A-Za-z0-9._-]+")
_ODD = re.compile(r"[\s\x00-\x1f\x7f\ud800-\udfff]")


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


PROVIDERS = ("cohere", "bedrock", "openai", "local")
ALLOWED_PROVIDERS = "`cohere`, `bedrock`, `openai`, `local`, or `module:function` for a function of your own"
BEDROCK_FAMILIES = ("cohere.embed", "amazon.titan-embed-text")
_PYTHON_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

_MODELS = frozenset({"model", "query_model", "dimension", "base_url", "same_space"})
_PREFIXES = frozenset({"query_prefix", "document_prefix"})
_FIELDS: Mapping[str, frozenset[str]] = {
    "cohere": _MODELS | {"key"},
    "bedrock": _MODELS | _PREFIXES | {"region"},
    "openai": _MODELS | _PREFIXES | {"key", "encoding", "max_tokens", "query_fields", "document_fields"},
    "local": frozenset({"same_space"}),
    "python": _PREFIXES | {"model", "dimension", "same_space"},
}


def _field(default: Any, allowed: str, **rule: Any) -> Any:
    return Field(default, json_schema_extra={"allowed": allowed}, **rule)


class EmbedderConfig(BaseModel):
    """The embedder of a collection; `place` is the setting that it comes from, as messages name it.

    `key` names the variable, or the entry of the secret, that holds the key. `query_fields` and `document_fields` are
    added to the requests of an OpenAI-compatible service. `same_space` lists models whose vectors are comparable with
    the vectors of `model`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, strict=True)

    provider: str = _field(..., ALLOWED_PROVIDERS)
    model: str | None = _field(None, "a model's name", min_length=1)
    query_model: str | None = _field(None, "a model's name", min_length=1)
    dimension: int | None = _field(None, "1 to 65536", ge=1, le=65_536)
    base_url: Url | None = _field(None, "an http or https URL")
    key: str | None = _field(
        None, "the name of a variable such as VOYAGE_API_KEY", pattern=r"^[A-Z][A-Z0-9_]*_API_KEY$"
    )
    region: str | None = _field(None, "a region such as us-east-1", pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]+$")
    query_prefix: str = _field("", "text")
    document_prefix: str = _field("", "text")
    encoding: Literal["float", "base64"] = _field("float", "`float` or `base64`")
    max_tokens: int | None = _field(None, "1 or more", ge=1)
    query_fields: dict[str, Any] = _field({}, "an object")
    document_fields: dict[str, Any] = _field({}, "an object")
    same_space: tuple[str, ...] = _field((), "a list of model names", strict=False)
    place: str = Field("", exclude=True)

    @model_validator(mode="after")
    def _check(self) -> "EmbedderConfig":
        if self.provider not in PROVIDERS and not self.is_python:
            raise ValueError(f"provider must be {ALLOWED_PROVIDERS}")
        known = _FIELDS["python" if self.is_python else self.provider]
        given = {name for name in self.model_fields_set - {"provider", "place"} if getattr(self, name)}
        if unused := sorted(given - known):
            raise ValueError(f"{unused[0]} does not apply to the provider {self.provider}")
        if self.provider in ("openai", "bedrock") and self.model is None:
            raise ValueError(f"model is missing: name the model that the provider {self.provider} should use")
        if self.provider == "bedrock":
            for name in ("model", "query_model"):
                if getattr(self, name) and not bedrock_family(getattr(self, name)):
                    raise ValueError(f"{name} must contain {' or '.join(BEDROCK_FAMILIES)}")
        if self.provider == "cohere" and self.base_url and not self.key and self.is_own:
            raise ValueError("key is missing: with base_url, name the variable that holds the key of that service")
        return self

    @property
    def is_python(self) -> bool:
        """Whether the provider is a function of the user's own, `module:function`."""
        return _PYTHON_NAME.fullmatch(self.provider) is not None

    @property
    def is_own(self) -> bool:
        """Whether it is a collection's own, from `CHUNKPROOF_MODELS`."""
        return self.place.startswith("CHUNKPROOF_MODELS")

    @property
    def model_setting(self) -> str:
        """The setting that names the model."""
        return self.place if self.is_own else "CHUNKPROOF_MODEL"


def bedrock_family(model: str) -> str | None:
    """Return the family of a Bedrock model by its id, inference profile or ARN; None for one that is not supported."""
    return next((family for family in BEDROCK_FAMILIES if family in model), None)


def is_provider(value: str) -> bool:
    """Whether `CHUNKPROOF_EMBEDDER` may have this value."""
    return value in PROVIDERS or _PYTHON_NAME.fullmatch(value) is not None


def place_of(collection: str) -> str:
    """Return how messages name the entry of a collection."""
    return f"CHUNKPROOF_MODELS ({display_name(collection)})"


def parse_models(value: Any) -> Any:
    """Read the JSON of `CHUNKPROOF_MODELS`: an object from collections to embedders."""
    if not isinstance(value, str):
        return value
    entries = read_json(value, "CHUNKPROOF_MODELS")
    if not isinstance(entries, dict):
        raise ValueError(f'CHUNKPROOF_MODELS must be a JSON object such as {{"docs": {EXAMPLE}}}')
    if faults := find_faults(entries, "CHUNKPROOF_MODELS"):
        raise ValueError("\n".join(f"CHUNKPROOF_MODELS: {fault.message}" for fault in faults))
    problems: list[str] = []
    models: dict[str, EmbedderConfig] = {}
    for collection, entry in entries.items():
        place = place_of(collection)
        if not collection:
            problems.append("CHUNKPROOF_MODELS has an empty name: name a collection")
            continue
        if not isinstance(entry, dict):
            problems.append(f"{place} must be an object such as {EXAMPLE}")
            continue
        if "place" in entry:
            problems.append(f"{place}: place is not one of {', '.join(FIELD_NAMES)}")
            continue
        try:
            models[collection] = EmbedderConfig.model_validate({**entry, "place": place})
        except ValidationError as error:
            problems += [f"{place}: {_describe(detail)}" for detail in error.errors()]
    if problems:
        raise ValueError("\n".join(problems))
    return models


def _describe(detail: Mapping[str, Any]) -> str:
    name = format_path(detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"{name} is not one of {', '.join(FIELD_NAMES)}"
    if detail["type"] == "missing":
        return f"{name} is missing: {ALLOWED_PROVIDERS}"
    if not detail["loc"]:
        return str(detail["ctx"]["error"])
    return f"{name} must be {allowed_values(str(detail['loc'][0]))}"


def allowed_values(name: str) -> str:
    """Describe the values that a field may have."""
    extra = EmbedderConfig.model_fields[name].json_schema_extra
    return str(extra["allowed"]) if isinstance(extra, dict) else ""


FIELD_NAMES = tuple(name for name in EmbedderConfig.model_fields if name != "place")
EXAMPLE = '{"provider": "openai", "model": "text-embedding-3-small"}'
