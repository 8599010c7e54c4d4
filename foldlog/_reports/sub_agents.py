"""This module finds the calls of a conversation that began its sub-agents, and their results."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from foldlog._archive.stored import Records
from foldlog._conversations.unreadable import sound
from foldlog.eventstore import Action, Annotation, Observation, Store


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
    record, names the sub-agent.
    """
    if not children:
        return {}
    own_names = {child.rpartition("/")[2].removeprefix("agent-"): child for child in children}
    named = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, own_names))})(?![\w-])")
    records = Records(store, conversation)
    calls = dict[str, int]()
    open_calls = dict[str | None, int]()
    results = dict[int, int]()
    for _, event in sound(store, conversation, 0, store.version(conversation), []):
        if type(event) is Annotation and event.name == "sub_agent" and event.cause is not None:
            calls[event.data["conversation"]] = event.cause
        elif type(event) is Action:
            open_calls[event.call_id] = event.id
        elif type(event) is Observation and event.call_id in open_calls:
            call = open_calls[event.call_id]
            results[call] = event.id
            text = records.text_of(event.id)
            found = named.search(text.decode() if text else str(event.content))
            if found is not None:
                calls.setdefault(own_names[found[1]], call)
    return {child: BeginningCall(call, results.get(call)) for child, call in calls.items()}
