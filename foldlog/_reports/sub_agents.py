"""This module finds the calls of a conversation that began its sub-agents."""

from __future__ import annotations

import re
from collections.abc import Collection

from foldlog._archive.stored import Records
from foldlog._conversations.unreadable import sound
from foldlog.eventstore import Action, Annotation, Observation, Store


def calls_of_children(store: Store, conversation: str, children: Collection[str]) -> dict[str, int]:
    """Return, for the ids of sub-agents, the events of the calls that began them. Cost: if there
    are sub-agents, the function reads the events and records of the conversation.

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
    for _, event in sound(store, conversation, 0, store.version(conversation), []):
        if type(event) is Annotation and event.name == "sub_agent" and event.cause is not None:
            calls[event.data["conversation"]] = event.cause
        elif type(event) is Action:
            open_calls[event.call_id] = event.id
        elif type(event) is Observation and event.call_id in open_calls:
            text = records.text_of(event.id)
            found = named.search(text.decode() if text else str(event.content))
            if found is not None:
                calls.setdefault(own_names[found[1]], open_calls[event.call_id])
    return calls
