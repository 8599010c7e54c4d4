"""A V1 log is a tree of events, of which one branch is active."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

__all__ = ["outside_branch"]

_NOT_A_STEP = frozenset({"ConversationStateUpdateEvent", "ConversationErrorEvent"})
"""Kinds that no leaf is."""
_ROOT = "__root__"


def outside_branch(records: Iterable[Any], leaf: str | None = None) -> Container[int]:
    """Return the numbers of the records outside of the branch that ends in ``leaf``.

    The default leaf is the last event that is neither a state update nor a conversation error. ``records`` is read
    twice where the log branches, so it must not be a one-shot iterator. Cost: one pass; memory for an id of each event
    if the log branches, else constant.
    """
    return () if _is_linear(records, leaf) else _outside(records, leaf)


def _is_linear(records: Iterable[Any], leaf: str | None) -> bool:
    """Whether every event says it follows the one before it, and the last step is the leaf."""
    last: str | None = None
    last_step: str | None = None
    for record in records:
        if type(record) is not dict:
            continue
        parent = record.get("parent_id")
        if parent == _ROOT:
            if last is not None:
                return False
        elif type(parent) is str and parent != last and parent != last_step:
            return False
        last = record.get("id")
        if _is_step(record):
            last_step = last
    return leaf is None or leaf in (last, last_step)


def _is_step(record: dict[str, Any]) -> bool:
    kind = record.get("kind")
    return type(kind) is not str or kind not in _NOT_A_STEP


def _outside(records: Iterable[Any], leaf: str | None) -> Container[int]:
    numbers: dict[str, int] = {}
    parents: dict[int, int] = {}
    previous = last_step = None
    for number, record in enumerate(records):
        if type(record) is not dict:
            continue
        parent = record.get("parent_id")
        # An old log says no parents: each event follows the one before it. The root's name is not the id of an event.
        above = numbers.get(parent) if type(parent) is str else previous
        if above is not None:
            parents[number] = above
        if type(record.get("id")) is str:
            numbers[record["id"]] = number
        if _is_step(record):
            last_step = number
        previous = number
    tip = numbers.get(leaf, last_step) if leaf is not None else last_step
    branch = set()
    while tip is not None and tip not in branch:
        branch.add(tip)
        tip = parents.get(tip)
    return _AllBut(branch)


class _AllBut:
    def __init__(self, members: set[int]) -> None:
        self._members = members

    def __contains__(self, number: object) -> bool:
        return number not in self._members
