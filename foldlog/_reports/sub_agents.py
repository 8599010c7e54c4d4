"""This module finds the calls of a conversation that began its sub-agents, and their results."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from foldlog._reports.figures.overview import PARENT_CALL, begun_in
from foldlog._reports.figures.source_places import place_of
from foldlog._reports.records.stored import Records
from foldlog.eventstore import Action, Observation, Store
from foldlog.formats.json_text import parse
from foldlog.projections.conversations.unreadable import sound


class BeginningCall(NamedTuple):
    """The event of a call that began a sub-agent, and the event of its result, or None."""

    call: int
    result: int | None


def calls_of_children(
    store: Store, conversation: str, children: Collection[str]
) -> dict[str, BeginningCall]:
    """Return, for the ids of sub-agents, the calls that began them. Cost: if there are sub-agents,
    the function reads the events and records of the conversation.

    ``History.begin_child`` recorded the call. In an import, it is the call whose result, or whose
    record, names the sub-agent. If none does, the attributes of the sub-agent may name its call.
    """
    if not children:
        return {}
    own_names = {child.rpartition("/")[2].removeprefix("agent-"): child for child in children}
    # An id may end with a slash. An expression for an empty name would match everywhere.
    names = "|".join(re.escape(name) for name in own_names if name) or "(?!)"
    named = re.compile(rf"(?<![\w-])({names})(?![\w-])")
    records = Records(store, conversation)
    calls = dict[str, int]()
    near_calls = dict[str, int]()
    calls_by_id = dict[str, int]()
    results = dict[int, int]()
    for _, event in sound(store, conversation, 0, store.version(conversation), []):
        child = begun_in(event)
        if child is not None and event.cause is not None:
            calls[child] = event.cause
        elif type(event) is Action:
            if event.call_id is not None:
                calls_by_id[event.call_id] = event.id
        elif type(event) is Observation:
            # a result without the id of its call names the event of the call
            call = event.cause if event.call_id is None else calls_by_id.get(event.call_id)
            if call is None:
                continue
            results[call] = event.id
            # Imports read bytes that are not UTF-8 in the same way.
            record = (records.text_of(event.id) or b"").decode(errors="replace")
            if match := named.search(f"{event.content}\n{_part_of(record, event.call_id, named)}"):
                calls.setdefault(own_names[match[1]], call)
            elif match := named.search(record):
                near_calls.setdefault(own_names[match[1]], call)
    # a record with the results of several calls names a sub-agent near each of them
    calls = {**near_calls, **calls}
    for child in {*children} - calls.keys():
        call_id = place_of(store, child).get(PARENT_CALL)
        if call_id in calls_by_id:
            calls[child] = calls_by_id[call_id]
    return {child: BeginningCall(call, results.get(call)) for child, call in calls.items()}


def _part_of(record: str, call_id: str | None, named: re.Pattern[str]) -> str:
    """Return the objects in a record that have the id of a call, if the record names sub-agents."""
    objects = list[object]()
    if call_id is not None and named.search(record):
        values: list[object] = [parse(record.encode())]
        for value in values:  # the list grows
            if isinstance(value, dict):
                if call_id in value.values():
                    objects.append(value)
                values += value.values()
            elif isinstance(value, list):
                values += value
    return str(objects)
