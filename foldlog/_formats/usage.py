"""Find the calls of models and their cost in the events of a history.

Native events have them in ``meta`` (``model``, ``usage``, ``cost``). Condensers have them in their
reports, one for each call, also of a call that failed. Importers copy them from the records into
``meta``; some formats have them in annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeGuard

from foldlog._formats.event_fields import id_of_source
from foldlog._formats.record import dict_or_empty, text_or_none, time_in, within
from foldlog._usage import COPIED, OF_NO_MODEL, cost_of, usage_of
from foldlog.condensers import model_of, on_a_model, reports_of
from foldlog.eventstore import Action, CondensationAction, Event
from foldlog.projections import begins_reply

UNNAMED = "(not named)"
OF_CONDENSER = "condenser"
"""What OpenHands names the use of a model by its condenser."""


class ModelCall(NamedTuple):
    """One or more calls of a model; ``calls`` is 0 where a source does not tell how many it adds
    up. ``at`` is None where no time is known; a time without a zone counts as UTC. ``usage`` has
    the tokens that are told, see ``usage_of``; ``cost`` is None where none is told. ``reply`` is
    the id of the reply, where other histories may repeat it. ``by_condenser``: they are not the
    agent's. ``event_id`` is that of the event that tells them, -1 of what the source tells beside
    its records. ``is_total``: by the source, all calls of the run are in them.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldUsage:
    """How the events of a format tell the calls of models.

    ``calls``      reads them; None: each reply tells its own usage, in ``meta``
    ``is_copied``  its program forks a history by copying its replies under new ids: their time,
                   tokens and cost stay
    """

    calls: Callable[[Iterable[Event]], Iterator[ModelCall]] | None = None
    is_copied: bool = False


IN_REPLIES = ToldUsage()
"""Of most formats."""


def begins_call(event: Event, before: Event | None) -> bool:
    """Return whether the agent's model was called for this event, after it said ``before``: see
    ``begins_reply``. A reply of the program, in which the agent runs, is not one, nor is a copy.
    """
    return (
        event.meta.get("model") != OF_NO_MODEL
        and not is_copy(event)
        and begins_reply(event, before)
    )


def is_copy(event: Event) -> bool:
    """Return whether an imported event happened in another history, if at all."""
    return event.origin is not None and event.meta.get(COPIED) is True


def is_call(event: Event) -> TypeGuard[Action]:
    """Return whether an event is a call of a tool by the agent; what the user or the program did is
    not one, nor is a copy.
    """
    return type(event) is Action and event.source == "agent" and not is_copy(event)


def calls_of_event(recorded_at: datetime, event: Event) -> Iterator[ModelCall]:
    """Yield the calls that a native event, or the reports of a condenser in it, record."""
    at = event.timestamp or recorded_at
    if isinstance(event, CondensationAction):
        told = event.metadata
    else:
        told = event.meta
    reports = on_a_model(reports_of(event))
    for report in reports:
        metrics = report["metrics"]
        attempts = metrics.get("attempts")
        number = attempts if type(attempts) is int and attempts > 0 else 1
        yield _call(at, model_of(report) or told.get("model"), metrics, number)._replace(
            by_condenser=True
        )
    is_told = (
        told.get("model")
        or isinstance(told.get("usage"), dict)
        or cost_of(told.get("cost")) is not None
    )
    if is_told and not reports:
        yield _call(at, told.get("model"), told)._replace(
            by_condenser=isinstance(event, CondensationAction)
        )


def _call(at: datetime | None, model: object, told: Mapping[str, Any], calls: int = 1) -> ModelCall:
    usage = told.get("usage")
    counted = usage_of(usage if isinstance(usage, dict) else told)
    return ModelCall(at, model_named({"model": model}), counted, cost_of(told.get("cost")), calls)


def calls_beside(told: Iterable[Any], before: Iterable[Any] = ()) -> Iterator[ModelCall]:
    """Yield the calls that a source tells of beside its records: with a ``reply`` one call, else
    all of the run. Of the run it yields what is above what was told ``before`` of the same use of a
    model.
    """
    runs = {
        repr(each.get("use")): each
        for each in before
        if isinstance(each, dict) and not text_or_none(each.get("reply"))
    }
    for each in told:
        if isinstance(each, dict):
            call = _of_source(each)
            if call.reply is None and (known := runs.get(repr(each.get("use")))) is not None:
                past = _of_source(known)
                usage = {
                    name: max(0, number - past.usage.get(name, 0))
                    for name, number in call.usage.items()
                }
                if call.cost is None:
                    cost = None
                else:
                    cost = max(0.0, call.cost - (past.cost or 0.0))
                call = call._replace(usage=usage, cost=cost, calls=max(1, call.calls - past.calls))
            if any(call.usage.values()) or call.cost:
                yield call


def _of_source(told: Mapping[str, Any]) -> ModelCall:
    calls = told.get("calls")
    call = _call(
        time_in(told.get("at")),
        told.get("model"),
        told,
        calls if type(calls) is int and calls > 0 else 1,
    )
    reply = text_or_none(told.get("reply"))
    is_condenser = told.get("use") == OF_CONDENSER
    return call._replace(reply=reply, by_condenser=is_condenser, is_total=reply is None)


# -- what readers of formats use
# --------------------------------------------------------------------------------------


def call_told_by(
    event: Event,
    model: str,
    usage: Mapping[str, int],
    cost: float | None = None,
    calls: int = 1,
    use: object = "",
) -> ModelCall:
    """Return the call that an event tells. Where it names no reply its record is one; ``use`` tells
    it from others.
    """
    at = event.timestamp or time_in(None if event.origin is None else event.origin.time)
    named = event.meta.get("reply") or id_of_source(event)
    reply = f"{named} {use}".strip() if type(named) is str else None
    return ModelCall(
        at, model, usage, cost, calls, reply, isinstance(event, CondensationAction), event.id
    )


def _tells(event: Event) -> bool:
    told = event.meta
    return bool(told) and bool(
        told.get("accumulated") or inner(told, "usage") or cost_of(told.get("cost")) is not None
    )


def calls_of_replies(events: Iterable[Event]) -> Iterator[ModelCall]:
    """Read ``meta``. Count each reply once: one of several events has the usage up to each, so only
    the last counts.
    """
    replies: dict[str | int, Event] = {}
    for event in events:
        if _tells(event):
            replies[str(event.meta["reply"]) if "reply" in event.meta else event.id] = event
    for last in replies.values():
        told = last.meta
        calls = told["calls"] if type(told.get("calls")) is int else 1
        yield call_told_by(
            last,
            model_named(told),
            usage_of(inner(told, "usage")),
            cost_of(told.get("cost")),
            calls,
        )


def at_total(call: ModelCall, total: Mapping[str, Any]) -> ModelCall:
    """Return a call of which copies of its log have the same total at the same time."""
    counted = f"{tokens_of(total)} {total.get('cost', '')}".strip()
    return call._replace(reply=None if call.at is None else f"{call.at.isoformat()} {counted}")


class Accumulated:
    """A count that accumulates. A program combines several: a part may be missing after a restart
    of the agent, and the count falls a little: what calls added since is not known. It began again
    at 0 where less than half is left. A call that tells its ``own`` usage has no fewer tokens than
    that, whatever fell.
    """

    def __init__(self) -> None:
        self._usage: Mapping[str, int] = {}
        self._cost = 0.0

    def added(self, told: ModelCall, own: Mapping[str, int] = {}) -> Iterator[ModelCall]:
        """Yield what these figures add to the highest before; nothing if they add nothing. A cost
        of 0 is unknown.
        """
        usage = told.usage
        total = told.cost or 0.0
        if usage and usage.get("prompt_tokens", 0) < self._usage.get("prompt_tokens", 0) / 2:
            self._usage = {}
        if 0 < total < self._cost / 2:
            self._cost = 0.0
        old = self._usage
        paid = max(0.0, total - self._cost)
        new = {
            name: max(0, own.get(name, 0), count - old.get(name, 0))
            for name, count in usage.items()
        }
        self._usage = {
            **old,
            **{
                name: count if own else max(old.get(name, 0), count)
                for name, count in usage.items()
            },
        }
        self._cost += paid
        if paid or any(new.values()):
            yield told._replace(usage=new, cost=paid if total else None)


# -- figures
# --------------------------------------------------------------------------------------------------


def inner(value: Any, *names: str) -> Mapping[str, Any]:
    """Return the object under these names; an empty one where there is none."""
    return dict_or_empty(within(value, *names))


def tokens_of(told: Any) -> int:
    usage = usage_of(told)
    return usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)


def model_named(told: Mapping[str, Any]) -> str:
    """Return the name of the model that is told."""
    return text_or_none(told.get("model")) or UNNAMED
