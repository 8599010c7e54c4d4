"""Sessions of Claude Code with a secret in their third record, and what tests do with them."""

import json

import pytest

from foldlog import Histories
from tests.foldlog.imports.imports import bytes_of, events_of, imported, redact_event

SECRET = "the lamp is behind the third stone"


def line(number, text, role="user", session="s1"):
    message = {"role": role, "content": text}
    return {
        "type": role,
        "uuid": f"u{number}",
        "parentUuid": f"u{number - 1}" if number else None,
        "message": message,
        "sessionId": session,
        "timestamp": f"2026-01-05T09:00:{number:02}.000Z",
    }


LINES = [
    line(0, "hello"),
    line(1, "yes", "assistant"),
    line(2, SECRET),
    line(3, "fine", "assistant"),
    line(4, "so"),
]

DAMAGED = json.dumps(LINES[2])[:-3]
OTHER = [LINES[0], line(1, "no", "assistant"), LINES[2]]
"""A fork of the session that has its secret in a record of its own."""


def write(path, lines):
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def redact(store, text=SECRET):
    Histories(store).maintenance.redact_matching(text, reason="asked for", with_summaries=True)


@pytest.fixture
def path(tmp_path, store):
    """The file of a session that was imported."""
    path = write(tmp_path / "s1.jsonl", LINES)
    imported(store, path)
    return path


@pytest.fixture
def fork(path, store):
    """The name of a fork of the session, which shares its secret."""
    lines = [*LINES[:4], line(4, "or not")]
    return imported(store, write(path.with_name("fork.jsonl"), lines)).conversation


def redact_secret(store, conversation):
    redact_event(store, conversation, 2)


def conversations_with(store, text=SECRET):
    """Return the conversations with a text in a record, between records, or in an event."""
    names = Histories(store)
    return [
        name for name in names if text in repr([bytes_of(store, name), *events_of(store, name)])
    ]
