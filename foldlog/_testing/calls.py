"""Find the calls of the agent's model in a history, each with its request and its reply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msgspec import structs

from foldlog._base.json_types import JsonMap
from foldlog._base.telemetry import SHOWN
from foldlog._base.values import parse
from foldlog._history.history import History
from foldlog._history.request_names import is_of_reply
from foldlog.eventstore import Action, Event, Observation
from foldlog.formats.model_calls import begins_call
from foldlog.formats.record import dict_or_empty
from foldlog.projections import begins_reply, contains, intervals_kept
from foldlog.projections.messages.requests import REQUEST


@dataclass(frozen=True)
class RecordedCall:
    """A call of the model. ``number`` counts from 1."""

    number: int
    reply: tuple[Event, ...]

    @property
    def request(self) -> JsonMap:
        """The fingerprint of the request, or an empty map if it is not recorded."""
        return dict_or_empty(self.reply[0].meta.get(REQUEST))

    @property
    def version(self) -> int:
        """The version of the View that was sent."""
        first = self.reply[0]
        version: int = self.request.get("view", first.meta.get(SHOWN, first.id))
        return version


def recorded_calls(history: History) -> list[RecordedCall]:
    """Return the calls in order, without retracted calls. If nothing was shown to the model between
    two of its events, they belong to one call. Cost: the function reads all events.
    """
    replies: list[list[Event]] = []
    previous: Event | None = None
    is_answered = True
    for event in standing_events(history):
        if previous is not None and (
            is_of_reply(event, previous)
            or (begins_reply(event) and not is_answered and not _are_apart(event, previous))
        ):
            replies[-1].append(event)
        elif begins_call(event, None):
            replies.append([event])
        else:
            is_answered = is_answered or event.shown
            continue
        previous = event
        is_answered = False
    return [RecordedCall(number, tuple(reply)) for number, reply in enumerate(replies, 1)]


def join_replies(events: Iterable[Event], first_id: int) -> Iterator[Event]:
    """Yield events with ids from ``first_id`` on. Neighboring events of the agent become one reply,
    because some SDKs write the text and the calls of a reply as one message, and others do not.
    """
    reply = ""
    for event_id, event in enumerate(events, first_id):
        if begins_reply(event):
            reply = reply or f"reply-{event_id}"
            event = structs.replace(event, meta={**event.meta, "reply": reply})
        else:
            reply = ""
        if isinstance(event, Action) and reply:
            event = structs.replace(event, response_id=reply)
        yield structs.replace(event, id=event_id)


def _are_apart(event: Event, previous: Event) -> bool:
    """Return whether two events name different replies."""
    ids = {getattr(event, "response_id", None), getattr(previous, "response_id", None)}
    return len(ids) > 1 and None not in ids


def standing_events(history: History) -> Iterator[Event]:
    """Return the events that are not retracted."""
    version = history.version()
    structural = history._store.query(
        history.id, lambda read: [*read.structural_events(0, version)]
    )
    intervals = intervals_kept(structural, version)
    return (event for event in history.events(0, version) if contains(intervals, event.id))


def groups_of_parallel_results(events: Iterable[Event]) -> dict[int, str]:
    """Map the id of each result of parallel calls to a name of its group. Such results come in
    the order in which their tools ended, so in another run their ids may be exchanged.
    """
    names: dict[int, str] = {}
    together: list[Event] = []
    for event in [*events, None]:
        if isinstance(event, Observation) or (event is not None and not event.shown):
            together.append(event)
            continue
        if sum(isinstance(member, Observation) for member in together) > 1:
            name = f"{together[0].id}-{together[-1].id}"
            names |= {member.id: name for member in together}
        together = []
    return names


Results = list[tuple[Action, Observation]]
"""The results of tools that a program has not used yet, with their calls."""


def recorded_results(history: History, start: int = 0) -> Results:
    """Return the results of the calls from event ``start`` on. Cost: reading these events."""
    calls: dict[str | None, Action] = {}
    results: Results = []
    for event in history.events(start):
        if isinstance(event, Action):
            calls[event.call_id] = event
        elif isinstance(event, Observation) and event.call_id in calls:
            results.append((calls.pop(event.call_id), event))
    return results


def take_result(results: Results, tool: str, arguments: object) -> Observation | None:
    """Remove and return the result of the first call with these arguments."""
    for index, (call, result) in enumerate(results):
        # An import stores arguments as the text that the model wrote.
        if call.tool == tool and parse(call.arguments) == parse(arguments):
            del results[index]
            return result
    return None
