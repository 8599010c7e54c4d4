"""Count what an export leaves out: events without a record, and fields that the format does not
have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from foldlog._base.json_types import JsonMap
from foldlog.eventstore import (
    ATTRIBUTES,
    Action,
    CondensationAction,
    DocumentChanges,
    Event,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.eventstore.usage import IMPORTED
from foldlog.formats.event_fields import parts_in
from foldlog.formats.event_places import is_declined
from foldlog.formats.format import Format
from foldlog.formats.record import UNREAD, dict_or_empty
from foldlog.projections.conversations.labels import label
from foldlog.projections.messages.content import content_of

_NAMES = {"system": "system prompt", "error": "observation", "redaction": "redaction receipt"}
_PARTS = {"image_url": "image", "file": "file", "server_tool": "call of a server's tool"}
_TOKENS = "count of tokens"
_COST = "cost"


class ExportNotes:
    """Counts what one export in a format leaves out."""

    def __init__(self, format: Format) -> None:
        self._lacks = format.lacks or frozenset()
        self._lost = Counter[str]()
        self._hidden = Counter[str]()
        self._has_begun = False
        """Whether an event was written that is no system prompt."""
        self._replies = set[str]()
        """The replies whose usage was counted. The events of a reply repeat its usage."""

    def leave_out(self, event: Event, *, hidden: bool = False) -> None:
        """Count an event for which the export has no record. ``hidden`` is true if no model saw the
        event.
        """
        changed: JsonMap = event.changed if isinstance(event, DocumentChanges) else {}
        if IMPORTED in changed:
            self._lost["total of tokens and cost"] = 1
        elif UNREAD not in changed and not is_declined(event):
            counts = self._hidden if hidden else self._lost
            counts[_noun_of_event(event)] += 1

    def write(self, event: Event) -> None:
        """Count the fields of a written event that the format does not have."""
        reply = event.meta.get("reply")
        is_counted = type(reply) is str and reply in self._replies
        nouns = [*_nouns_of_event(event)]
        if not isinstance(event, SystemMessage):
            self._has_begun = True
        elif self._has_begun:
            nouns.append("role of a later system prompt")
        else:
            kinds = (part.get("type") for part in parts_in(event.content))
            nouns += ["other part of a system prompt" for kind in kinds if kind != "text"]
        self._lost.update(
            noun
            for noun in nouns
            if noun in self._lacks and not (is_counted and noun in (_TOKENS, _COST))
        )
        if type(reply) is str:
            self._replies.add(reply)

    def end(self) -> list[str]:
        """Return two texts: a list of the left-out events that a model never saw, and a list of the
        events and fields that the format cannot hold. Each text may be empty.
        """
        counts = (self._hidden, self._lost)
        return [
            ", ".join(several(number, noun) for noun, number in count.items() if number)
            for count in counts
        ]


def several(number: int, noun: str) -> str:
    """Return a number and a noun: ``1 image``, ``2 changes of documents``."""
    singular, of, rest = noun.partition(" of ")
    return f"{number} {singular}{'' if number == 1 else 's'}{of}{rest}"


def _noun_of_event(event: Event) -> str:
    """Return what an event is, for a note."""
    word = label(event)
    if isinstance(event, DocumentChanges):
        if event.changed.keys() == {ATTRIBUTES}:
            return "change of attributes"
        return "change of documents"
    if isinstance(event, CondensationAction) and word == "system":
        return "replacement of a system prompt"
    if isinstance(event, Message):
        return f"message of the {word}"
    return _NAMES.get(word, word)


def _nouns_of_event(event: Event) -> Iterator[str]:
    """Yield what an event has that some formats lack."""
    if isinstance(event, Action) and "custom_tool" in event.meta:
        yield "form of a custom tool's call"
    if isinstance(event, Observation) and event.is_error:
        yield "error mark"
    for part in parts_in(content_of(event)):
        yield from _nouns_of_part(event, part)
    if isinstance(event, Action | Message):
        holder = "call" if isinstance(event, Action) else "message"
        for block in event.thinking:
            yield f"block of thinking of a {holder}"
            if block.get("type") == "reasoning":
                yield "item of reasoning"
            elif "signature" in block or "data" in block:
                yield "signature of thinking"
    if "usage" in event.meta:
        yield _TOKENS
    if "cost" in event.meta:
        yield _COST
    for name in ("message", "call"):
        yield from (f"field of a chat {name}" for _ in dict_or_empty(event.meta.get(name)))


def _nouns_of_part(event: Event, part: JsonMap) -> Iterator[str]:
    """Yield what a part of an event has that some formats lack."""
    if part.keys() != {"type", "text"}:
        if isinstance(event, Observation) and event.is_error:
            yield "part of a failed result"
        elif isinstance(event, SystemMessage):
            yield "part of a system prompt"
    kind = str(part.get("type"))
    if kind != "text":
        yield _PARTS.get(kind, "part of another type")
    elif "cache_control" in part:
        yield "mark of a cache"
    if "detail" in dict_or_empty(part.get(kind)):
        yield "detail of an image"
