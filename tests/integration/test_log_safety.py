"""No key, header or stored text is in any log line, at INFO and at DEBUG, whatever a server sends back."""

import json
import logging
import time
from contextlib import suppress

import boto3
import pytest
from moto import mock_aws

from chunkproof.base import errors
from chunkproof.base.errors import ChunkproofError, InvalidParameterError
from chunkproof.base.request import Deadline
from chunkproof.base.settings import Settings
from chunkproof.contract import ChunkMetadata, SearchQuery
from chunkproof.net.transport import DeadlineTransport
from chunkproof.service import telemetry  # installs it
from chunkproof.stores.server import ServerStore

from support.recording_server import CannedResponse, recording_server

KEY = "qdrant-key-0123456789"
STORED = "a stored sentence"


@pytest.fixture(params=[logging.INFO, logging.DEBUG])
def lines(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Every log line of the process, formatted, at this level."""
    assert telemetry.logger
    caplog.set_level(request.param)
    for name in (*errors.LIBRARIES, "chunkproof"):
        caplog.set_level(request.param, logger=name)
    caplog.handler.setFormatter(logging.Formatter())
    return caplog


def everything(lines: pytest.LogCaptureFixture) -> str:
    formatter = logging.Formatter()
    return "\n".join(f"{formatter.format(record)} {vars(record)}" for record in lines.records)


ECHOES = [
    {"result": {"points": [{"id": [KEY], "payload": {"text": STORED}}]}},
    {"result": {"points": KEY}},
    {"result": STORED},
    {"headers": {"api-key": KEY}, "text": STORED},
    [KEY, STORED],
]


@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("status", [200, 400, 500])
def test_a_server_that_echoes_headers_and_payloads_gets_nothing_logged(lines, echo, status):
    with recording_server(
        lambda _request: CannedResponse(status, json.dumps(echo).encode(), {"x-echo": KEY})
    ) as server:
        store = ServerStore(server.url, DeadlineTransport(lambda: {"api-key": KEY}))
        with pytest.raises(ChunkproofError) as failed:
            store.scroll("docs", Deadline(5_000), limit=5)
        logging.getLogger("chunkproof.test").error("failed", exc_info=failed.value)
        store.close()

    assert KEY not in everything(lines) + str(failed.value)
    assert STORED not in everything(lines) + str(failed.value)


def test_a_logged_exception_keeps_its_class_and_traceback_and_loses_its_message(lines):
    try:
        try:
            raise KeyError(STORED)
        except KeyError as error:
            raise ValueError(f"{KEY} in {STORED}") from error
    except ValueError as error:
        logging.getLogger("chunkproof").exception("unexpected failure")
        for log in (logging.getLogger("chunkproof"), logging.getLogger("some.library")):
            log.warning("unexpected: %s", error)
            log.warning("unexpected: %(error)s", {"error": error})
            log.warning("unexpected: %s", [error, {"all": (error,)}])
            log.warning(error)

    text = everything(lines)
    assert "ValueError" in text
    assert "KeyError" in text
    assert "test_log_safety.py" in text
    assert KEY not in text
    assert STORED not in text


def test_the_message_of_an_error_for_callers_stays(lines):
    try:
        raise InvalidParameterError("top_k must be between 1 and 1000")
    except InvalidParameterError:
        logging.getLogger("chunkproof").exception("refused")

    assert "InvalidParameterError: top_k must be between 1 and 1000" in everything(lines)


def test_botocore_logs_no_secret_and_no_signature(lines):
    with mock_aws():
        client = boto3.client(
            "secretsmanager", region_name="us-east-1", aws_access_key_id="AKIATEST", aws_secret_access_key=STORED
        )
        client.create_secret(Name="x", SecretString=KEY)
        assert client.get_secret_value(SecretId="x")["SecretString"] == KEY

    text = everything(lines)
    assert KEY not in text
    assert STORED not in text
    assert "AWS4-HMAC" not in text


@pytest.mark.parametrize(
    "make",
    [
        lambda: ChunkMetadata(chunk_id=[STORED]),
        lambda: Settings.model_validate({"QDRANT_URL": 5, "QDRANT_API_KEY": [KEY]}),
        lambda: SearchQuery.model_construct().model_validate_json(f'"{STORED}'),
    ],
)
def test_validation_errors_do_not_quote_their_input(make):
    with pytest.raises(ValueError, match=r".+") as failed:  # also pydantic's own
        make()

    assert STORED not in str(failed.value)
    assert KEY not in str(failed.value)


MEGABYTES_62 = 62_000_000


@pytest.fixture(scope="module")
def parsing_time() -> float:
    """Processor time in which this machine parses 62 MB of numbers."""
    numbers = b"[" + b"1," * (MEGABYTES_62 // 2 - 1) + b"1]"
    started = time.thread_time()
    json.loads(numbers)
    return time.thread_time() - started


@pytest.mark.parametrize(
    ("before", "unit", "after"),
    [
        (b"[", b"{},", b"]"),
        (b"[", b'{"id":1},', b"]"),
        (b"[", b"1,", b"]"),
        (b'[{"id":1,"payload":{', b'"n":1,', b"}}]"),
        (b'[{"id":1,"payload":{"text":"', b"\\u0041:{", b'"}}]'),
    ],
)
def test_a_response_of_62_megabytes_is_read_or_refused_in_time(before, unit, after, parsing_time):
    inside = (unit * (MEGABYTES_62 // len(unit)))[:-1]
    body = b'{"result":{"points":' + before + inside + after + b"}}"
    with recording_server(lambda _request: CannedResponse(200, body)) as server:
        store = ServerStore(server.url, DeadlineTransport(compressed=False))
        started = time.thread_time()
        with suppress(ChunkproofError):
            store.scroll("docs", Deadline(60_000), limit=5)
        spent = time.thread_time() - started
        store.close()

    assert spent < 3 * parsing_time


def test_a_header_that_opentelemetry_cannot_read_is_not_in_its_warning(lines):
    logging.getLogger("opentelemetry.util.re").warning("Header format invalid! %s", f"authorization: Bearer {KEY}")

    assert "Header format invalid!" in everything(lines)
    assert KEY not in everything(lines)
