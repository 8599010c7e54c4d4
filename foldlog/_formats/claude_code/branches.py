"""Find the active branch of a log, which is a tree of lines: the branch that the agent was shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

from foldlog._formats.claude_code.blocks import kind_of
from foldlog._formats.claude_code.compaction import Kept, is_boundary, is_summary
from foldlog._formats.recent import Recent

SAID = ("user", "assistant")
"""Types of lines that form a branch. All other lines are bookkeeping, which may stand between them in the tree."""
_CALLERS_MAX = 1_000


class Branch:
    """The shown chain of a log, and whether the log branches. It is the main chain, or a side chain if there is no main
    chain.

    ``copies`` are lines that repeat the calls of an earlier line with the same id, in a log that does not branch.
    ``session`` is the session that is shown at the end, and ``hidden`` are the others.
    """

    def __init__(
        self,
        *,
        side: bool = False,
        branches: bool = False,
        copies: Set[int] = frozenset(),
        session: str = "",
        hidden: Sequence[str] = (),
    ) -> None:
        self.is_side = side
        self.branches = branches
        self._copies = copies
        self.session, self.hidden = session, hidden

    def shows(self, number: int, record: dict[str, Any]) -> bool:
        """Return whether a line is shown at the moment when it comes."""
        return is_side(record) == self.is_side and number not in self._copies


def active_branch(records: Iterable[Any]) -> Branch:
    """Return the shown chain of a log: the main chain, or the side chain of a log that has nothing else.

    ``records`` is read up to three times, so it must not be a one-shot iterator. Cost: constant memory where each line
    follows the line before it, or answers a call of earlier lines; else some words for each line.
    """
    for side in (False, True):
        copies: set[int] = set()
        linear = _is_linear(records, side, copies)
        if linear is not None:
            return Branch(side=side, copies=copies) if linear else _branch(records, side)
    return Branch()


def is_side(record: dict[str, Any]) -> bool:
    return record.get("isSidechain") is True


def _lines(records: Iterable[Any], side: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, record in enumerate(records):
        if type(record) is dict and is_side(record) == side:
            yield number, record


def _is_linear(records: Iterable[Any], side: bool, copies: set[int]) -> bool | None:
    """Return whether the log has no branches; None without messages. ``copies`` gets the lines that repeat a call."""
    last: str | None = None
    spoke = False
    callers: Recent[str, frozenset[Any]] = Recent(_CALLERS_MAX)
    for number, record in _lines(records, side):
        spoke = spoke or record.get("type") in SAID
        uuid = record.get("uuid")
        if type(uuid) is not str:
            continue
        parent = parent_of(record)
        if last is not None and parent is not PREVIOUS and parent != last:
            answers = type(parent) is str and callers.get(parent) is not None and is_result(record)
            if not answers:
                return False
        if calls := calls_of(record):
            if callers.get(uuid) == calls:
                copies.add(number)
            callers[uuid] = calls
        last = uuid
    return True if spoke else None


PREVIOUS = object()
"""The parent of a line that names no parent: the line before it."""


def parent_of(record: dict[str, Any]) -> Any:
    """Return the id of the line before this one, or ``PREVIOUS``; None if the line begins a new tree."""
    parent = record.get("parentUuid", PREVIOUS)
    if type(parent) is not str and (is_boundary(record) or is_summary(record)):
        parent = record.get("logicalParentUuid")  # a compaction begins a tree and follows what it sums up
        return parent if type(parent) is str else PREVIOUS
    return parent if type(parent) is str or parent is PREVIOUS else None


def _blocks(record: dict[str, Any]) -> list[Any]:
    message = record.get("message")
    content = message.get("content") if type(message) is dict else None
    return content if type(content) is list else []


def calls_of(record: dict[str, Any]) -> frozenset[Any]:
    """Return the ids of the calls in a line."""
    if record.get("type") != "assistant":
        return frozenset()
    ids = (block.get("id") for block in _blocks(record) if kind_of(block) == "tool_use")
    return frozenset(str(call_id) for call_id in ids)


def is_result(record: dict[str, Any]) -> bool:
    return record.get("type") == "user" and any(kind_of(block) == "tool_result" for block in _blocks(record))


def _branch(records: Iterable[Any], side: bool) -> Branch:
    """Return the branch of a log that branches. A log in which no line names its parent does not branch."""
    tree = _Tree()
    for number, record in _lines(records, side):
        tree.add(number, record)
    members = tree.branch() if tree.names_parents else None
    if members is None:
        return Branch(side=side, copies=tree.copies)
    session, hidden = tree.sessions(members)
    return Branch(side=side, branches=True, session=session, hidden=hidden)


class _Tree:
    """The numbers of lines, each with the number of the line that it follows. Bookkeeping lines are skipped."""

    def __init__(self) -> None:
        self.names_parents = False
        self.copies: set[int] = set()
        self._numbers: dict[str, int] = {}
        self._calls: dict[str, frozenset[Any]] = {}
        self._sessions: dict[str, list[int]] = {}
        self._passed_over: dict[str, int | None] = {}
        self._above: dict[int, int] = {}
        self._responses: dict[int, str] = {}
        self._results: dict[int, int] = {}
        self._nameless: set[int] = set()
        self._last: int | None = None
        self._tip: int | None = None
        self._boundary: int | None = None
        self._kept = Kept()

    def add(self, number: int, record: dict[str, Any]) -> None:
        uuid, speaks = record.get("uuid"), record.get("type") in SAID
        if type(uuid) is not str:
            if speaks:
                self._nameless.add(number)
            return
        above = self._followed(record)
        if not speaks and not is_boundary(record):
            self._passed_over[uuid] = above
            return
        self._replace(uuid, number, calls_of(record))
        session = record.get("sessionId")
        if speaks and type(session) is str and session:
            self._sessions.setdefault(session, []).append(number)
        if above is not None:
            self._above[number] = above
            if is_result(record):
                self._results[number] = above
        message = record.get("message")
        response_id = message.get("id") if type(message) is dict and record.get("type") == "assistant" else None
        if type(response_id) is str:
            self._responses[number] = response_id
        if is_boundary(record):
            self._boundary, self._kept = number, Kept.by(record)
        else:
            self._tip = number
        self._last = number

    def _followed(self, record: dict[str, Any]) -> int | None:
        parent = parent_of(record)
        if parent is None:
            return None
        if parent is PREVIOUS:
            return self._last
        self.names_parents = True
        if self._boundary is not None and self._kept.continues_from(parent):
            return self._numbers.get(self._kept.anchor or "", self._boundary)
        if parent in self._numbers:
            return self._numbers[parent]
        return self._passed_over.get(parent, self._last)  # a lost line hides no other line

    def _replace(self, uuid: str, number: int, calls: frozenset[Any]) -> None:
        """Choose among several lines with one id: lines that follow the id follow the last of them. An earlier one with
        the same calls is a copy.
        """
        if uuid in self._numbers:
            earlier = self._numbers[uuid]
            self._responses.pop(earlier, None)
            self._results.pop(earlier, None)
            if calls and self._calls.get(uuid) == calls:
                self.copies.add(earlier)
        if calls:
            self._calls[uuid] = calls
        self._numbers[uuid] = number

    def sessions(self, members: Set[int]) -> tuple[str, list[str]]:
        """Return the session of the last shown line, and the sessions without a shown line."""
        shown = {name: numbers[-1] for name, numbers in self._sessions.items() if not members.isdisjoint(numbers)}
        last = max(shown, key=lambda name: shown[name], default="")
        return last, [name for name in self._sessions if name not in shown]

    def branch(self) -> set[int]:
        """Return the lines from the tip to the root, and the lines beside them that belong to parallel calls: other
        lines of the same responses, and their results.
        """
        branch: set[int] = set()
        place = self._tip
        while place is not None:  # a line follows an earlier one
            branch.add(place)
            place = self._above.get(place)
        responses = {self._responses[number] for number in branch if number in self._responses}
        branch.update(number for number, response_id in self._responses.items() if response_id in responses)
        branch.update(number for number, above in self._results.items() if above in branch)
        return branch | self._nameless
