"""What commands print: tables as wide as the terminal, and warnings on standard error."""

import json
import logging
from random import Random

import pytest

from chunkproof_cli import output
from chunkproof_cli.output import add_secrets, mask_secrets, print_table, show_warnings_once

from support.echoes import ECHOES, make_key, shows


@pytest.mark.parametrize("width", [80, 100])
def test_a_table_that_is_too_wide_breaks_between_words(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "stdout_console", lambda: output._StdoutConsole(width=width, highlight=False))
    sentence = "A snapshot is a consistent copy of the whole collection, with its indexes and settings"
    fields = ["section_heading", "document_title", "embedding_model"]
    url = "https://handbook.example.com/operations-and-more#section-of-the-page"
    print_table(("field", "description", "notes"), [(field, sentence, f"{sentence} {url}") for field in fields])
    hashes = ["78f515d6e071003a55fb9afe03db4847b6b7c51…", "c8d95ee4c5af4d4cbcf71398800c41a7e8a6697…", sentence[:40]]
    ids = ["vectordb-migrations", "vectordb-text-hygiene", "vectordb-filters"]
    print_table(("field", "read from", *"123"), [(fields[0], fields[0], *row) for row in (hashes, ids)])
    printed = capsys.readouterr().out
    assert all(len(line) <= width for line in printed.splitlines())
    assert {line[-1] for line in printed.splitlines()} == set("┓┃┩│┘")
    shown = {word for line in printed.splitlines() for word in line.replace("│", " ").split()}
    assert {*fields, *sentence.split()} <= shown


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_table_whose_words_do_not_fit_becomes_lines(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "stdout_console", lambda: output._StdoutConsole(width=width, highlight=False))
    names = ("configuration", "precision", "difference", "latency p95", "interval", "embeddings", "candidates")
    row = ("hybrid, reranked", "0.900", "no more than chance", "12.0", "(-0.086 to +0.042)", "", "50")
    print_table(names, [row, row])
    printed = capsys.readouterr().out
    assert printed.split("\n\n")[0].splitlines() == [f"{name}: {text}" for name, text in zip(names, row, strict=True)]
    print_table(names[:3], [row[:3]])
    assert ("configuration: " in capsys.readouterr().out) is (width == 40)


def test_a_warning_about_a_search_is_shown_once_whichever_module_it_comes_from(
    caplog: pytest.LogCaptureFixture,
) -> None:
    search, ranking, store = (
        logging.getLogger(f"chunkproof.{name}") for name in ("search.single", "search.steps", "stores.server")
    )
    with show_warnings_once():
        for _ in range(3):
            for log in (search, ranking, store):
                log.warning("from %s", log.name)
    ranking.warning("from %s", ranking.name)
    assert caplog.messages == [
        *["from chunkproof.stores.server"] * 3,
        "from chunkproof.search.single (3 times)",
        "from chunkproof.search.steps (3 times)",
        "from chunkproof.search.steps",
    ]


@pytest.mark.parametrize("written", ECHOES)
def test_a_key_is_hidden_however_it_is_written(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_secrets", set())
    rng = Random(written)
    for _ in range(30):
        key = make_key(rng)
        add_secrets([("api-key", f"Bearer {key}")])
        echo = ECHOES[written](key)
        for text in (echo, f"no {echo} here", json.dumps({"detail": [echo]})):
            masked = mask_secrets(text)
            assert not shows(key, masked), (key, text, masked)
            assert echo not in masked or len(echo) < len(key), (key, masked)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "postgres://user:k3y%21stays@db.example.com/docs"),
        ("STORE", "https://bucket.s3.example.com/part?X-Amz-Signature=k3y%21stays"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer k3y!stays,x-team=docs"),
        ("X_SERVICE_AUTHORIZATION", "Basic dXNlcjprM3khc3RheXM="),
        ("DB_PWD", "k3y!stays"),
    ],
)
def test_a_key_is_found_in_what_holds_it(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_secrets", set())
    monkeypatch.setenv(name, value)
    assert mask_secrets("Bearer of docs at db.example.com: K3y!stays") == "Bearer of docs at db.example.com: ***"


def test_usual_text_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_secrets", set())
    add_secrets([("key", "docs-production"), ("key", "short"), ("key", "%41%42%43"), ("page", "https://example.com/a")])
    text = "A short product in production… \\n 100 % of 4711\n\nproduct ABC at example.com/a%20b &amp; c"
    assert mask_secrets(text) == text


def test_a_part_of_a_key_is_hidden_where_the_key_has_a_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_secrets", set())
    rng = Random(5)
    for _ in range(30):
        key = make_key(rng)
        add_secrets([("headers", f"v1{key}")])
        for written, echo in ECHOES.items():
            text = json.dumps({f"/path/{echo(key)}/more": True})
            assert not shows(key, mask_secrets(text)), (written, key, mask_secrets(text))


def test_a_path_that_a_variable_names_is_no_key_that_has_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_secrets", set())
    add_secrets([("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/project1/key.json"), ("token", "documentation-service")])
    text = "/home/me/project1/report.html of documentation, with many more words after it"
    assert mask_secrets(text) == text


@pytest.mark.parametrize(
    "url", ["me:{}@host", "//me:{}@host", "postgres:/me:{}@host/x", "http://host/{}/hook", "http://me:{}"]
)
def test_a_key_in_a_malformed_address_is_hidden(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_secrets", set())
    key = "sk9Qz7Lm2Vx8Rt4Wp6Yb1Nc3"
    add_secrets([("url", url.format(key))])
    assert key not in mask_secrets(f"--api {url.format(key)}: not an http or https URL")


def test_the_folder_of_a_command_is_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_secrets", set())
    monkeypatch.setenv("PWD", "/home/me/project")
    add_secrets([("url", "http://127.0.0.1:33109/query?tenant=7")])
    text = "/home/me/project/suite.yaml by http://127.0.0.1:33109/query"
    assert mask_secrets(text) == text
