"""`CHUNKPROOF_MODELS` and the settings of one embedder for all: what they accept, and how a wrong value is refused."""

import json

import pytest

from chunkproof.base.errors import SettingsError
from chunkproof.base.settings import Settings

PROVIDERS = "`cohere`, `bedrock`, `openai`, `local`, or `module:function` for a function of your own"
FIELDS = (
    "provider, model, query_model, dimension, base_url, key, region, query_prefix, document_prefix, encoding, "
    "max_tokens, query_fields, document_fields, same_space"
)


def refusal(**environ: str) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as refused:
        Settings.from_env(environ)
    return refused.value.messages


def models(**entries: object) -> Settings:
    return Settings.from_env({"CHUNKPROOF_MODELS": json.dumps(entries)})


def test_each_collection_has_its_own_embedder():
    settings = models(
        docs={"provider": "openai", "model": "text-embedding-3-small", "dimension": 512},
        faq={"provider": "bedrock", "model": "us.cohere.embed-v4:0", "region": "eu-central-1"},
        code={"provider": "my.models:embed", "model": "mine"},
    )
    assert settings.models["docs"].dimension == 512
    assert settings.models["faq"].region == "eu-central-1"
    assert settings.models["code"].is_python
    assert settings.models["docs"].model_setting == "CHUNKPROOF_MODELS (docs)"


def test_the_key_that_an_entry_names_is_read_and_never_shown():
    entry = {"provider": "openai", "model": "voyage-3", "base_url": "https://api.voyageai.com/v1"}
    settings = Settings.from_env(
        {"CHUNKPROOF_MODELS": json.dumps({"docs": {**entry, "key": "VOYAGE_API_KEY"}}), "VOYAGE_API_KEY": "s3cret"}
    )
    assert settings.other_keys["VOYAGE_API_KEY"].get_secret_value() == "s3cret"
    assert "s3cret" not in repr(settings) + settings.model_dump_json()


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (
            {},
            f"provider is missing: {PROVIDERS}",
        ),
        (
            {"provider": "voyage"},
            "provider must be `cohere`, `bedrock`, `openai`, `local`, or `module:function` for a function of your own",
        ),
        ({"provider": "openai"}, "model is missing: name the model that the provider openai should use"),
        ({"provider": "openai", "model": ""}, "model must be a model's name"),
        ({"provider": "openai", "model": "m", "dimension": "512"}, "dimension must be 1 to 65536"),
        ({"provider": "openai", "model": "m", "dimension": True}, "dimension must be 1 to 65536"),
        ({"provider": "openai", "model": "m", "base_url": "localhost"}, "base_url must be an http or https URL"),
        (
            {"provider": "openai", "model": "m", "key": "sk-secret-value"},
            "key must be the name of a variable such as VOYAGE_API_KEY",
        ),
        (
            {"provider": "openai", "model": "m", "key": "AWS_SECRET_ACCESS_KEY"},
            "key must be the name of a variable such as VOYAGE_API_KEY",
        ),
        ({"provider": "openai", "model": "m", "encoding": "int8"}, "encoding must be `float` or `base64`"),
        ({"provider": "openai", "model": "m", "api_key": "x"}, f"api_key is not one of {FIELDS}"),
        ({"provider": "openai", "model": "m", "place": "x"}, f"place is not one of {FIELDS}"),
        ({"provider": "openai", "model": "m", "region": "us-east-1"}, "region does not apply to the provider openai"),
        ({"provider": "cohere", "query_prefix": "q: "}, "query_prefix does not apply to the provider cohere"),
        (
            {"provider": "cohere", "base_url": "https://x.example"},
            "key is missing: with base_url, name the variable that holds the key of that service",
        ),
        ({"provider": "local", "model": "m"}, "model does not apply to the provider local"),
        (
            {"provider": "bedrock", "model": "anthropic.claude"},
            "model must contain cohere.embed or amazon.titan-embed-text",
        ),
    ],
)
def test_a_wrong_entry_is_refused_with_the_collection_and_the_field(entry, problem):
    assert refusal(CHUNKPROOF_MODELS=json.dumps({"docs": entry})) == (f"CHUNKPROOF_MODELS (docs): {problem}",)


def test_every_wrong_entry_is_named_at_once():
    wrong = {"a": 3, "b": {"provider": "openai", "model": "m", "dimension": 0, "max_tokens": 0}}
    assert refusal(CHUNKPROOF_MODELS=json.dumps(wrong), CHUNKPROOF_MAX_TOP_K="0") == (
        'CHUNKPROOF_MODELS (a) must be an object such as {"provider": "openai", "model": "text-embedding-3-small"}',
        "CHUNKPROOF_MODELS (b): dimension must be 1 to 65536",
        "CHUNKPROOF_MODELS (b): max_tokens must be 1 or more",
        "CHUNKPROOF_MAX_TOP_K must be 1 to 1000",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "{",
            "CHUNKPROOF_MODELS is not valid JSON: Expecting property name enclosed in double quotes at line 1 column 2",
        ),
        (
            "[]",
            'CHUNKPROOF_MODELS must be a JSON object such as {"docs": {"provider": "openai", "model": '
            '"text-embedding-3-small"}}',
        ),
        ('{"docs": {"provider": "local"}, "docs": {"provider": "cohere"}}', "CHUNKPROOF_MODELS: docs is given twice"),
    ],
)
def test_what_is_no_object_of_collections_is_refused(text, problem):
    assert refusal(CHUNKPROOF_MODELS=text) == (problem,)


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        (
            {"CHUNKPROOF_EMBEDDER": "openai"},
            "CHUNKPROOF_EMBEDDER is openai: CHUNKPROOF_MODEL is missing: name the model "
            "that the provider openai should use",
        ),
        (
            {"CHUNKPROOF_EMBEDDER": "bedrock", "CHUNKPROOF_MODEL": "embed-v4.0"},
            "CHUNKPROOF_EMBEDDER is bedrock: CHUNKPROOF_MODEL must contain cohere.embed or amazon.titan-embed-text",
        ),
        (
            {"CHUNKPROOF_EMBEDDER": "cohere", "CHUNKPROOF_QUERY_PREFIX": "query: "},
            "CHUNKPROOF_EMBEDDER is cohere: CHUNKPROOF_QUERY_PREFIX does not apply to the provider cohere",
        ),
    ],
)
def test_settings_that_do_not_fit_the_embedder_are_refused_at_the_start(environ, problem):
    assert refusal(**environ) == (problem,)


def test_the_settings_of_all_collections_make_one_embedder():
    settings = Settings.from_env(
        {
            "CHUNKPROOF_EMBEDDER": "openai",
            "CHUNKPROOF_MODEL": "nomic-embed-text",
            "CHUNKPROOF_QUERY_PREFIX": "search_query: ",
            "CHUNKPROOF_DOCUMENT_PREFIX": "search_document: ",
            "OPENAI_BASE_URL": "http://localhost:11434/v1",
        }
    )
    config = settings.default_embedder("openai")
    assert (config.model, config.base_url) == ("nomic-embed-text", "http://localhost:11434/v1")
    assert (config.query_prefix, config.document_prefix) == ("search_query: ", "search_document: ")
    assert config.model_setting == "CHUNKPROOF_MODEL"


def test_a_model_needs_the_name_of_a_collection() -> None:
    entry = {"provider": "openai", "model": "text-embedding-3-small"}
    problem = "CHUNKPROOF_MODELS has an empty name: name a collection"
    assert refusal(CHUNKPROOF_MODELS=json.dumps({"": entry})) == (problem,)
