"""The law of Views, written down again from its definition: nothing of the product is used but its events.

A View is a list of items. Each function says one paragraph of the law, as plainly as can be and at any cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from foldlog.eventstore.events import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    Event,
    Message,
    Observation,
    SystemMessage,
)

SEEN = ("system", "message", "action", "observation", "summary")


@dataclass(frozen=True)
class Item:
    """An event as far as the law knows it. ``kind`` is one of ``SEEN``, or ``note``, which no model sees."""

    id: int
    kind: str
    by_user: bool = False
    by_agent: bool = False
    call_id: str | None = None
    response_id: str | None = None
    thinking: bool = False
    cause: int | None = None
    text: str = ""
    tool: str = ""
    query: object = None


@dataclass(frozen=True)
class Shown:
    """A View: what is shown, what was left behind, whether a condensation is requested, and at which version."""

    items: tuple[Item, ...] = ()
    left_behind: frozenset[int] = frozenset()
    requested: bool = False
    version: int = 0

    def ids(self) -> list[int]:
        return [item.id for item in self.items]


@dataclass
class Unit:
    """Calls of one response with their observations, or a tool loop. Places in the View."""

    members: list[int] = field(default_factory=list)
    unanswered: int = 0
    is_loop: bool = False


def item_of(event: Event) -> Item | None:
    """The item that an event is; None for the structural ones and for those that no View shows."""
    if isinstance(event, CondensationAction | CondensationRequest) or not event.shown:
        return None
    match event:
        case SystemMessage():
            return Item(event.id, "system", text=text_of(event.content))
        case Message():
            by = event.source
            return Item(event.id, "message", by == "user", by == "agent", text=text_of(event.content))
        case Action():
            arguments = event.arguments if isinstance(event.arguments, dict) else {}
            return Item(
                event.id,
                "action",
                by_agent=event.source == "agent",
                call_id=event.call_id,
                response_id=event.response_id,
                thinking=bool(event.thinking),
                text=str(arguments.get("text", "")),
                tool=event.tool,
                query=arguments.get("query"),
            )
        case Observation():
            return Item(
                event.id,
                "observation",
                call_id=event.call_id,
                cause=event.cause,
                text=text_of(event.content),
                tool=event.tool,
            )
        case Annotation():
            return Item(event.id, "note")
    raise AssertionError(f"the attack writes no {type(event).__name__}")


def text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content) if isinstance(content, list | tuple) else ""


once = lru_cache(maxsize=256)
"""The law of one View is asked for many times."""


# --- units ---


@once
def calls(view: Shown) -> tuple[dict[int, int], dict[int, int]]:
    """The place of the action that each observation answers, and of the first action of each action's response.

    A response ends at an action with another response id, or with a call id that it has an answer for; once all of it
    is answered, also at a summary. An observation answers the open call with its call id that is its cause, or else the
    first of those of the newest response that has any; without a call id its cause.
    """
    answered: dict[int, int] = {}
    response: dict[int, int] = {}
    open_calls: dict[int, Item] = {}
    first: int | None = None
    seen: set[str] = set()
    for place, item in alive(view):
        if item.kind == "action":
            begins = first is None or item.response_id != view.items[first].response_id or item.call_id in seen
            first, seen = (place, set()) if begins else (first, seen)
            response[place] = place if first is None else first
            first = None if item.response_id is None else first
            open_calls[place] = item
        elif item.kind == "observation":
            fitting = [earlier for earlier, call in open_calls.items() if item.call_id in (None, call.call_id)]
            caused = [earlier for earlier in fitting if open_calls[earlier].id == item.cause]
            newest = [earlier for earlier in fitting if response[earlier] == response[fitting[-1]]]
            found = caused or (newest if item.call_id is not None else [])
            if found:
                answered[place] = found[0]
                seen |= {open_calls.pop(found[0]).call_id or ""} - {""}
        elif item.kind == "summary" and first not in [response[earlier] for earlier in open_calls]:
            first = None
    return answered, response


@once
def alive(view: Shown) -> list[tuple[int, Item]]:
    """What a model may see, with its place, but for what was left behind."""
    return [
        (place, item) for place, item in enumerate(view.items) if item.kind in SEEN and item.id not in view.left_behind
    ]


@once
def orphans(view: Shown) -> set[int]:
    answered, _ = calls(view)
    return {place for place, item in alive(view) if item.kind == "observation" and place not in answered}


@once
def parallel_calls(view: Shown) -> list[Unit]:
    """The actions of one response with their observations; an action without a response id is alone."""
    found: dict[object, Unit] = {}
    home: dict[int, Unit] = {}
    answered, response = calls(view)
    for place, item in alive(view):
        if item.kind == "action":
            unit = found.setdefault(response[place], Unit())
            unit.members.append(place)
            unit.unanswered += place not in answered.values()
            home[place] = unit
        elif place in answered:
            home[answered[place]].members.append(place)
    return list(found.values())


@once
def loops(view: Shown) -> list[Unit]:
    """A loop starts at an action with thinking, runs through actions and their observations, and ends at any other
    item or at the next action with thinking. Orphans, and what no model sees, neither belong to it nor end it.
    """
    found: list[Unit] = []
    running: Unit | None = None
    without_call = orphans(view)
    for place, item in alive(view):
        if place in without_call:
            continue
        if item.kind == "action" and item.thinking:
            running = Unit(is_loop=True)
            found.append(running)
        elif item.kind not in ("action", "observation"):
            running = None
        if running is not None:
            running.members.append(place)
    return found


def waiting(view: Shown) -> list[int]:
    """The newest calls of one response while one of them waits: nothing but their own members follows their start."""
    without_call = orphans(view)
    for unit in parallel_calls(view):
        following = [place for place, _ in alive(view) if place >= unit.members[0] and place not in without_call]
        if unit.unanswered and following == unit.members:
            return unit.members
    return []


@once
def cut_points(view: Shown) -> list[int]:
    """Every index but those inside whole parallel calls, inside a loop, and after the start of calls that wait."""
    spans = [(unit.members[0], unit.members[-1]) for unit in parallel_calls(view) if not unit.unanswered]
    spans += [(unit.members[0], unit.members[-1]) for unit in loops(view)]
    spans += [(members[0], len(view.items)) for members in [waiting(view)] if members]
    return [index for index in range(len(view.items) + 1) if not any(first < index <= last for first, last in spans)]


@once
def unseen(view: Shown) -> int:
    """The place from which on no model was shown the items: that of the agent's last words or calls, which came of one
    response.
    """
    said = [place for place, item in enumerate(view.items) if item.by_agent]
    if not said:
        return len(view.items)
    first = said[-1]
    response = view.items[first].response_id
    for place in range(first - 1, -1, -1):
        item = view.items[place]
        if response is None or (item.by_agent and item.response_id != response):
            break
        first = place if item.by_agent else first
    return first


@once
def sent(view: Shown) -> set[int]:
    """The ids of what is sent to a model: no orphans; no parallel calls with an unanswered one; none that lost a
    member; no loop that lost something before its last surviving member. Until nothing changes.
    """
    kept = {place for place, _ in alive(view)} - orphans(view)
    for unit in parallel_calls(view):
        if unit.unanswered:
            kept -= set(unit.members)
    whole = [unit for unit in parallel_calls(view) if not unit.unanswered]
    while True:
        lost: set[int] = set()
        for unit in whole:
            if not set(unit.members) <= kept:
                lost |= kept & set(unit.members)
        for unit in loops(view):
            surviving = [place for place in unit.members if place in kept]
            if surviving and surviving != unit.members[: len(surviving)]:
                lost |= set(surviving)
        if not lost:
            return {view.items[place].id for place in kept}
        kept -= lost


# --- the fold ---


def folded(view: Shown, events: Iterable[Event]) -> Shown:
    for event in events:
        assert event.id == view.version, "ids are dense"
        view = replace(view, version=view.version + 1)
        if isinstance(event, CondensationRequest):
            view = replace(view, requested=True)
        elif isinstance(event, CondensationAction):
            view = condensed(replace(view, requested=False), event)
        else:
            item = item_of(event)
            view = view if item is None else replace(view, items=(*view.items, item))
    return view


def named(action: CondensationAction) -> set[int]:
    if action.forgotten_event_ids is not None:
        return set(action.forgotten_event_ids)
    assert action.forgotten_events_start_id is not None
    assert action.forgotten_events_end_id is not None
    return set(range(action.forgotten_events_start_id, action.forgotten_events_end_id + 1))


def condensed(view: Shown, action: CondensationAction) -> Shown:
    """Drop what it names; the summary goes to its offset."""
    after = without(view, named(action))
    if action.summary is None or action.summary_offset is None:
        return after
    items = list(after.items)
    items.insert(action.summary_offset, Item(-(action.id + 2), "summary", text=action.summary))
    return replace(after, items=tuple(items))


def without(view: Shown, gone: set[int]) -> Shown:
    """Drop these; what stays of a unit that lost a part is left behind."""
    left = set(view.left_behind)
    for unit in (*parallel_calls(view), *loops(view)):
        ids = {view.items[place].id for place in unit.members}
        if ids & gone:
            left |= ids - gone
    items = tuple(item for item in view.items if item.id not in gone)
    return replace(view, items=items, left_behind=frozenset(left & {item.id for item in items}))
