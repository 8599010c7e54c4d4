"""Remedies in errors of the library that name calls in Python, and the words for clients over HTTP.

The library tells a programmer in Python what to call next, which helps most of its users. A test
reads each phrase in the source, and each answer of the service is read for the syntax of Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

REMEDIES: Final[Mapping[str, str]] = {
    "append a copy with redacted=None": "leave out 'redacted'",
    'metadata={"outcome": "declined", "reason": "..."}': (
        'send "metadata": {"outcome": "declined", "reason": "…"}'
    ),
    "give an aware time, such as datetime.now(UTC)": (
        "send a time with its zone, such as 2026-03-01T12:00:00Z"
    ),
    "pass str(recorded.position) of an event that follow yielded": (
        "send 'after' of an answer of this store"
    ),
    "begin again with history.lease()": "take the lease again",
    "history.effects() returns all effects": "the path /effects lists all effects",
    "append it with history.append(message)": "send it to the path /events",
    "To record the usage of the reply, call history.append(foldlog.from_openai(reply))": (
        "To record its usage, append an annotation"
    ),
    "'foldlog log ID --kind condensation' shows them": (
        "the path /events has events of the kind condensation"
    ),
    "a dict without a role": "an object without a role",
    "write for example history.append(Message(source='user', content='hi')) or history.append("
    "{'role': 'user', 'content': 'hi'}); a model's reply goes to append_reply, and messages of"
    " other forms to foldlog.from_openai or append_records": (
        'send for example "messages": [{"role": "user", "content": "hi"}]; a model\'s reply goes to'
        " the path /replies, and records of other programs to /records"
    ),
    "write 'with history.lease(): history.run(…)', or repeat='safe' for a tool that only reads": (
        "take the lease first, and send it in the header Foldlog-Lease"
    ),
}
"""Maps a remedy of the library to the words of the service."""


def neutral(detail: str) -> str:
    """Return the text of an error with remedies that fit each language."""
    for remedy, words in REMEDIES.items():
        detail = detail.replace(remedy, words)
    return detail
