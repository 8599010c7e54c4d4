"""Find the calls of models and their cost in the events of a history.

Events that were not imported have model, usage and cost in ``meta``. Condensers write a report for
each call, including failed calls. Imports copy model, usage and cost from the records into
``meta``. Some formats record model, usage and cost in annotations instead.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeGuard

from msgspec import Struct

from foldlog._base.json_types import JsonMap
from foldlog.condensers import model_of, reports_of
from foldlog.eventstore import Action, CondensationAction, Event
from foldlog.eventstore.usage import (
    COPIED,
    SYNTHETIC_MODEL,
    cost_of,
    count_of,
    describes_call,
    recorded_calls,
    reports_usage,
    usage_of,
)
from foldlog.formats.event_fields import id_of_source
from foldlog.formats.record import Fields, dict_or_empty, dicts_in, text_or_none, time_in
from foldlog.projections import begins_reply

UNNAMED = "(not named)"
"""The model of a call that names none."""
OF_CONDENSER = "condenser"
"""OpenHands counts the model calls of its condenser under this name."""


class ModelCall(NamedTuple):
    """One or more calls of a model.

    ``at``            the time of the calls; a time without a zone is read as UTC.
    ``usage``         the recorded tokens: see ``usage_of``.
    ``cost``          the recorded cost in US dollars, or None if no cost is recorded.
    ``calls``         the number of calls, or 0 if the source records only the sum of an unknown
                      number of calls.
    ``reply``         the id of the reply, if other histories may contain copies of the reply.
    ``by_condenser``  whether a condenser made the calls, and not the agent.
    ``event_id``      the event that records the calls, or -1 if no event records them.
    ``is_total``      whether the source adds up all calls of the run.
    ``began``         the first event of the reply, if ``event_id`` is a later one.
    """

    at: datetime | None
    model: str
    usage: Mapping[str, int] = {}
    cost: float | None = None
    calls: int = 1
    reply: str | None = None
    by_condenser: bool = False
    event_id: int = -1
    is_total: bool = False
    began: int | None = None

    @property
    def first_event(self) -> int:
        return self.event_id if self.began is None else self.began


class CallsTakenBack(Exception):
    """An event takes back calls that were counted before, so all events must be counted again."""


class CallsReader(Struct):
    """Reads the calls of models in the events of a history, a part of the events at a time. The
    fields of a subclass say what the reader must know about the earlier events.
    """

    @abstractmethod
    def calls(self, events: Iterable[Event]) -> Iterator[ModelCall]:
        """Yield the calls in the next events. Raises ``CallsTakenBack``."""


class RecordedUsage(Struct, frozen=True, kw_only=True):
    """How the events of a format record the calls of models. Without ``reader`` and ``calls``, each
    reply has its own usage in ``meta``.

    ``reader``     a class that reads the calls in events, if a call depends on earlier events.
    ``calls``      a function that returns the calls in all events of a history.
    ``is_copied``  whether the format's program forks a history by copying replies under new ids.
                   The time, tokens and cost of a copied reply stay the same.
    """

    reader: type[CallsReader] | None = None
    calls: Callable[[Iterable[Event]], Iterator[ModelCall]] | None = None
    is_copied: bool = False


IN_REPLIES = RecordedUsage()
"""Most formats record the calls of models in the ``meta`` of replies."""


def begins_call(event: Event, before: Event | None) -> bool:
    """Return whether the agent's model was called for ``event``. ``before`` is the previous event
    of the model: see ``begins_reply``. Copies of replies, and replies that the program itself
    wrote, are not calls.
    """
    return (
        event.meta.get("model") != SYNTHETIC_MODEL
        and not is_copy(event)
        and begins_reply(event, before)
    )


def is_copy(event: Event) -> bool:
    """Return whether an imported event is a copy, which the program made of another one."""
    return event.origin is not None and event.meta.get(COPIED) is True


def is_call(event: Event) -> TypeGuard[Action]:
    """Return whether the agent called a tool in ``event``. Return False for a copy, and for a call
    of the user or of the program.
    """
    return type(event) is Action and event.source == "agent" and not is_copy(event)


def calls_of_event(recorded_at: datetime, event: Event) -> Iterator[ModelCall]:
    """Yield the calls in an event that was not imported. The calls are in the fields of the event,
    or in its reports from condensers.
    """
    at = event.timestamp or recorded_at
    fields = event.metadata if isinstance(event, CondensationAction) else event.meta
    reports = model_reports(event)
    for report in reports:
        metrics = report["metrics"]
        attempts = count_of(metrics.get("attempts")) or 1
        yield _model_call(at, model_of(report) or fields.get("model"), metrics, attempts)._replace(
            by_condenser=True
        )
    if describes_call(fields) and not reports:
        calls = recorded_calls(fields) or 1
        yield _model_call(at, fields.get("model"), fields, calls)._replace(
            by_condenser=isinstance(event, CondensationAction),
            reply=text_or_none(fields, "reply"),
        )


def model_reports(event: Event) -> list[Fields]:
    """Return the reports on model calls in an event. Other programs may write reports of any
    form, so reports without metrics are left out.
    """
    return [
        report
        for report in dicts_in(reports_of(event))
        if isinstance(report.get("metrics"), dict) and isinstance(report.get("response", {}), dict)
    ]


def _model_call(at: datetime | None, model: object, fields: JsonMap, calls: int = 1) -> ModelCall:
    """Return the call that some fields describe: their ``usage``, or the fields themselves."""
    usage = fields.get("usage")
    tokens = usage_of(usage if isinstance(usage, dict) else fields)
    return ModelCall(at, model_named({"model": model}), tokens, cost_of(fields.get("cost")), calls)


def calls_beside(items: Iterable[Any], earlier_items: Iterable[Any] = ()) -> Iterator[ModelCall]:
    """Yield the calls in ``items``, which a source stores outside of its records. An item with a
    ``reply`` is a single call. An item without a ``reply`` is the sum of a run. If
    ``earlier_items`` has a sum of the same run, yield only the difference.
    """
    earlier_runs = {
        repr(item.get("use")): item
        for item in earlier_items
        if isinstance(item, dict) and not text_or_none(item, "reply")
    }
    for item in items:
        if not isinstance(item, dict):
            continue
        call = _call_of_source(item)
        earlier_run = earlier_runs.get(repr(item.get("use")))
        if call.reply is None and earlier_run is not None:
            call = _difference(call, _call_of_source(earlier_run))
        if any(call.usage.values()) or call.cost:
            yield call


def _difference(total: ModelCall, earlier: ModelCall) -> ModelCall:
    """Return the calls of a run since an earlier sum of it."""
    usage = {
        name: max(0, number - earlier.usage.get(name, 0)) for name, number in total.usage.items()
    }
    cost = None if total.cost is None else max(0.0, total.cost - (earlier.cost or 0.0))
    return total._replace(usage=usage, cost=cost, calls=max(1, total.calls - earlier.calls))


def _call_of_source(fields: JsonMap) -> ModelCall:
    """Return the call, or the sum of a run, that a source stores outside of its records."""
    calls = count_of(fields.get("calls")) or 1
    call = _model_call(time_in(fields.get("at")), fields.get("model"), fields, calls)
    reply = text_or_none(fields, "reply")
    is_condenser = fields.get("use") == OF_CONDENSER
    return call._replace(reply=reply, by_condenser=is_condenser, is_total=reply is None)


# -- what readers of formats use -------------------------------------------------------------------


def call_of_event(
    event: Event,
    model: str,
    usage: Mapping[str, int],
    cost: float | None = None,
    calls: int = 1,
    use: object = "",
) -> ModelCall:
    """Return the call that an event records. The id of the reply is ``meta["reply"]``, or the id of
    the event's record. ``use`` distinguishes calls with the same reply id, such as the agent's and
    the condenser's.
    """
    at = event.timestamp or time_in(None if event.origin is None else event.origin.time)
    reply_id = event.meta.get("reply") or id_of_source(event)
    reply = f"{reply_id} {use}".strip() if type(reply_id) is str else None
    return ModelCall(
        at, model, usage, cost, calls, reply, isinstance(event, CondensationAction), event.id
    )


def calls_of_replies(events: Iterable[Event]) -> Iterator[ModelCall]:
    """Yield the calls in the ``meta`` of events. A reply counts only once. If a reply has several
    events, or if its record is repeated, the usage of the last event counts, because only it covers
    the whole reply.
    """
    replies: dict[str | int, Event] = {}
    began: dict[str | int, int] = {}
    for event in events:
        if event.meta and reports_usage(event.meta):
            reply = event.meta.get("reply") or id_of_source(event)
            name = str(reply) if reply else event.id
            replies[name] = event
            began.setdefault(name, event.id)
    for name, event in replies.items():
        meta = event.meta
        calls = recorded_calls(meta)
        call = call_of_event(
            event,
            model_named(meta),
            usage_of(dict_or_empty(meta, "usage")),
            cost_of(meta.get("cost")),
            1 if calls is None else calls,
        )
        yield call if began[name] == event.id else call._replace(began=began[name])


def at_total(call: ModelCall, total: JsonMap) -> ModelCall:
    """Return ``call`` with a reply id that is made from its time and ``total``. The call gets the
    same id in every copy of the log.
    """
    counts = f"{tokens_of(total)} {total.get('cost', '')}".strip()
    return call._replace(reply=None if call.at is None else f"{call.at.isoformat()} {counts}")


class Accumulated:
    """Computes single calls from a program's running totals of tokens and cost.

    If a total falls a little, the agent lost a part of it in a restart, and the tokens of the calls
    since the restart are unknown. If a total falls below half, the program counts from 0 again.
    """

    def __init__(self) -> None:
        self._usage: Mapping[str, int] = {}
        self._cost = 0.0

    def added(self, counts: ModelCall, own: Mapping[str, int] = {}) -> Iterator[ModelCall]:
        """If the totals in ``counts`` are higher than all earlier totals, yield a call with the
        difference. ``own`` are the tokens of this call, if the program records them too. The
        yielded call has at least the tokens in ``own``. A cost of 0 means that the cost is unknown.
        """
        usage = counts.usage
        total = counts.cost or 0.0
        if usage and usage.get("prompt_tokens", 0) < self._usage.get("prompt_tokens", 0) / 2:
            self._usage = {}
        if 0 < total < self._cost / 2:
            self._cost = 0.0
        highest = self._usage
        cost_added = max(0.0, total - self._cost)
        tokens_added = {
            name: max(0, own.get(name, 0), count - highest.get(name, 0))
            for name, count in usage.items()
        }
        self._usage = {
            **highest,
            **{
                name: count if own else max(highest.get(name, 0), count)
                for name, count in usage.items()
            },
        }
        self._cost += cost_added
        if cost_added or any(tokens_added.values()):
            yield counts._replace(usage=tokens_added, cost=cost_added if total else None)


# -- figures ---------------------------------------------------------------------------------------


def tokens_of(counts: Any) -> int:
    """Return the tokens of prompts and replies together."""
    usage = usage_of(counts)
    return usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)


def model_named(fields: JsonMap) -> str:
    """Return the model that some fields name."""
    return text_or_none(fields, "model") or UNNAMED
