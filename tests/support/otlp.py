"""What an OTLP receiver over HTTP got."""

from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.recording_server import RecordingServer


def received(server: RecordingServer) -> tuple[list[Any], dict[str, Any]]:
    """The spans and metrics that an OTLP receiver got."""
    spans, metrics = [], {}
    for request in server.requests:
        if request.path == "/v1/traces":
            for group in ExportTraceServiceRequest.FromString(request.body).resource_spans:
                spans += [span for scope in group.scope_spans for span in scope.spans]
        elif request.path == "/v1/metrics":
            for of_resource in ExportMetricsServiceRequest.FromString(request.body).resource_metrics:
                metrics |= {metric.name: metric for scope in of_resource.scope_metrics for metric in scope.metrics}
    return spans, metrics
