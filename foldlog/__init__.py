"""An event-sourced store behind AI-agent runtimes: agents forget, their history does not.

    import foldlog
    from foldlog import Condensation, Message, View

    with foldlog.open("sqlite:///history.db", condenser="config.toml") as histories:
        history = histories["c1"]
        history.append(Message(source="user", content="hi"))
        match history.step():
            case Condensation(): ...                            # appended: step again
            case View() as view: messages = view.to_messages()  # what the model is to be shown

    histories.py aio.py    the face in Python, sync and async
    cli/                   the command
    formats/ importing.py  histories of other agents
    archives/ reports/     conversations in one file; what is made from a store

Importing this is cheap: what a name needs is imported when the name is first used.
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:
    from condensers import Condensation
    from eventstore import (
        ANY_VERSION,
        Action,
        Annotation,
        CondensationAction,
        CondensationRequest,
        CondensationSummary,
        Event,
        EventStoreError,
        Message,
        Observation,
        Recorded,
        Retraction,
        SystemMessage,
    )
    from foldlog.histories import Histories, History, open
    from projections import View

__all__ = [
    "ANY_VERSION",
    "Action",
    "Annotation",
    "Condensation",
    "CondensationAction",
    "CondensationRequest",
    "CondensationSummary",
    "Event",
    "EventStoreError",
    "Histories",
    "History",
    "Message",
    "Observation",
    "Recorded",
    "Retraction",
    "SystemMessage",
    "View",
    "open",
]

_HOMES = {
    "Condensation": "condensers",
    "Histories": "foldlog.histories",
    "History": "foldlog.histories",
    "open": "foldlog.histories",
    "View": "projections",
}


def __getattr__(name: str) -> typing.Any:
    if name not in __all__:
        raise AttributeError(f"module 'foldlog' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES.get(name, "eventstore")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
