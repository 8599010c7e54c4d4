"""Sessions of OpenCode: messages with their parts, from its storage folder, its database, or a file
of ``opencode export``.

The records of a session have the format of an export, and the order in which OpenCode reads its
messages:

    {"info": {"id", "projectID", …}}                          the session, with the fields that
                                                              never change
    {"info": {"id", "sessionID", "role", …}, "parts": […]}    a message
    {"info": {"id", "projectID", "revert": {…}}}              the first reverted message, if the
                                                              session is reverted

docs/IMPORTING.md says which events the parts become. The tables below have the texts that a model
gets in place of parts. A failed answer, the session with its title, and a message without any other
event are Annotations. In a reverted session, a retraction takes back the messages from ``revert``
on.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby
from typing import Any

from foldlog.eventstore import Retraction
from foldlog.formats.blocks import content_of_parts, kind_of, shown_blocks, thinking_of
from foldlog.formats.format import Format, first_named
from foldlog.formats.model_calls import RecordedUsage
from foldlog.formats.opencode_files import IN_WORDS, Sessions
from foldlog.formats.record import (
    Fields,
    count_in,
    dict_or_empty,
    dicts_in,
    has,
    text_or_empty,
    text_or_none,
    time_at,
    usage_meta,
    within,
)
from foldlog.formats.record_events import FollowingDecoder, RecordEvents

_has_info = has(info=dict)
_is_message = has(info=dict, parts=list)


def _is_session(record: Any) -> bool:
    return (
        _has_info(record)
        and record.keys().isdisjoint(("parts", "messages"))
        and "sessionID" not in record["info"]
    )


def _session_in(record: Any) -> str | None:
    return text_or_none(record, "info", "id" if _is_session(record) else "sessionID")


def _matches(record: Any) -> bool:
    if _is_session(record):
        named = has(id=str, projectID=str)
    else:
        named = has(sessionID=str, role=str)
    return (_is_session(record) or _is_message(record)) and named(record["info"])


# -- records to events -----------------------------------------------------------------------------

_UNSENT = ("agent", "snapshot", "patch", "retry", "compaction", "subtask")
_WORDS = {
    **dict.fromkeys((*_UNSENT, "step-start", "step-finish"), ""),
    "compaction": "What did we do so far?",
    "subtask": "The following tool was executed by the user",
}
"""Maps the type of a part in a user's message to the text that OpenCode sends to its model in place
of the part. In an answer, parts of the types in ``_UNSENT`` are not sent at all.
"""
_USAGE = {
    "prompt_tokens": ("input", "read", "write"),
    "cached_tokens": ("read",),
    "cache_write_tokens": ("write",),
    "completion_tokens": ("output", "reasoning"),
    "reasoning_tokens": ("reasoning",),
}


class _Decoder(FollowingDecoder):
    """Tags each shown event with the id of its message."""

    has_own_ids = True
    continues = True

    def set_up(self) -> None:
        self._messages: dict[str | None, tuple[int, Fields | None]] = {}
        """Maps the id of a message to a pair: the version before the message, and the part of the
        message that requests a compaction, or None.
        """

    def repeated_fields(self, record: Any) -> Collection[str]:
        parts = dicts_in(record, "parts")
        fields = ["info.error", "parts.error"]
        if within(record, "info", "error"):  # a failed message is not sent
            fields += ("parts.text", "parts.state")
        if any(part.get("ignored") is True for part in parts):
            fields.append("parts.text")
        if any(within(part, "state", "time", "compacted") for part in parts):
            fields.append("parts.state.output")
        return fields

    def read(self, collected: RecordEvents, record: Fields) -> None:
        info = record["info"]
        parts = dicts_in(record, "parts")
        collected.tag = collected.origin.id or ""
        role = "session" if _is_session(record) else info.get("role") or "message"
        if role == "session":
            if parent := text_or_empty(info, "parentID"):
                collected.meta["parent"] = f"{self.options.prefix}{parent}"
            if within(info, "revert") is not None:
                self.past.needs_all()
            if reverted := self._messages.get(text_or_none(info, "revert", "messageID")):
                collected.add(Retraction, version=reverted[0])
            if text_or_empty(info, "title").strip():
                collected.meta |= {"title": info["title"]}
        elif collected.tag:
            compaction = next((part for part in parts if part.get("type") == "compaction"), None)
            self._messages[collected.tag] = self.next_id, compaction
        if role == "assistant":
            collected.meta |= _usage(info, parts)
            is_aborted = within(info, "error", "name") == "MessageAbortedError"
            is_said = is_aborted and any(
                part.get("type") not in ("step-start", "reasoning") for part in parts
            )
            if not self._condense(collected, info, parts) and (is_said or not info.get("error")):
                _read_response(collected, [part for part in parts if kind_of(part) not in _UNSENT])
        elif role == "user":
            collected.parts = _sent([part for part in parts if part.get("mime") not in IN_WORDS])
            synthetic = {
                part.get("synthetic") is True for part in parts if part.get("type") == "text"
            }
            collected.say("environment" if synthetic == {True} else "user")
        collected.close(str(role), None)

    def _condense(self, collected: RecordEvents, info: Fields, parts: list[Fields]) -> bool:
        """If an answer is the summary of a compaction, add the condensation. Return whether one was
        added.
        """
        parent = text_or_empty(info, "parentID")
        _, compaction = self._messages.get(parent, (0, None))
        if info.get("summary") is True:
            self.past.needs_all()
        is_complete = info.get("summary") is True and info.get("finish") and not info.get("error")
        summary = "\n".join(
            text_or_empty(part, "text") for part in parts if part.get("type") == "text"
        )
        if not is_complete or compaction is None or not summary:
            return False
        names = [*dict.fromkeys(self.shown.tags()), parent]
        end = names.index(parent)
        tail = compaction.get("tail_start_id")
        tail_names = frozenset(names[names.index(tail) : end] if tail in names else ())
        reason = "tokens" if compaction.get("auto") is True else "request"
        collected.condense(tail_names.__contains__, summary, {"reason": reason}, offset=0)
        return True


def _read_response(collected: RecordEvents, parts: list[Fields]) -> None:
    """Add the events of an answer. Each step of it is a response of the model. Thinking at the end
    of a step belongs to the next step.
    """
    name = collected.response
    steps = 0
    for are_calls, group in groupby(parts, lambda part: part.get("type") == "tool"):
        if are_calls:
            tools = [*group]
            calls = [
                collected.call(tool.get("tool"), within(tool, "state", "input"), tool.get("callID"))
                for tool in tools
            ]
            for call, tool in zip(calls, tools, strict=True):
                collected.answer(call, **_result(dict_or_empty(tool, "state")))
            steps += 1
            collected.response = f"{name}/{steps}"
            continue
        for part in group:
            if part.get("type") == "step-start":
                collected.say("agent")
            elif part.get("type") == "reasoning":
                signed = dict_or_empty(part, "metadata", "anthropic")
                text = text_or_empty(part, "text")
                collected.thinking.append(
                    thinking_of(text, signed.get("signature"), signed.get("redactedData"))
                )
            else:
                collected.parts += _sent([part])
    collected.say("agent")


def _sent(parts: list[Fields]) -> list[Fields]:
    """Return the parts in the form in which a model gets them."""
    return shown_blocks(
        [_WORDS.get(kind_of(part) or "", part) for part in parts if part.get("ignored") is not True]
    )


def _result(state: Fields) -> Fields:
    """Return the content of a result as OpenCode sends it, and whether the call failed."""
    match state:
        case {"status": "completed", "time": {"compacted": int() | float()}}:
            return {"content": "[Old tool result content cleared]"}
        case {"status": "completed"}:
            return {
                "content": content_of_parts(
                    [*shown_blocks(state.get("output")), *_sent(dicts_in(state, "attachments"))]
                )
            }
        case {"status": "error", "metadata": {"interrupted": True, "output": str(output)}}:
            return {"content": output}
        case {"status": "error"}:
            return {"content": text_or_empty(state, "error"), "is_error": True}
    return {"content": "[Tool execution was interrupted]", "is_error": True}


def _usage(info: Fields, parts: list[Fields]) -> Fields:
    """Return the sum of the usage of all steps. If the steps have no usage, return the usage of the
    message.
    """
    steps = dicts_in([part.get("tokens") for part in parts if part.get("type") == "step-finish"])
    flat = [
        {**tokens, **dict_or_empty(tokens, "cache")}
        for tokens in steps or dicts_in([info.get("tokens")])
    ]
    counts = {
        ours: sum(count_in(tokens, *theirs) or 0 for tokens in flat)
        for ours, theirs in _USAGE.items()
    }
    call_fields = {
        "model": info.get("modelID"),
        "reply": info.get("id"),
        "cost": info.get("cost") or None,
    }
    return usage_meta(counts, **call_fields, calls=len(flat) if len(flat) > 1 else None)


FORMAT = Format(
    name="opencode",
    matches=_matches,
    accepts=lambda record: _is_session(record) or _is_message(record),
    expected="a message of OpenCode with an object under 'info' and an array under 'parts'",
    time=lambda record: (time_at(within(record, "info", "time", "created"), 1000), None),
    decoder=_Decoder,
    conversation=first_named(_session_in),
    files=Sessions(),
    recorded_usage=RecordedUsage(is_copied=True),
    kept_in=("$XDG_DATA_HOME/opencode", "~/.local/share/opencode"),
    source_id=lambda record: text_or_none(record, "info", "id") or None,
    where=lambda record: {
        "cwd": within(record, "info", "path", "cwd"),
        "model": within(record, "info", "modelID"),
    },
)
