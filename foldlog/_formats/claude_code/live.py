"""Decode Claude Code's lines one by one, from the middle of a session on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from foldlog._formats.blocks import THINKING, kind_of
from foldlog._formats.claude_code.branches import SAID, ShownChain, Switches, is_side, parent_of
from foldlog._formats.claude_code.reading import ClaudeCodeDecoder
from foldlog._formats.claude_code.titles import Titles
from foldlog._formats.claude_code.writing import NAME
from foldlog._formats.format import Options, Past
from foldlog.eventstore import Event

_LINES_OF_A_RESPONSE = 100
_LAST_EVENTS = 256
"""The number of last events that are searched for the line before the first one."""


def reads_on(past: Past) -> bool:
    """Return whether later lines change nothing of the earlier ones: a main chain is shown, whose lines have parents.
    Cost: the last lines.
    """
    last = _last_shown(past)
    return last is not None and not is_side(last) and type(parent_of(last)) is str


def _last_shown(past: Past) -> dict[str, Any] | None:
    shown = (one for one, events in past.newest_records() if any(event.shown for event in events))
    return next((one for one in shown if one.get("type") in SAID), None)


class ClaudeCodeLiveDecoder(ClaudeCodeDecoder):
    """Lines to events, beginning anywhere. The earlier history is read once, when a line follows an unknown line or
    brings a title.
    """

    def __init__(self, options: Options, past: Past) -> None:
        super().__init__(options, ShownChain())
        self._history = past
        self._is_first = True
        self._is_whole = options.first_id == 0
        self._has_response = False

    def events(self, record: Any) -> list[Event]:
        if type(record) is dict:
            self._begin(record)
            if not self._is_whole and self._needs_all(record):
                self._read_all()
        return super().events(record)

    def _earlier_thinking(self, response_id: str) -> tuple[dict[str, Any], ...]:
        """Read the last lines, where the first response may have begun there."""
        thinking: list[dict[str, Any]] = []
        records = () if self._has_response else islice(self._history.newest_records(), _LINES_OF_A_RESPONSE)
        self._has_response = True
        for record, _ in records:
            if record.get("type") != "assistant":
                continue
            message = record.get("message")
            if type(message) is not dict or message.get("id") != response_id:
                break
            content = message.get("content")
            for block in reversed(content) if type(content) is list else ():
                if kind_of(block) == "tool_use":
                    return tuple(reversed(thinking))
                if kind_of(block) in THINKING:
                    thinking.append(block)
        return tuple(reversed(thinking))

    def _begin(self, record: dict[str, Any]) -> None:
        """Find out to which agent the session belongs, at the first line that tells."""
        if not self._is_first or (self._is_whole and record.get("type") not in SAID):
            return
        self._is_first = False
        last = None if self._is_whole else _last_shown(self._history)
        self._side = is_side(last or record)
        self._switches = Switches(ShownChain(self._side))
        if self.past is not None:
            last = next((event.origin.id for event in self._last_events() if event.origin is not None), None)
            self._switches.begin(self.next_id, last)

    def _last_events(self) -> Iterator[Event]:
        """Yield the last imported events with an id of their source, among the last events."""
        last = islice(self._history.newest_first(), _LAST_EVENTS)
        return (each for each in last if each.origin is not None and each.origin.format == NAME and each.origin.id)

    def _needs_all(self, record: dict[str, Any]) -> bool:
        return self._switches.lacks(record) or self._titles.is_title(record)

    def _read_all(self) -> None:
        """Read the lines before the first one: their parents, and their titles."""
        switches, titles = Switches(ShownChain(self._side)), Titles()
        for record, events in self._history.records():
            left = switches.before(record)
            switches.after(record, events[-1].id + 1, left)
            titles.of(record)
        self._switches.complete(switches)
        self._titles.complete(titles)
        self._is_whole = True
