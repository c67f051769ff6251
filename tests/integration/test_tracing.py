"""Stages as spans of OpenTelemetry, where that is wanted and there; where it is not, it is not even imported."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from chunkproof.service import container, telemetry
from chunkproof.stores.store_port import Point, WritableStore

from support.api import invoke, post
from support.chunks import fill, make_services


@pytest.fixture(scope="module")
def exported() -> Iterator[InMemorySpanExporter]:
    """What a layer would send away. OpenTelemetry takes one provider per process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    telemetry.span_writer.cache_clear()
    yield exporter
    provider.shutdown()


def search(store: WritableStore, **settings: str) -> None:
    with container.override(make_services(store, "docs", **settings)):
        assert invoke(post("/search", {"query_vector": [1.0, 0.0]})).status == 200


def test_each_stage_is_a_span_of_its_own_duration(memory_store: WritableStore, exported: InMemorySpanExporter) -> None:
    fill(memory_store, "docs", Point(1, {"text": "one", "url": "u"}, vector=(1.0, 0.0)))
    exported.clear()
    search(memory_store, TRACING="true")
    spans = exported.get_finished_spans()
    assert [span.name for span in spans] == ["validate", "search", "search", "search", "format"]
    for span in spans:
        assert span.start_time is not None
        assert span.end_time is not None
        assert 0 <= span.end_time - span.start_time < 10e9


def test_without_the_setting_there_are_no_spans(memory_store: WritableStore, exported: InMemorySpanExporter) -> None:
    fill(memory_store, "docs", Point(1, {"text": "one", "url": "u"}, vector=(1.0, 0.0)))
    exported.clear()
    search(memory_store)
    assert exported.get_finished_spans() == ()


def test_without_the_setting_opentelemetry_is_not_imported() -> None:
    code = "import sys, chunkproof.service.api; print('opentelemetry' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_where_opentelemetry_is_missing_a_line_says_what_to_add(
    memory_store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(memory_store, "docs", Point(1, {"text": "one", "url": "u"}, vector=(1.0, 0.0)))
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)  # as in a function without the layer
    lines: list[str] = []
    monkeypatch.setattr(telemetry.logger, "warning", lambda message, **_: lines.append(message))
    telemetry.span_writer.cache_clear()
    search(memory_store, TRACING="true")
    telemetry.span_writer.cache_clear()
    assert any("add its Lambda layer" in line for line in lines)
