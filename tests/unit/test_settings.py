"""Each variable: its default, what it takes, and how a wrong value is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from chunkproof.base.embedder_config import is_http_url
from chunkproof.base.errors import SettingsError
from chunkproof.base.settings import Settings
from chunkproof.contract import Limits
from chunkproof.embedders.cohere import CohereEmbedder
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.server import ServerStore

# The contract's list.
DEFAULTS = {
    "CHUNKPROOF_TOKEN": None,
    "QDRANT_URL": None,
    "QDRANT_API_KEY": None,
    "COHERE_API_KEY": None,
    "COHERE_BASE_URL": None,
    "OPENAI_API_KEY": None,
    "OPENAI_BASE_URL": None,
    "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": None,
    "CHUNKPROOF_BEDROCK_REGION": None,
    "CHUNKPROOF_SECRET_ARN": None,
    "CHUNKPROOF_SECRETS_PORT": None,
    "AWS_SESSION_TOKEN": None,
    "CHUNKPROOF_COLLECTION": "documentation",
    "CHUNKPROOF_ALLOWED_COLLECTIONS": (),
    "CHUNKPROOF_VECTOR_NAME": None,
    "CHUNKPROOF_EMBEDDER": None,
    "CHUNKPROOF_MODEL": "embed-english-v3.0",
    "CHUNKPROOF_QUERY_MODEL": None,
    "CHUNKPROOF_DIMENSION": None,
    "CHUNKPROOF_QUERY_PREFIX": "",
    "CHUNKPROOF_DOCUMENT_PREFIX": "",
    "CHUNKPROOF_MAX_TOKENS": None,
    "CHUNKPROOF_SAME_SPACE": (),
    "CHUNKPROOF_MODELS": {},
    "CHUNKPROOF_PUBLISHED_BUCKET": None,
    "CHUNKPROOF_SEALS": None,
    "CHUNKPROOF_RECEIPT_KEY": None,
    "CHUNKPROOF_MIN_QUERY_CHARS": 1,
    "CHUNKPROOF_MAX_QUERY_CHARS": 10_000,
    "CHUNKPROOF_MAX_TOP_K": 1_000,
    "CHUNKPROOF_DEADLINE_MS": None,
    "CHUNKPROOF_CACHE_ENTRIES": 1_000,
    "CHUNKPROOF_PAYLOAD_MAP": {},
    "CHUNKPROOF_LATENCY_TARGET_MS": 2_000,
    "CHUNKPROOF_MCP": True,
    "CHUNKPROOF_LOG_QUERIES": False,
    "CHUNKPROOF_TENANT_CLAIM": None,
    "CHUNKPROOF_TENANT_FIELD": None,
    # Beyond it: which deployment a metric is of.
    "CHUNKPROOF_ENVIRONMENT": "local",
    "CHUNKPROOF_RERANK": "requested",
    "CHUNKPROOF_RERANK_MODEL": "rerank-v3.5",
    "CHUNKPROOF_RERANK_CANDIDATES": 50,
}
ALLOWED_EMBEDDER = "`cohere`, `bedrock`, `openai`, `local`, or `module:function` for a function of your own"
ALLOWED_MAP = (
    'JSON such as {"text": "body.raw"}, for: text, chunk_id, url, document_id, position, timestamp, '
    "document_title, section_heading, section_headers, breadcrumb, total_chunks, tokens, content_type, "
    "has_code, content_hash, embedding_model"
)


def value(variable: str, text: str) -> object:
    return getattr(Settings.from_env({variable: text}), Settings.variables()[variable])


def problems(**environ: str) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as refused:
        Settings.from_env(environ)
    return refused.value.messages


def test_the_variables_are_those_of_the_contract_and_a_few_more():
    assert set(Settings.variables()) == set(DEFAULTS)


@pytest.mark.parametrize("variable", Settings.variables())
def test_an_unset_variable_has_its_default(variable):
    assert getattr(Settings.from_env({}), Settings.variables()[variable]) == DEFAULTS[variable]


@pytest.mark.parametrize("variable", Settings.variables())
def test_an_empty_variable_counts_as_unset(variable):
    assert value(variable, "") == DEFAULTS[variable]


@pytest.mark.parametrize(
    ("variable", "text", "read"),
    [
        ("QDRANT_URL", "https://cluster.example:6333/", "https://cluster.example:6333"),
        ("QDRANT_URL", "http://localhost:6333", "http://localhost:6333"),
        ("QDRANT_URL", "http://my_qdrant:6333", "http://my_qdrant:6333"),
        ("QDRANT_URL", "http://[::1]:6333", "http://[::1]:6333"),
        ("QDRANT_URL", "http://bücher.example", "http://bücher.example"),
        ("COHERE_BASE_URL", "http://127.0.0.1:8080/cohere", "http://127.0.0.1:8080/cohere"),
        ("CHUNKPROOF_SECRET_ARN", "chunkproof/keys", "chunkproof/keys"),
        ("CHUNKPROOF_SECRETS_PORT", "2773", 2773),
        ("CHUNKPROOF_COLLECTION", "books", "books"),
        ("CHUNKPROOF_ALLOWED_COLLECTIONS", "books", ("books",)),
        ("CHUNKPROOF_ALLOWED_COLLECTIONS", " books, notes ,,", ("books", "notes")),
        ("CHUNKPROOF_VECTOR_NAME", "dense", "dense"),
        ("CHUNKPROOF_EMBEDDER", "cohere", "cohere"),
        ("CHUNKPROOF_EMBEDDER", "local", "local"),
        ("CHUNKPROOF_EMBEDDER", "my_models.minilm:embed", "my_models.minilm:embed"),
        ("CHUNKPROOF_QUERY_MODEL", "embed-v5.0-fast", "embed-v5.0-fast"),
        ("CHUNKPROOF_QUERY_PREFIX", "query: ", "query: "),
        ("CHUNKPROOF_SAME_SPACE", "a, b", ("a", "b")),
        ("OPENAI_BASE_URL", "http://localhost:11434/v1/", "http://localhost:11434/v1"),
        ("CHUNKPROOF_MODEL", "embed-v4.0", "embed-v4.0"),
        ("CHUNKPROOF_DIMENSION", "1", 1),
        ("CHUNKPROOF_DIMENSION", "65536", 65536),
        ("CHUNKPROOF_MIN_QUERY_CHARS", "3", 3),
        ("CHUNKPROOF_MAX_QUERY_CHARS", "1000", 1000),
        ("CHUNKPROOF_MAX_TOP_K", "20", 20),
        ("CHUNKPROOF_MAX_TOP_K", "1000", 1000),
        ("CHUNKPROOF_DEADLINE_MS", "900000", 900_000),
        ("CHUNKPROOF_CACHE_ENTRIES", "0", 0),
        ("CHUNKPROOF_CACHE_ENTRIES", "100000", 100_000),
        ("CHUNKPROOF_PAYLOAD_MAP", '{"text": "body.raw"}', {"text": ("body.raw",)}),
        ("CHUNKPROOF_PAYLOAD_MAP", '{"url": ["a", "b.c"], "chunk_id": "k"}', {"url": ("a", "b.c"), "chunk_id": ("k",)}),
    ],
)  # fmt: skip
def test_a_good_value_is_read(variable, text, read):
    assert value(variable, text) == read


@pytest.mark.parametrize("variable", ["QDRANT_API_KEY", "COHERE_API_KEY", "OPENAI_API_KEY"])
def test_a_key_is_read_and_never_shown(variable):
    read = Settings.from_env({variable: "s3cret"})

    assert getattr(read, Settings.variables()[variable]).get_secret_value() == "s3cret"
    assert "s3cret" not in repr(read) + str(read) + read.model_dump_json()


@pytest.mark.parametrize(
    ("variable", "text", "allowed"),
    [
        ("QDRANT_URL", "localhost:6333", "an http or https URL"),
        ("QDRANT_URL", "ftp://host", "an http or https URL"),
        ("QDRANT_URL", " http://host", "an http or https URL"),
        ("QDRANT_URL", "http://a host:6333", "an http or https URL"),
        ("QDRANT_URL", "http://a..b", "an http or https URL"),
        ("QDRANT_URL", "http://\udcff", "an http or https URL"),
        ("QDRANT_URL", "http://[::1", "an http or https URL"),
        ("COHERE_BASE_URL", "http://host/a b", "an http or https URL"),
        ("COHERE_BASE_URL", "api.cohere.com", "an http or https URL"),
        ("CHUNKPROOF_EMBEDDER", "Cohere", ALLOWED_EMBEDDER),
        ("CHUNKPROOF_EMBEDDER", "voyage", ALLOWED_EMBEDDER),
        ("CHUNKPROOF_EMBEDDER", "module:", ALLOWED_EMBEDDER),
        ("CHUNKPROOF_EMBEDDER", "my/file.py:embed", ALLOWED_EMBEDDER),
        ("CHUNKPROOF_MAX_TOKENS", "0", "1 or more"),
        ("CHUNKPROOF_BEDROCK_REGION", "Frankfurt", "a region such as us-east-1"),
        ("CHUNKPROOF_DIMENSION", "0", "1 to 65536"),
        ("CHUNKPROOF_DIMENSION", "65537", "1 to 65536"),
        ("CHUNKPROOF_MIN_QUERY_CHARS", "0", "1 to 10000"),
        ("CHUNKPROOF_MAX_QUERY_CHARS", "10001", "1 to 10000"),
        ("CHUNKPROOF_MAX_TOP_K", "0", "1 to 1000"),
        ("CHUNKPROOF_MAX_TOP_K", "1001", "1 to 1000"),
        ("CHUNKPROOF_MAX_TOP_K", "many", "1 to 1000"),
        ("CHUNKPROOF_MAX_TOP_K", "5.5", "1 to 1000"),
        ("CHUNKPROOF_MAX_TOP_K", "9" * 5000, "1 to 1000"),
        ("CHUNKPROOF_DEADLINE_MS", "0", "1 to 900000"),
        ("CHUNKPROOF_DEADLINE_MS", "2s", "1 to 900000"),
        ("CHUNKPROOF_CACHE_ENTRIES", "-1", "0 to 100000"),
        ("CHUNKPROOF_CACHE_ENTRIES", "100001", "0 to 100000"),
        ("CHUNKPROOF_PAYLOAD_MAP", "text=body", ALLOWED_MAP),
        ("CHUNKPROOF_PAYLOAD_MAP", '{"body": "text"}', ALLOWED_MAP),
        ("CHUNKPROOF_PAYLOAD_MAP", '{"text": ""}', ALLOWED_MAP),
        ("CHUNKPROOF_PAYLOAD_MAP", '{"text": []}', ALLOWED_MAP),
        ("CHUNKPROOF_PAYLOAD_MAP", '{"text": [""]}', ALLOWED_MAP),
        ("CHUNKPROOF_PAYLOAD_MAP", '{"text": [1]}', ALLOWED_MAP),
        ("CHUNKPROOF_PAYLOAD_MAP", "[1]", ALLOWED_MAP),
        ("CHUNKPROOF_PAYLOAD_MAP", "5", ALLOWED_MAP),
        ("CHUNKPROOF_PAYLOAD_MAP", "null", ALLOWED_MAP),
        ("CHUNKPROOF_PAYLOAD_MAP", '{"text": 5}', ALLOWED_MAP),
        ("CHUNKPROOF_PAYLOAD_MAP", '{"text": null}', ALLOWED_MAP),
        pytest.param("CHUNKPROOF_PAYLOAD_MAP", "[" * 100_000, ALLOWED_MAP, id="deep"),
        ("CHUNKPROOF_PAYLOAD_MAP", '{"text": {"body": 1}}', ALLOWED_MAP),
        pytest.param("QDRANT_URL", "http://", "an http or https URL"),
        pytest.param("QDRANT_URL", "http:///path", "an http or https URL"),
        pytest.param("QDRANT_URL", "http://localhost:abc", "an http or https URL"),
        pytest.param("QDRANT_URL", "http://localhost:99999", "an http or https URL"),
        pytest.param("QDRANT_URL", "http://[::1", "an http or https URL"),
        pytest.param(
            "CHUNKPROOF_ALLOWED_COLLECTIONS", " , ", "names, comma-separated, or `*` for all"
        ),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_the_variable_and_what_is_allowed(variable, text, allowed):
    assert problems(**{variable: text}) == (f"{variable} must be {allowed}",)


def test_several_wrong_values_are_refused_at_once():
    assert problems(
        QDRANT_URL="localhost", CHUNKPROOF_MAX_TOP_K="0", CHUNKPROOF_EMBEDDER="x", CHUNKPROOF_MODEL="fine"
    ) == (
        "QDRANT_URL must be an http or https URL",
        f"CHUNKPROOF_EMBEDDER must be {ALLOWED_EMBEDDER}",
        "CHUNKPROOF_MAX_TOP_K must be 1 to 1000",
    )


def test_a_wrong_value_is_not_quoted():
    assert "hunter2" not in " ".join(problems(QDRANT_URL="hunter2"))


def test_a_least_length_above_the_greatest_is_refused():
    assert problems(CHUNKPROOF_MIN_QUERY_CHARS="11", CHUNKPROOF_MAX_QUERY_CHARS="10") == (
        "CHUNKPROOF_MIN_QUERY_CHARS must not be above CHUNKPROOF_MAX_QUERY_CHARS",
    )
    assert Settings.from_env({"CHUNKPROOF_MIN_QUERY_CHARS": "10", "CHUNKPROOF_MAX_QUERY_CHARS": "10"})


@pytest.mark.parametrize(
    ("environ", "key"),
    [
        ({"CO_API_KEY": "a"}, "a"),
        ({"CO_API_KEY": "a", "COHERE_API_KEY": ""}, "a"),
        ({"CO_API_KEY": "a", "COHERE_API_KEY": "b"}, "b"),
        ({"CO_API_KEY": "", "COHERE_API_KEY": "b"}, "b"),
    ],
)
def test_cohere_s_own_variable_counts_where_ours_is_unset(environ, key):
    assert Settings.from_env(environ).cohere_api_key.get_secret_value() == key


def test_other_variables_are_none_of_our_business():
    assert Settings.from_env({"PATH": "/bin", "CHUNKPROOF_NONSENSE": "1", "collection": "x"}) == Settings()


def test_the_environment_is_read_when_none_is_given(monkeypatch):
    monkeypatch.setenv("CHUNKPROOF_COLLECTION", "from-env")

    assert Settings.from_env().collection == "from-env"


def test_the_limits_in_force_are_those_of_the_settings():
    read = Settings.from_env(
        {
            "CHUNKPROOF_MIN_QUERY_CHARS": "3",
            "CHUNKPROOF_MAX_QUERY_CHARS": "1000",
            "CHUNKPROOF_MAX_TOP_K": "20",
        }
    )

    assert read.limits == Limits(min_query_chars=3, max_query_chars=1000, max_top_k=20, max_candidates=50)
    assert Settings.from_env({}).limits == Limits()


TENANT_SETTINGS = ("CHUNKPROOF_TENANT_CLAIM", "CHUNKPROOF_TENANT_FIELD")


@pytest.mark.parametrize("variable", TENANT_SETTINGS)
def test_half_of_the_tenant_settings_is_a_mistake_that_names_both(variable):
    with pytest.raises(SettingsError) as caught:
        Settings.from_env({variable: "tenant"})
    assert str(caught.value) == " and ".join(TENANT_SETTINGS) + " must be set together"


@pytest.mark.parametrize("path", ["a..b", ".", 'a"b', "a[0]"])
def test_a_tenant_field_that_is_no_payload_path_is_refused(path):
    with pytest.raises(SettingsError, match="CHUNKPROOF_TENANT_FIELD must be a payload path"):
        Settings.from_env({"CHUNKPROOF_TENANT_CLAIM": "org", "CHUNKPROOF_TENANT_FIELD": path})


def test_settings_cannot_be_changed():
    with pytest.raises(ValidationError):
        Settings.from_env({}).collection = "other"


@given(
    st.sampled_from(sorted(set(Settings.variables()) - {"CHUNKPROOF_PAYLOAD_MAP", *TENANT_SETTINGS})),
    st.text(alphabet=st.characters(exclude_characters="\0")),
)
def test_any_text_in_any_variable_is_a_setting_or_a_named_mistake(variable, text):
    try:
        Settings.from_env({variable: text})
    except SettingsError as error:
        messages = error.messages
    else:
        return

    if variable == "CHUNKPROOF_MODELS":  # each message names the collection
        assert all(message.startswith(variable) for message in messages)
    else:
        assert messages == (f"{variable} must be {Settings.allowed_values(variable)}",)


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=30))
def test_an_address_that_is_taken_is_one_that_the_clients_take(rest):
    url = f"http://{rest}"
    if is_http_url(url):
        ServerStore(url, DeadlineTransport()).close()
        CohereEmbedder(DeadlineTransport(), model="m", base_url=url).close()
