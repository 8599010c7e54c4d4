"""Decode Claude Code's lines one by one, from the middle of a session on."""

from __future__ import annotations

from typing import Any

from foldlog.eventstore import Action, Event, Observation
from foldlog.formats.calls import OpenCalls
from foldlog.formats.claude_code.branches import SAID, Branch, is_side
from foldlog.formats.claude_code.compaction import Earlier, ShownMembers
from foldlog.formats.claude_code.reading import ClaudeCodeDecoder
from foldlog.formats.claude_code.switches import Switches
from foldlog.formats.claude_code.titles import Titles
from foldlog.formats.format import Options, Past

_FIRST_EVENTS = 50
"""This many first events usually tell whether a session is that of a sub-agent."""


class ClaudeCodeLiveDecoder(ClaudeCodeDecoder):
    """Lines to events, beginning anywhere. The earlier history is read once, when a line follows an unknown line or
    brings a title.
    """

    def __init__(self, titles: Titles, options: Options, past: Past) -> None:
        super().__init__(Branch(branches=True), titles, options)
        self._past = past
        self._is_first = True
        self._is_whole = options.first_id == 0
        self._calls = OpenCalls(past)

    def restart(self, next_id: int) -> None:
        self._before = self._before.renewed(next_id)

    def events(self, record: Any) -> list[Event]:
        if type(record) is dict:
            self._begin(record)
            if not self._is_whole and not self._past.replays and self._needs_all(record):
                self._read_all()
        events = super().events(record)
        for event in events:
            if type(event) is Action and event.call_id is not None:
                self._calls.open(event.call_id, event)
            elif type(event) is Observation and event.call_id is not None:
                self._calls.close(event.call_id)
        return events

    def find_call(self, call_id: str) -> tuple[int, str] | None:
        return self._calls.first(call_id)

    def _begin(self, record: dict[str, Any]) -> None:
        """Find out to which agent the session belongs, at the first line that tells."""
        if not self._is_first or (self._is_whole and record.get("type") not in SAID):
            return
        self._is_first = False
        side = is_side(record) if self._is_whole else self._began_on_side()
        if side:
            self._branch = Branch(side=True, branches=True)
        first_id = self._options.first_id
        self._switches = Switches(side=side, names_parents=False)
        if first_id:
            self._standing = ShownMembers(Earlier(self._past, first_id))
            self._switches.begin(first_id, self._standing.copy(), self._past.last_source_id)

    def _began_on_side(self) -> bool:
        for stop in (_FIRST_EVENTS, None):
            for record, _ in self._past.records(stop):
                if record.get("type") in SAID:
                    return is_side(record)
        return False

    def _needs_all(self, record: dict[str, Any]) -> bool:
        assert self._switches is not None
        return self._switches.lacks(record) or self._titles.is_title(record)

    def _read_all(self) -> None:
        """Read the lines before the first one: their parents, and their titles."""
        assert self._switches is not None
        switches, titles = Switches(side=self._branch.is_side, names_parents=False), Titles()
        for record, events in self._past.records():
            version = events[-1].id + 1
            left = switches.before(record)
            switches.after(record, version, ShownMembers(Earlier(self._past, version)), left)
            titles.of(record)
        self._switches.complete(switches)
        self._titles.complete(titles)
        self._is_whole = True
