"""The law of Views, written down again from its definition: nothing of the product is used but its events. Units are
those of the model of a store in ``tests.simulation``.

A View is a list of items. Each function says one paragraph of the law, as plainly as can be and at any cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from foldlog.eventstore.events import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Event,
    Message,
    Observation,
    SystemMessage,
    UnknownEvent,
)
from tests.simulation import model

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
    told: tuple[tuple[int, ...], frozenset[int]] | None = None
    """Its cut points, and the ids that are sent, where these are not the law's: it knows no bonds of events."""

    def ids(self) -> list[int]:
        return [item.id for item in self.items]


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
        case CondensationSummary():
            return Item(event.id, "summary", text=event.content)
        case Annotation() | UnknownEvent():
            return Item(event.id, "note")
    raise AssertionError(f"the attack writes no {type(event).__name__}")


def text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content) if isinstance(content, list | tuple) else ""


once = lru_cache(maxsize=256)
"""The law of one View is asked for many times."""


# --- units: those of the model of a store ---


class _Items(model.Conversation):
    """The items of one View, as the model of a store knows events."""

    def __init__(self, items: Iterable[Item]) -> None:
        super().__init__("attacked")
        self.items = {item.id: {**asdict(item), "kind": _KINDS.get(item.kind, item.kind)} for item in items}

    def item(self, item_id: int) -> model.Event:
        return self.items[item_id]


_KINDS = {"summary": "condensation_summary"}


@once
def modelled(view: Shown) -> tuple[model.Conversation, model.Shown]:
    """The View as the model's, in which what no model sees is left behind too."""
    notes = {item.id for item in view.items if item.kind not in SEEN}
    return _Items(view.items), model.Shown(tuple(view.ids()), view.requested, view.left_behind | notes)


def units(view: Shown) -> list[set[int]]:
    conversation, shown = modelled(view)
    return conversation.units(shown)


def loops(view: Shown) -> list[set[int]]:
    conversation, shown = modelled(view)
    return conversation.loops(shown)


def answered(view: Shown) -> dict[int, int]:
    """The action that each observation answers."""
    conversation, shown = modelled(view)
    return conversation.calls(shown)[0]


@once
def cut_points(view: Shown) -> list[int]:
    if view.told is not None:
        return list(view.told[0])
    conversation, shown = modelled(view)
    return conversation.cut_points(shown)


@once
def sent(view: Shown) -> set[int]:
    """The ids of what is sent to a model."""
    if view.told is not None:
        return set(view.told[1])
    conversation, shown = modelled(view)
    return set(conversation.fit(shown))


def waiting(view: Shown) -> set[int]:
    """The newest calls of one response while one of them waits: nothing but their own members follows their start."""
    conversation, shown = modelled(view)
    _, orphans, _ = conversation.calls(shown)
    for batch in conversation.batches(shown):
        start = next(place for place, item_id in enumerate(shown.ids) if item_id in batch)
        following = set(shown.ids[start:]) - orphans - shown.left
        if batch & set(conversation.open_calls(shown)) and following == batch:
            return batch
    return set()


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
    left = view.left_behind.union(*(unit - gone for unit in units(view) if unit & gone))
    items = tuple(item for item in view.items if item.id not in gone)
    return replace(view, items=items, left_behind=left & {item.id for item in items})
