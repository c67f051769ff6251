"""A command with the variables of OpenTelemetry, as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from support.otlp import received
from support.recording_server import CannedResponse, recording_server

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_command_is_the_root_of_its_spans_and_takes_its_parent_from_the_environment(loaded_handbook: Path) -> None:
    with recording_server(lambda _: CannedResponse(200, b"")) as collector:
        traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "TRACEPARENT": f"00-{TRACE}-{SPAN}-01"}
        search = ("search", "How do I take a backup?", "--data", str(loaded_handbook), "--collection", "handbook")
        run = subprocess.run(
            [sys.executable, "-m", "chunkproof_cli", *search],
            capture_output=True,
            text=True,
            env={**os.environ, **traced},
            check=False,
        )
        assert (run.returncode, run.stderr) == (0, "")
        spans, _ = received(collector)
    by_name = {span.name: span for span in spans}
    root, retrieval = by_name["chunkproof search"], by_name["retrieval handbook"]
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == (TRACE, SPAN)
    assert retrieval.parent_span_id == root.span_id
    assert "error.type" not in {attribute.key for attribute in root.attributes}  # it ended well, by SystemExit(0)
    assert by_name["embeddings all-MiniLM-L6-v2"].parent_span_id == retrieval.span_id
