"""Find the calls of models and their cost in the events of a history.

Native events have them in ``meta`` (``model``, ``usage``, ``cost``). Condensers have them in their reports, one for
each call, also of a call that failed. Importers copy them from the records into ``meta``; some formats have them in
annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from foldlog._usage import usage_of
from foldlog._words.times import time_in
from foldlog.condensers import model_of, on_a_model, reports_of
from foldlog.eventstore import Annotation, CondensationAction, Event, SystemMessage

UNNAMED = "(not named)"


class ModelCall(NamedTuple):
    """One or more calls of a model. ``at`` is None where no time is known; a time without a zone counts as UTC.
    ``usage`` has the tokens that are told, see ``usage_of``; ``cost`` is None where none is told. ``reply`` is the id
    of the reply, where other histories may repeat it.
    """

    at: datetime | None
    model: str
    usage: Mapping[str, int] = {}
    cost: float | None = None
    calls: int = 1
    reply: str | None = None


def calls_of_event(recorded_at: datetime, event: Event) -> Iterator[ModelCall]:
    """Yield the calls that a native event, or the reports of a condenser in it, record."""
    at = event.timestamp or recorded_at
    reports = on_a_model(reports_of(event))
    for report in reports:
        metrics = report["metrics"]
        attempts = metrics.get("attempts")
        yield _call(at, model_of(report), metrics, attempts if type(attempts) is int and attempts > 0 else 1)
    told = event.metadata if isinstance(event, CondensationAction) else event.meta
    is_told = told and (told.get("model") or isinstance(told.get("usage"), dict) or _cost(told.get("cost")) is not None)
    if is_told and not reports:
        yield _call(at, told.get("model"), told)


def _call(at: datetime, model: object, told: Mapping[str, Any], calls: int = 1) -> ModelCall:
    usage = told.get("usage")
    counted = usage_of(usage if isinstance(usage, dict) else told)
    return ModelCall(at, _name({"model": model}), counted, _cost(told.get("cost")), calls)


def calls_of_imported(events: Iterable[Event], format: str) -> Iterator[ModelCall]:
    """Yield the calls that imported events of one history record."""
    return _READERS.get(format, _of_replies)(event for event in events if event.origin is not None)


def counts_on(format: str) -> bool:
    """Return whether the calls in some events of this format are told without the events before them."""
    return format not in _READERS


# -- formats ----------------------------------------------------------------------------------------------------------


def _at(event: Event) -> datetime | None:
    return event.timestamp or time_in(None if event.origin is None else event.origin.time)


def _of_replies(events: Iterable[Event]) -> Iterator[ModelCall]:
    """Read ``meta``. Count each reply once: one of several events has the usage up to each, so only the last counts."""
    replies: dict[str | int, ModelCall] = {}
    for event in events:
        usage, cost = _inner(event.meta, "usage"), _cost(event.meta.get("cost"))
        if usage or cost is not None:
            reply = str(event.meta["reply"]) if "reply" in event.meta else None
            call = ModelCall(_at(event), _name(event.meta), usage_of(usage), cost, reply=reply)
            replies[event.id if reply is None else reply] = call
    yield from replies.values()


def _of_codex(events: Iterable[Event]) -> Iterator[ModelCall]:
    """Read ``token_count``, which has the usage of the last call; ``turn_context`` names the model."""
    model, seen = UNNAMED, None
    for event in events:
        if isinstance(event, SystemMessage):
            model = event.meta.get("model", model)
        if not isinstance(event, Annotation) or not isinstance(event.data, dict):
            continue
        if event.name == "turn_context":
            model = _name(event.data)
        info = event.data.get("info") if event.name == "token_count" else None
        last = info.get("last_token_usage") if isinstance(info, dict) else None
        if isinstance(info, dict) and isinstance(last, dict) and info.get("total_token_usage") != seen:
            seen = info.get("total_token_usage")  # the same count is often written twice
            yield ModelCall(_at(event), model, usage_of(last))


def _of_copilot(events: Iterable[Event]) -> Iterator[ModelCall]:
    """Read what the end of a session counts; of replies that no end follows, the tokens that they have."""
    replies: list[Event] = []
    for event in events:
        is_end = isinstance(event, Annotation) and event.name == "session.shutdown"
        metrics = _inner(event.data, "modelMetrics") if isinstance(event, Annotation) and is_end else {}
        if metrics:
            replies.clear()
        else:
            replies.append(event)
        for model, told in metrics.items():
            usage, calls = _inner(told, "usage"), _inner(told, "requests").get("count")
            counts = {ours: usage.get(f"{theirs}Tokens") for ours, theirs in _OF_COPILOT.items()}
            yield ModelCall(_at(event), model, usage_of(counts), calls=calls if type(calls) is int else 1)
    yield from (call._replace(reply=None) for call in _of_replies(replies))


_OF_COPILOT = {
    "prompt_tokens": "input",
    "cached_tokens": "cacheRead",
    "cache_write_tokens": "cacheWrite",
    "completion_tokens": "output",
}


def _of_openhands_v0(events: Iterable[Event]) -> Iterator[ModelCall]:
    """Count differences: the metrics accumulate."""
    model, before = UNNAMED, ModelCall(None, UNNAMED)
    for event in events:
        model = event.meta.get("model", model)
        usage = _inner(event.meta, "accumulated")
        if not usage:
            continue
        cost = _cost(usage.get("cost")) or None
        total = ModelCall(None, model, usage_of(usage), cost)
        yield from _since(before, total, _at(event))
        before = total


def _of_openhands_v1(events: Iterable[Event]) -> Iterator[ModelCall]:
    """Count differences: the state's ``stats`` accumulate, for each use of a model apart."""
    before: dict[str, ModelCall] = {}
    for event in events:
        if not isinstance(event, Annotation) or not isinstance(event.data, dict):
            continue
        key, value = event.data.get("key"), event.data.get("value")
        stats = value if key == "stats" else _inner(value, "stats") if key == "full_state" else {}
        for use, metrics in _inner(stats, "usage_to_metrics").items():
            usage, cost = _inner(metrics, "accumulated_token_usage"), _accumulated_cost(_inner(metrics))
            model = str(_inner(metrics).get("model_name") or UNNAMED)
            total = ModelCall(None, model, usage_of(usage), cost)
            yield from _since(before.get(use, ModelCall(None, model)), total, _at(event))
            before[use] = total


_READERS: Mapping[str, Callable[[Iterable[Event]], Iterator[ModelCall]]] = {
    "codex": _of_codex,
    "copilot-cli": _of_copilot,
    "openhands-v0": _of_openhands_v0,
    "openhands-v1": _of_openhands_v1,
}


def _since(before: ModelCall, total: ModelCall, at: datetime | None) -> Iterator[ModelCall]:
    """Yield what was added to accumulated figures; nothing if nothing was added. If a figure has fallen, it began again
    at 0.
    """
    prompts = (each.usage.get("prompt_tokens", 0) for each in (total, before))
    began_again = next(prompts) < next(prompts) or (total.cost or 0.0) < (before.cost or 0.0)
    old = ModelCall(None, total.model) if began_again else before
    usage = {name: max(0, count - old.usage.get(name, 0)) for name, count in total.usage.items()}
    cost = None if total.cost is None else total.cost - (old.cost or 0.0)
    if cost or any(usage.values()):
        yield ModelCall(at, total.model, usage, cost)


# -- figures ----------------------------------------------------------------------------------------------------------


def _inner(value: Any, *names: str) -> Mapping[str, Any]:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _cost(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 <= value < float("inf") else None


def _accumulated_cost(metrics: Mapping[str, Any]) -> float | None:
    """Return a cost as OpenHands accumulates it: it writes 0 where it knows no price."""
    return _cost(metrics.get("accumulated_cost")) or None


def _name(told: Mapping[str, Any]) -> str:
    model = told.get("model")
    return model if isinstance(model, str) and model else UNNAMED
