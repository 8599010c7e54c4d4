"""Find the calls of the agent's model in a history, each with its request and its reply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from foldlog._base.telemetry import SHOWN
from foldlog._formats.usage import begins_call
from foldlog._history.history import History
from foldlog._history.requests import REQUEST, is_of_reply
from foldlog.eventstore import Action, Event, Observation
from foldlog.projections import begins_reply, contains, intervals_kept

_WAITING_MAX = 3


@dataclass(frozen=True)
class RecordedCall:
    """A call of the model. ``number`` counts from 1, and ``version`` is the version of the View
    that was sent.
    """

    number: int
    version: int
    reply: tuple[Event, ...]

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        recorded = self.reply[0].meta.get(REQUEST)
        return recorded if isinstance(recorded, Mapping) else {}


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
    return [
        RecordedCall(number, _version_shown(reply[0]), tuple(reply))
        for number, reply in enumerate(replies, 1)
    ]


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
    ids = {getattr(each, "response_id", None) for each in (event, previous)}
    return len(ids) > 1 and None not in ids


def standing_events(history: History) -> Iterator[Event]:
    version = history.version()
    structural = history._store.query(
        history.id, lambda read: [*read.structural_events(0, version)]
    )
    intervals = intervals_kept(structural, version)
    return (event for event in history.events(0, version) if contains(intervals, event.id))


def _version_shown(first: Event) -> int:
    request = first.meta.get(REQUEST)
    noted = request.get("view") if isinstance(request, Mapping) else first.meta.get(SHOWN)
    return noted if isinstance(noted, int) else first.id


class RecordedResults:
    """The results of tools that a program has not used yet, with their calls."""

    def __init__(self, results: list[tuple[Action, Observation]]) -> None:
        self._results = results

    def take(self, tool: str, arguments: object) -> Observation | None:
        """Return the result of the first call with these arguments, once for each call."""
        for index, (call, result) in enumerate(self._results):
            if (call.tool, call.arguments) == (tool, arguments):
                del self._results[index]
                return result
        return None

    def waiting(self, tool: str) -> Sequence[object]:
        """Return the arguments of some calls of a tool that were not taken yet."""
        return [call.arguments for call, _ in self._results if call.tool == tool][:_WAITING_MAX]


def recorded_results(history: History, start: int = 0) -> RecordedResults:
    """Return the results of the calls from event ``start`` on. Cost: reading these events."""
    calls: dict[str, Action] = {}
    results: list[tuple[Action, Observation]] = []
    for event in history.events(start):
        if isinstance(event, Action) and event.call_id is not None:
            calls[event.call_id] = event
        elif isinstance(event, Observation) and event.call_id in calls:
            results.append((calls.pop(event.call_id), event))
    return RecordedResults(results)
