"""Recognize records of a Codex rollout, and the session that they belong to."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from foldlog._formats.codex.lines import ENVELOPES, is_session, line_of
from foldlog._formats.format import LOOK_AT


def matches(record: Any) -> bool:
    """Return whether ``record`` is a line of Codex with a payload, or a line that only old rollouts have."""
    if type(record) is not dict:
        return False
    kind = record.get("type")
    if type(kind) is str:
        return kind in ENVELOPES and type(record.get("payload")) is dict
    return is_session(record) or record.get("record_type") == "state"


def accepts(record: Any) -> bool:
    """Return whether ``record`` can be a line of a rollout."""
    return type(record) is dict and line_of(record) is not None


def conversation(records: Iterable[Any]) -> str | None:
    """Return the id of the session that the rollout begins with."""
    return next((name for record in islice(records, LOOK_AT) if (name := _session(record)) is not None), None)


def _session(record: Any) -> str | None:
    line = line_of(record) if type(record) is dict else None
    about = line.payload if line is not None and line.type == "session_meta" else None
    name = about.get("id") if type(about) is dict else None
    return name if type(name) is str and name else None
