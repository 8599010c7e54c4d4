"""Remember in which messages instructions were said, so that they are not shown a second time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from foldlog._formats.codex.writing import NAME
from foldlog._formats.format import Past
from foldlog._formats.packing import events_of, place_of, unpack
from foldlog.eventstore import CondensationAction, Content, Event, Message, SystemMessage

_MESSAGES = 20
"""The number of earlier texts that are searched for instructions."""


BASE = {"instructions": "base"}
"""What ``meta`` says of the base instructions of a session."""


def is_base(event: Event) -> bool:
    """Return whether ``event`` is the base instructions of a session."""
    return isinstance(event, SystemMessage) and event.meta.get("instructions") == BASE["instructions"]


class Said:
    """The base instructions, and the last texts that the user, a developer or a context said.

    Those before the first record are read from the history when a text is in none of the later ones: back to the last
    replacement history, or until there are twenty.
    """

    def __init__(self, past: Past | None) -> None:
        self._base: str | None = None
        self._texts: deque[str] = deque(maxlen=_MESSAGES)
        self._past_base, self._past_texts = past, past

    def set_base(self, text: str) -> None:
        self._base = text

    def extend(self, texts: Iterable[str]) -> None:
        self._texts.extend(texts)

    def clear(self) -> None:
        """Forget all texts but the base instructions: a replacement history takes their place."""
        self._texts.clear()
        self._past_texts = None

    def says(self, text: str) -> bool:
        """Return whether one of the texts holds ``text``."""
        return (
            any(text in before for before in self._texts)
            or text in self._known_base()
            or any(text in before for before in self._earlier())
        )

    def _known_base(self) -> str:
        if self._base is None:
            past, self._past_base = self._past_base, None
            shown = () if past is None else past.view()
            prompts = [event for event in shown if isinstance(event, SystemMessage) and is_base(event)]
            self._base = "".join(texts_of(prompts[-1].content)) if prompts else ""
        return self._base

    def _earlier(self) -> Iterable[str]:
        """Add the texts before the first record, and return them all."""
        past, self._past_texts = self._past_texts, None
        if past is not None:
            room = _MESSAGES - len(self._texts)
            newest_first = [text for text, _ in zip(_texts_back(past.newest_first()), range(room), strict=False)]
            self._texts.extendleft(newest_first)
        return self._texts


def texts_of(content: Content) -> list[str]:
    """Return the texts of a content."""
    return [content] if isinstance(content, str) else [part["text"] for part in content if "text" in part]


def _texts_back(newest_first: Iterator[Event]) -> Iterator[str]:
    """Yield the texts that the events said, the last one first, back to the last replacement history with its items."""
    items: int | None = None
    for event in newest_first:
        if items == 0:
            return
        if items is not None:
            items -= 1
        if event.origin is None or event.origin.format != NAME or is_base(event):
            continue
        if isinstance(event, CondensationAction) and _replaces(event):
            items = place_of(event)
        elif isinstance(event, SystemMessage) or (isinstance(event, Message) and event.source != "agent"):
            yield from reversed(texts_of(event.content))


def _replaces(condensation: CondensationAction) -> bool:
    """Return whether a compaction has a replacement history; its items are earlier events of its record."""
    if place_of(condensation):
        return True
    return events_of(condensation) == 1 and type(unpack([condensation])["payload"].get("replacement_history")) is list
