"""A timeline as spans of OpenTelemetry, by its official SDK, which is imported here and nowhere else.

A trace for the job: a span for each node, below it one for each phase. Where they go is the SDK's own business: the
variables OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS, OTEL_RESOURCE_ATTRIBUTES and so on.
"""

from __future__ import annotations

import time

from entrypoint import __version__
from entrypoint.errors import ConfigError, UnavailableError
from entrypoint.report.merge import Timeline


def send(timeline: Timeline) -> int:
    """Send the spans, whose last one ends now. Returns how many.

    Raises ConfigError where the SDK is not installed, UnavailableError where the collector does not take them.
    """
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    except ImportError as error:
        do = "pip install 'training-entrypoint[otel]', or leave --otel out"
        raise ConfigError("EP040 OpenTelemetry's SDK is not installed", str(error), do) from None
    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "entrypoint", "entrypoint.job": timeline.job}))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer, begun = provider.get_tracer("entrypoint", __version__), time.time() - timeline.seconds

    def at(seconds: float) -> int:
        return round((begun + seconds) * 1e9)

    whole = tracer.start_span(f"boot of {timeline.job}", start_time=at(0))
    for bar in timeline.bars:
        if not bar.phases:
            continue
        start, end = bar.phases[0].start, bar.phases[-1].end
        node = tracer.start_span(bar.host, trace.set_span_in_context(whole), start_time=at(start))
        node.set_attributes({"entrypoint.node": bar.rank, "entrypoint.host": bar.host})
        for each in (*bar.phases, *bar.spans):
            about = {"entrypoint.about": each.about} if each.about else {}
            phase = tracer.start_span(
                each.name, trace.set_span_in_context(node), attributes=about, start_time=at(each.start)
            )
            phase.end(at(each.end))
        node.end(at(end))
    whole.end(at(timeline.seconds))
    spans = kept.get_finished_spans()
    exporter = OTLPSpanExporter()
    try:
        if exporter.export(spans) is not SpanExportResult.SUCCESS:
            do = "see that the collector runs: OTEL_EXPORTER_OTLP_ENDPOINT"
            raise UnavailableError(
                "EP041 the collector of OpenTelemetry did not take the spans", "its log says why", do
            )
    finally:
        exporter.shutdown()
    return len(spans)
