"""Follow a session that leaves a branch and continues from an earlier line.

Lines are read in order, so a session may grow. A *switch* is a line whose parent is not the newest
line. Before the events of a switch comes a retraction, which returns to the version at which the
switch's parent was the newest line. The View then shows the branch of the parent.

The lines of one model response and the results of its calls form a group, in any order. A line that
follows any line of a group follows the whole group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from foldlog.formats.claude_code.lines import Kept, is_boundary, is_of_person, is_summary
from foldlog.formats.record import Fields, dicts_in, has, text_or_none
from foldlog.formats.resuming import Past

SAID = ("user", "assistant")
"""The types of lines that form a branch, together with the boundaries of compactions, commands and
messages that were sent while the model worked. All other lines are bookkeeping. In the tree,
bookkeeping may stand between two lines of a branch.
"""


accepts = has(type=str)


def is_of_branch(record: Fields) -> bool:
    return record["type"] in SAID or is_boundary(record) or is_of_person(record)


def is_side(record: Fields) -> bool:
    return record.get("isSidechain") is True


def begins_main_chain(record: Fields) -> bool:
    """Return whether a line after side chains is the first line of the session itself. Each line in
    the file of a sub-agent names the sub-agent.
    """
    return record["type"] in SAID and not is_side(record) and "agentId" not in record


PREVIOUS = object()
"""Stands for the previous line of the file, the parent of a line without ``parentUuid``."""


def parent_of(record: Fields) -> Any:
    """Return the id of the line's parent, or ``PREVIOUS``. Return None if the line begins a new
    tree.
    """
    parent = record.get("parentUuid", PREVIOUS)
    if type(parent) is not str and (is_boundary(record) or is_summary(record)):
        # a compaction begins a tree, but "logicalParentUuid" names the last summarized line
        parent = record.get("logicalParentUuid")
        return parent if type(parent) is str else PREVIOUS
    return parent if type(parent) is str or parent is PREVIOUS else None


class _Said(NamedTuple):
    """What the groups depend on in the message of a line: the id of the model's response, the ids
    of its calls, and whether the message has the result of a call.
    """

    response: str | None = None
    calls: frozenset[Any] = frozenset()
    has_result: bool = False


_NOTHING_SAID = _Said()


def _said_in(record: Fields) -> _Said:
    if record["type"] not in SAID:
        return _NOTHING_SAID
    blocks = dicts_in(record, "message", "content")
    response = text_or_none(record, "message", "id")
    if record["type"] == "user":
        return _Said(has_result="tool_result" in [block.get("type") for block in blocks])
    calls = frozenset([str(block.get("id")) for block in blocks if block.get("type") == "tool_use"])
    return _Said(response, calls)


class _Group:
    """Lines that belong together. ``version`` is the version after the last line of the group.
    ``above`` is the previous group.
    """

    __slots__ = ("above", "version")

    def __init__(self, above: _Group | None, version: int = 0) -> None:
        self.above = above
        self.version = version


_BEFORE = _Group(None)
"""The group of the lines before the window of a decoder that continues."""


class Switches:
    """The groups of lines in a log. The View shows one chain of groups. A line takes about 100
    bytes of memory.
    """

    def __init__(self, past: Past) -> None:
        self._past = past
        self.is_of_side = False
        self.names_parents = False
        """Whether any line so far names its parent. Before the first such line, a line without a
        parent follows the newest line.
        """
        self._groups: dict[str, _Group | None] = {}
        """Maps the id of a line to its group. A line of bookkeeping has the group of its parent."""
        self._responses: dict[str, _Group] = {}
        """Maps the id of a model response to its group."""
        self._calls: dict[str, frozenset[Any]] = {}
        """Maps the id of a line to the ids of its calls."""
        self._newest: _Group | None = None if past.is_whole else _BEFORE
        self._boundary: _Group | None = None
        """The group of the boundary line of the newest compaction."""
        self._kept = Kept()
        """The lines that the newest compaction keeps."""
        self.is_copy = False
        """Whether the last line is a copy: an earlier line has the same id and the same calls."""
        self.missing: str | None = None
        """The parent of the last line, if no line of the log has this id."""
        self._others = set[str]()
        """The ids of the lines that are not of this chain, such as lines of side chains."""

    def begin_main_chain(self) -> None:
        """Leave the side chains that the log began with."""
        self.is_of_side = self.names_parents = False
        self._others.update(self._groups)
        self._groups.clear()
        self._responses.clear()
        self._calls.clear()
        self._newest = self._boundary = None
        self._kept = Kept()

    def _is_ours(self, record: Fields) -> bool:
        """Return whether a line is of the chain that the View shows."""
        return is_side(record) == self.is_of_side and type(record.get("uuid")) is str

    def grow(self, version: int) -> None:
        """Note that the newest group ends at a version."""
        if self._newest is not None:
            self._newest.version = version

    def follow(self, record: Fields) -> int | None:
        """Return the version to which a retraction must go back before the line ``record``. Return
        None if the line follows the newest line, and 0 if it begins a new tree. Before, call
        ``grow`` with the version after the events of the lines so far.
        """
        self.is_copy = False
        self.missing = None
        if not self._is_ours(record):
            self._others.add(str(record.get("uuid")))
            return None
        uuid = record["uuid"]
        said = _said_in(record)
        response = said.response
        if not self._past.is_whole:
            self._check_window(record, response)
        if not is_of_branch(record):
            self._groups[uuid] = self._parent_group(record)
            return None
        back_to = None
        if self._newest is None:
            self._newest = _Group(None)
        elif self._calls.get(uuid) == said.calls and self._is_on_branch(self._groups.get(uuid)):
            self.is_copy = True
        else:
            parent = self._parent_group(record)
            self.missing = self._missing_parent(record)
            is_of_group = said.has_result or (
                response is not None and self._responses.get(response) is parent
            )
            if not (is_of_group and self._is_on_branch(parent)):
                if parent is None:
                    back_to = 0
                elif parent is not self._newest:
                    back_to = parent.version
                self._newest = _Group(parent)
        self._groups[uuid] = self._newest
        if response is not None:
            self._past.add(f"reply {response}")
            self._responses[response] = self._newest
        if said.calls:
            self._calls[uuid] = said.calls
        if record["type"] not in SAID and is_boundary(record):
            self._begin_compaction(record)
        return back_to

    def _begin_compaction(self, boundary: Fields) -> None:
        """Note the boundary line of a compaction, which may name kept messages of later lines."""
        self._boundary = self._newest
        self._kept = Kept.by(boundary)
        for name in self._kept.parents():
            self._past.add(f"kept {name}")

    def _check_window(self, record: Fields, response: str | None) -> None:
        """Raise ``NeedsAll`` if a line may follow a line before the window."""
        parent = parent_of(record)
        group = self._newest
        if type(parent) is str and parent not in self._others:
            group = self._groups.get(parent, _BEFORE)
        follows = parent is not None or not self.names_parents
        is_far = follows and (group is None or group is _BEFORE)
        is_kept = type(parent) is str and (
            self._kept.continues_from(parent) or self._past.is_before_window(f"kept {parent}")
        )
        if is_far or is_kept or (response and self._past.is_before_window(f"reply {response}")):
            self._past.needs_all()
        if is_far and type(parent) is str and parent not in self._others:
            self._groups.setdefault(parent, _BEFORE)

    def _parent_group(self, record: Fields) -> _Group | None:
        """Return the group that a line follows, or None if the line begins a new tree."""
        parent = parent_of(record)
        if parent is None:
            return None if self.names_parents else self._newest
        if parent is PREVIOUS:
            return self._newest
        self.names_parents = True
        if (
            self._boundary is not None
            and self._kept.continues_from(parent)
            and not self._is_repeated(parent)
        ):
            return self._groups.get(self._kept.anchor or "", self._boundary)
        # If the parent is missing in the log, the line continues from the newest line.
        return self._groups.get(parent, self._newest)

    def _missing_parent(self, record: Fields) -> str | None:
        """Return the id of the parent of a message if no line of the log has it."""
        parent = record.get("parentUuid")
        if type(parent) is not str or parent in self._groups or parent in self._others:
            return None
        return None if self._kept.continues_from(parent) else parent

    def _is_repeated(self, uuid: str) -> bool:
        """Return whether the line ``uuid`` was written again after the compaction. Claude Code
        repeats the kept lines in forks of sessions.
        """
        group = self._groups.get(uuid)
        return group is not self._boundary and _is_below(group, self._boundary)

    def _is_on_branch(self, group: _Group | None) -> bool:
        return group is not None and _is_below(self._newest, group)


def _is_below(place: _Group | None, group: _Group | None) -> bool:
    while place is not None and place is not group:
        place = place.above
    return place is group
