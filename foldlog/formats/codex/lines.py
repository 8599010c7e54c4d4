"""Read the lines of a rollout, the session file of Codex.

Since September 2025 a line is ``{"timestamp", "type", "payload"}``. In the first releases of Codex,
a line was *bare*: the payload itself. The first bare line described the session, and had no type.
The next bare lines were items of the model's API, mixed with lines of ``{"record_type": "state"}``.
A bare line becomes the same events as a line of today's form with the same payload.

Codex writes content as typed parts. An event stores content as a text, or as parts in OpenAI's
form. The text of a command's output shows whether the command failed.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from foldlog.formats.record import (
    Fields,
    dicts_in,
    strings_in,
    text_or_none,
    within,
)

ENVELOPES = frozenset(("session_meta", "turn_context", "response_item", "event_msg", "compacted"))
"""The types of lines by which a rollout is recognized."""
CONTEXT = re.compile(r"\s*(?:<(\w+)[ >].*</\1>\s*$|# AGENTS\.md instructions)", re.DOTALL)
"""Matches a user's message that Codex itself wrote: a text in a tag, or instructions from files."""
INITIAL_CONTEXT = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions)[ >]|# AGENTS\.md instructions)",
    re.IGNORECASE,
)
"""Matches a message with which Codex begins each prompt, also after a compaction."""


class Line(NamedTuple):
    """A line of a rollout in today's form."""

    type: str
    payload: Any


def line_of(record: Fields) -> Line | None:
    """Return the type and the payload of a record, or None if the record is not a line of a
    rollout.
    """
    kind = record.get("type")
    if type(kind) is str:
        is_bare = "payload" not in record and kind not in ENVELOPES
        if is_bare:
            return Line("response_item", record)
        return Line(kind, record.get("payload"))
    if is_session(record):
        return Line("session_meta", record)
    state = record.get("record_type")
    return Line(state, record) if type(state) is str else None


def is_session(record: Fields) -> bool:
    """Return whether a record is the first line of an old rollout."""
    return (
        "type" not in record
        and "role" not in record
        and "instructions" in record
        and type(record.get("id")) is str
        and type(record.get("timestamp")) is str
    )


def parent_of(session: Any) -> str | None:
    """Return the session that started ``session`` as a sub-agent."""
    spawned = within(session, "source", "subagent", "thread_spawn", "parent_thread_id")
    return text_or_none(within(session, "parent_thread_id") if spawned is None else spawned) or None


def ordinal_of(record: Any) -> int | None:
    """Return the number of a record in its thread, or None if the rollout has no numbers."""
    ordinal = within(record, "ordinal")
    return ordinal if type(ordinal) is int and ordinal >= 0 else None


def base_end(session: Any) -> int | None:
    """Return how many records of an earlier rollout a session continues. Later records of the
    earlier rollout do not belong to the session. ``session`` is the payload of the session's first
    line. Return None if the session continues no earlier rollout.
    """
    end = within(session, "history_base", "end_ordinal_exclusive")
    return end if type(end) is int else None


def texts_in(parts: Any) -> list[str]:
    """Return the texts in the parts of content."""
    return strings_in([part.get("text") for part in dicts_in(parts)])


def place_of_summary(history: list[Any], message: str) -> int | None:
    """Return the index of the summary in a replacement history. The summary is the last message
    whose text ends with ``message``. Return None if there is no summary.
    """
    if not message:
        return None
    for place in range(len(history) - 1, -1, -1):
        item = history[place]
        is_message = type(item) is dict and item.get("type") == "message"
        if is_message and "".join(texts_in(item.get("content"))).endswith(message):
            return place
    return None


class _Metadata(msgspec.Struct):
    exit_code: int


class _ShellOutput(msgspec.Struct):
    """The output of a command, if it is JSON."""

    metadata: _Metadata


_shell_output = msgspec.json.Decoder(_ShellOutput)
_HEADER_MAX = 500
"""The header of an output with the exit code has fewer characters."""
_CODE = re.compile(r"^(?:Exit code: |Process exited with code )(-?\d+)$", re.MULTILINE)
FAILED_HEADER = "Exit code: 1\nOutput:\n"
"""The header that an export of foldlog writes before a failed result. The header that Codex writes
has more lines.
"""
ABORTED_RESULT = "aborted"
"""An import gives this result to a call of an aborted turn, because Codex records no result for the
call.
"""
_STOPPED_BY_USER = r"(?:Wall time: \S+ seconds\n)?aborted by user(?: after [\d.]+s)?\Z"
"""Codex records this text as the output of a command that the user stopped."""
_NO_EXIT_CODE = re.compile(
    r"failed in sandbox\b|execution error\b|failed to parse function arguments: "
    r"|unsupported (?:custom tool )?call: |(?:exec_command|write_stdin|apply_patch)"
    r" (?:verification )?failed\b|error: invalid (?:patch|hunk)\b"
    r"|error: Failed to (?:find expected lines|read file to update)\b"
    rf"|{_STOPPED_BY_USER}"
)
"""Matches the beginning of a failed output whose header has no exit code. Codex writes these texts
itself, in place of the output of a call that it could not run, or of a patch that does not fit.
"""


def has_failed(output: Any) -> bool:
    """Return whether a call could not run, was interrupted, or ended with an exit code other than
    0.

    The output may be JSON text with ``metadata.exit_code``, a text with a header before a line
    ``Output:``, or an object with ``success``.
    """
    if type(output) is dict:
        return output.get("success") is False or _says_failed(output.get("content"))
    return _says_failed(output)


def unmark(output: Any) -> Any:
    """Return an output without the header that foldlog writes before a failed result."""
    if type(output) is list and texts_in(output[:1]) == [FAILED_HEADER]:
        return output[1:]
    return output.removeprefix(FAILED_HEADER) if type(output) is str else output


def _says_failed(output: Any) -> bool:
    """Return whether the text of an output says that its call failed: see ``has_failed``."""
    if type(output) is list:
        return texts_in(output[:1]) == [FAILED_HEADER]
    if type(output) is not str:
        return False
    if output.startswith("{"):
        return _exit_code(output) != 0
    header, separator, _ = output[:_HEADER_MAX].partition("\nOutput:")
    code = _CODE.search(header) if separator else None
    if code is not None:
        return int(code[1]) != 0
    return _NO_EXIT_CODE.match(output) is not None


def _exit_code(output: str) -> int:
    """Return the exit code in an output that is JSON."""
    try:
        return _shell_output.decode(output).metadata.exit_code
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return 0  # the output is JSON of another tool, or is not JSON
