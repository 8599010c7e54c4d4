"""OpenTelemetry: traces and metrics of the stores that this process opens after ``instrument``.
This module needs the extra ``otel``.

    import foldlog.otel

    foldlog.otel.instrument()     # before the program opens a store

The OpenTelemetry providers of the program receive the traces and metrics. Traces and metrics do not
contain the content of events, unless ``contents`` is set. ``docs/OBSERVING.md`` lists spans and
metrics.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from json import dumps
from typing import Any

from msgspec.structs import replace

from foldlog._base import telemetry
from foldlog._base.telemetry import TRACEPARENT
from foldlog.condensers.reply import Reply
from foldlog.eventstore import Event, Recorded, Store, VersionConflict
from foldlog.eventstore.codec import Encoded
from foldlog.eventstore.codec_json import size_of
from foldlog.eventstore.errors import install_command
from foldlog.eventstore.log.appending import Appending
from foldlog.formats.event_places import is_declined
from foldlog.formats.otlp_genai.sent_messages import COMPACTED
from foldlog.formats.otlp_genai.spans import message_of

try:
    from opentelemetry import metrics, trace
except ImportError as error:
    raise ImportError(f"foldlog.otel needs OpenTelemetry: {install_command('otel')}") from error

__all__ = ["instrument", "uninstrument"]

_REASONS = {"request", "tokens", "events", "asked for", "a rule of its own"}
"""The reasons of condensations that are values of an attribute. All other reasons are ``other``,
because each value of an attribute makes a time series.
"""
_COUNTERS = {
    "foldlog.appends": "Appends.",
    "foldlog.append.events": "Events that were appended.",
    "foldlog.append.bytes": "Bytes of the bodies of events that were appended.",
    "foldlog.conflicts": (
        "Appends at a version that was not the newest, and condensations that were given up."
    ),
    "foldlog.condensations": "Condensations by outcome: made, failed, declined, dropped.",
    "foldlog.tokens.saved": "Tokens that condensations took from Views.",
    "foldlog.model.cost": "US dollars that the models of condensers cost.",
}
"""The names of the counters, with their descriptions."""
_HISTOGRAMS = {
    "foldlog.append.duration": "s",
    "foldlog.wait.duration": "s",
    "foldlog.view.events": "{event}",
    "foldlog.view.tokens": "{token}",
    "gen_ai.client.token.usage": "{token}",
    "gen_ai.client.operation.duration": "s",
}
"""The names of the histograms, with their units."""
_appends: ContextVar[bool] = ContextVar("foldlog_append", default=False)
"""Whether the events that are encoded now are to be appended."""


def instrument(
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    *,
    contents: bool = False,
) -> None:
    """Send traces and metrics of the stores that this process opens from now on. By default, they
    are sent to OpenTelemetry's global providers.

    ``contents`` adds prompts and replies to the spans of a condenser's model calls. An appended
    event has the trace context of its append in ``meta``, under ``traceparent``. Imported events
    stay unchanged.
    """
    telemetry.telemetry = _Telemetry(
        trace.get_tracer("foldlog", tracer_provider=tracer_provider),
        metrics.get_meter("foldlog", meter_provider=meter_provider),
        contents=contents,
    )


def uninstrument() -> None:
    """Stop sending traces and metrics. Until it is closed, a store that was opened before still
    sends the traces and metrics of its appends, and adds trace contexts to their events.
    """
    telemetry.telemetry = None


class _Telemetry:
    """Sends what happens in stores as spans and measurements. ``foldlog._base.telemetry`` describes
    the methods ``store``, ``receive`` and ``span``, which it calls.
    """

    def __init__(self, tracer: trace.Tracer, meter: metrics.Meter, *, contents: bool) -> None:
        self._tracer = tracer
        self._contents = contents
        self._counters = {
            name: meter.create_counter(name, description=about) for name, about in _COUNTERS.items()
        }
        self._histograms = {
            name: meter.create_histogram(name, unit=unit) for name, unit in _HISTOGRAMS.items()
        }
        self._lag = meter.create_gauge(
            "foldlog.follower.lag", unit="s", description="Age of the oldest unread event."
        )

    def store(self, *args: Any, **named: Any) -> Store:
        return _ObservedStore(self, *args, **named)

    def receive(self, name: str, values: Mapping[str, Any]) -> None:
        match name.removeprefix("foldlog."):
            case "store.waited":
                self.record("foldlog.wait.duration", values["seconds"])
            case "follower.behind":
                self._lag.set(values["seconds"], {"foldlog.follower": values["follower"]})
            case "view":
                self.record("foldlog.view.events", values["events"])
                if (tokens := values["tokens"]()) is not None:
                    self.record("foldlog.view.tokens", tokens)
            case (
                "condensation.made"
                | "condensation.failed"
                | "condensation.declined"
                | "condensation.dropped"
            ):
                self._count_condensation(name.rpartition(".")[2], values)

    def _count_condensation(self, outcome: str, values: Mapping[str, Any]) -> None:
        """Count a condensation, its cost, and the tokens that it saved."""
        if outcome == "made":
            reasons = set(str(values.get("reason")).split(", "))
        else:
            reasons = set()
        # A condenser of a user may have reasons of its own.
        reason = ", ".join(sorted(reasons)) if reasons <= _REASONS else "other"
        attributes = {
            "foldlog.outcome": outcome,
            "foldlog.condenser": values["condenser"],
            "foldlog.reason": reason,
        }
        self.add("foldlog.condensations", 1, attributes)
        if values.get("cost"):
            self.add(
                "foldlog.model.cost", values["cost"], {"foldlog.condenser": values["condenser"]}
            )
        if outcome == "dropped":
            self.add("foldlog.conflicts", 1, {"foldlog.of": "condensation"})
        before = values.get("tokens_before")
        after = values.get("tokens_after")
        if before is not None and after is not None:
            self.add("foldlog.tokens.saved", max(0, before - after), {"foldlog.reason": reason})

    @contextmanager
    def span(self, name: str, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        more: dict[str, Any] = {}
        is_call = name == "gen_ai.chat"
        begun = time.perf_counter()
        title = f"chat {values['model']}" if is_call else name
        kind = trace.SpanKind.CLIENT if is_call else trace.SpanKind.INTERNAL
        with self._tracer.start_as_current_span(
            title, kind=kind, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield more
            except BaseException as error:  # the message of the error may quote an event
                kind_of_error = str(getattr(error, "failure", type(error).__qualname__))
                span.set_attribute("error.type", kind_of_error)
                span.set_status(trace.StatusCode.ERROR)
                more["error.type"] = kind_of_error
                raise
            finally:
                seconds = time.perf_counter() - begun
                if is_call:
                    attributes = self._measure_call(values, more, seconds)
                else:
                    attributes = _with_prefix({**values, **more})
                span.set_attributes(attributes)

    def _measure_call(
        self, values: Mapping[str, Any], more: Mapping[str, Any], seconds: float
    ) -> dict[str, Any]:
        """Measure a model call. Return the attributes of the call, named as in OpenTelemetry's
        conventions for generative AI.
        """
        provider, _, _ = str(values["model"]).rpartition("/")
        shared = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider.partition("/")[0] or "unknown",
            "gen_ai.request.model": values["model"],
        }
        attributes: dict[str, Any] = dict(shared)
        reply = more.get("reply")
        if reply is not None:
            shared["gen_ai.response.model"] = reply.model
            attributes |= {
                "gen_ai.response.model": reply.model,
                "gen_ai.response.finish_reasons": [str(reply.finish_reason)],
            }
            if reply.response_id is not None:
                attributes["gen_ai.response.id"] = reply.response_id
            for kind, name in (("input", "prompt_tokens"), ("output", "completion_tokens")):
                if name in reply.usage:
                    attributes[f"gen_ai.usage.{kind}_tokens"] = reply.usage[name]
                    self.record(
                        "gen_ai.client.token.usage",
                        reply.usage[name],
                        {**shared, "gen_ai.token.type": kind},
                    )
        if self._contents:
            attributes["gen_ai.input.messages"] = dumps(
                [message_of(dict(message)) for message in values["messages"]],
                ensure_ascii=False,
                default=str,
            )
            if reply is not None:
                attributes["gen_ai.output.messages"] = dumps(
                    [_output_message(reply)], ensure_ascii=False
                )
        if "error.type" in more:
            shared["error.type"] = more["error.type"]
        self.record("gen_ai.client.operation.duration", seconds, shared)
        return attributes

    def add(self, name: str, amount: float, attributes: Mapping[str, Any] | None = None) -> None:
        """Add an amount to the counter of this name."""
        self._counters[name].add(amount, dict(attributes or {}))

    def record(self, name: str, amount: float, attributes: Mapping[str, Any] | None = None) -> None:
        """Add a measurement to the histogram of this name."""
        self._histograms[name].record(amount, dict(attributes or {}))


def _output_message(reply: Reply) -> dict[str, Any]:
    """Return a reply as an output message of OpenTelemetry's conventions. The arguments of a tool
    call stay the JSON text that the model wrote, as in the input messages.
    """
    parts: list[dict[str, Any]] = []
    if reply.text:
        parts.append({"type": "text", "content": reply.text})
    parts += (
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in reply.tool_calls
    )
    # The conventions require a finish reason, and write ``tool_call`` where OpenAI's API has
    # ``tool_calls``.
    reason = reply.finish_reason or "unknown"
    if reason == "tool_calls":
        reason = "tool_call"
    return {"role": "assistant", "parts": parts, "finish_reason": reason}


def _with_prefix(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a span. ``foldlog.`` is put before their names, except before names
    of OpenTelemetry. A View becomes the attribute which says that it has summaries.
    """
    attributes = {
        name if name == "error.type" else f"foldlog.{name}": value for name, value in values.items()
    }
    view = attributes.pop("foldlog.view", None)
    # OpenTelemetry's conventions have the attribute only with the value true.
    if view is not None and not all(map(is_declined, view.condensations)):
        attributes[COMPACTED] = True
    return attributes


class _ObservedStore(Store):
    """A store that measures its appends, and adds trace contexts to appended events."""

    def __init__(self, telemetry: _Telemetry, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._telemetry = telemetry

    def append(
        self, conversation: str, events: Event | Iterable[Event], **options: Any
    ) -> tuple[Recorded, ...]:
        telemetry = self._telemetry
        started_at = time.perf_counter()
        with telemetry.span("foldlog.append", {"conversation": conversation}) as attributes:
            token = _appends.set(True)
            try:
                recorded = super().append(conversation, events, **options)
            except VersionConflict:
                telemetry.add("foldlog.conflicts", 1, {"foldlog.of": "append"})
                raise
            finally:
                _appends.reset(token)
            if recorded:
                first = recorded[0].event.id
                last = recorded[-1].event.id
                attributes |= {"event.first": first, "event.last": last}
            telemetry.add("foldlog.appends", 1)
            telemetry.record("foldlog.append.duration", time.perf_counter() - started_at)
        return recorded

    def _commit(self, work: Appending) -> tuple[Recorded, ...]:
        recorded = super()._commit(work)
        self._telemetry.add("foldlog.append.events", len(work.appended))
        size = sum(size_of(encoded.body) for encoded in work.appended)
        self._telemetry.add("foldlog.append.bytes", size)
        return recorded

    def _encode(self, event: Event | Encoded, *, finite: bool = True) -> Encoded:
        # An imported event stays unchanged.
        if not _appends.get() or not finite or isinstance(event, Encoded):
            return super()._encode(event, finite=finite)
        context = trace.get_current_span().get_span_context()
        if context.is_valid and event.origin is None and TRACEPARENT not in event.meta:
            parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
            event = replace(event, meta={**event.meta, TRACEPARENT: parent})
        return super()._encode(event)
