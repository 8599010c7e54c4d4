"""Sessions of Codex: rollouts with the items of OpenAI's Responses API, and the events that its
terminal shows.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from foldlog._base.json_types import JsonObject
from foldlog.condensers.strategies.user_words import EXIT_CODE
from foldlog.eventstore import Observation
from foldlog.formats.codex.lines import FAILED_HEADER, has_failed
from foldlog.formats.native_sessions.session import (
    NativeSession,
    SessionRecord,
    count_tokens,
    newest_below,
    text_of_time,
    times_of,
)
from foldlog.projections import View

_ENCRYPTED = {"reasoning": "thinking", "compaction": "encrypted compaction"}
"""Items that only the server that made them can read."""
_ROLLOUT = re.compile(r"rollout-.*\.jsonl")
_TEXT = {"assistant": "output_text"}
"""The type of a text by its role, if it is not ``input_text``."""
_EXIT_CODE = re.compile(r"\s*Exit code:? (-?[1-9]\d*)(?:\r?\n|\Z)")
"""Matches the beginning of a failed command's output in Claude Code."""
_ENDING_MAX = 300
"""The number of characters at the end of an output in which an exit code may stand."""


class CodexSession(NativeSession):
    """A new rollout of Codex."""

    program = "codex"
    label = "Codex"
    format = "codex"
    release = "0.171.0"

    def new_id(self) -> str:
        """Return a UUID of version 7, as Codex names its sessions: the time, the version, and
        random bits.
        """
        milliseconds = int(self.now.timestamp() * 1000)
        random_bits = uuid4().int & ((1 << 80) - 1)
        version_and_variant = (7 << 76) | (2 << 62)
        random_bits &= ~((0xF << 76) | (3 << 62))
        return str(UUID(int=(milliseconds << 80) | version_and_variant | random_bits))

    def path(self) -> Path:
        at = self.now.astimezone()
        name = f"rollout-{at:%Y-%m-%dT%H-%M-%S}-{self.session}.jsonl"
        return self._sessions() / f"{at:%Y}" / f"{at:%m}" / f"{at:%d}" / name

    def newest(self) -> Path | None:
        return newest_below(self._sessions(), _ROLLOUT, 3)

    def _sessions(self) -> Path:
        """Return the folder with the rollouts of all days."""
        return Path(os.environ.get("CODEX_HOME") or "~/.codex").expanduser() / "sessions"

    @property
    def resume(self) -> tuple[str, ...]:
        return "codex", "resume", self.session

    def records(self, view: View, title: str, left_out: dict[str, int]) -> list[SessionRecord]:
        lines = list[SessionRecord]()
        times = times_of(view.events, self.now)
        items = view.rendered("responses")
        time = times[0] if times else text_of_time(self.now)

        def add(kind: str, payload: JsonObject, positions: tuple[int, ...] = ()) -> None:
            line = {"timestamp": time, "ordinal": len(lines), "type": kind, "payload": payload}
            lines.append(SessionRecord(line, positions))

        meta = {
            "id": self.session,
            "session_id": self.session,
            "timestamp": time,
            "cwd": str(self.cwd),
            "originator": "foldlog",
            "cli_version": self.release,
            "source": "cli",
        }
        add("session_meta", meta)
        waiting: tuple[int, ...] = ()
        for item, positions in items:
            positions = (*waiting, *positions)
            waiting = ()
            kind = item.get("type", "message")
            if kind in _ENCRYPTED:
                left_out[_ENCRYPTED[kind]] = left_out.get(_ENCRYPTED[kind], 0) + 1
                waiting = positions
                continue
            if positions:
                time = times[positions[-1]]
            if kind == "message":
                item = _message(item)
                add("event_msg", _as_shown(item))
            elif kind.endswith("_output") and _is_failed(view, positions):
                item = {**item, "output": _marked(item["output"])}
            add("response_item", item, positions)
        # What Anthropic's model thought has no item, so it is counted in the events.
        thoughts = sum(len(getattr(event, "thinking", ())) for event in view.events)
        if thoughts > left_out.get("thinking", 0):
            left_out["thinking"] = thoughts
        records = [written.record for written in lines]
        self.tokens = count_tokens(
            record["payload"] for record in records if record["type"] == "response_item"
        )
        # Codex compacts before its first turn if the last usage is near the window. The total stays
        # 0, because the session has not called a model.
        usage = {"input_tokens": self.tokens, "cached_input_tokens": 0, "output_tokens": 0}
        usage |= {"reasoning_output_tokens": 0, "total_tokens": self.tokens}
        info = {
            "total_token_usage": dict.fromkeys(usage, 0),
            "last_token_usage": usage,
            "model_context_window": None,
        }
        add("event_msg", {"type": "token_count", "info": info, "rate_limits": None})
        return lines


def _message(item: JsonObject) -> JsonObject:
    """Return a message with its text as a part."""
    role = item["role"]
    content = item["content"]
    if isinstance(content, str):
        content = [{"type": _TEXT.get(role, "input_text"), "text": content}]
    return {"type": "message", "role": role, "content": content}


def _as_shown(message: JsonObject) -> JsonObject:
    """Return the line by which Codex shows a message to its user."""
    text = "\n".join(part["text"] for part in message["content"] if "text" in part)
    if message["role"] == "assistant":
        return {"type": "agent_message", "message": text}
    return {"type": "user_message", "message": text, "images": []}


def _is_failed(view: View, positions: tuple[int, ...]) -> bool:
    """Return whether one of these events is a failed result."""
    answers = (view[position] for position in positions)
    return any(isinstance(event, Observation) and event.is_error for event in answers)


def _marked(output: Any) -> Any:
    """Return the output of a failed call with a header that says so, because the format has no flag
    for it. An exit code that the output already names is named once.
    """
    if has_failed(output):
        return output
    if isinstance(output, str):
        return _with_header(output)
    first, *others = output or [{"type": "input_text", "text": ""}]
    if first.get("type") == "input_text":
        return [{**first, "text": _with_header(first["text"])}, *others]
    return [{"type": "input_text", "text": FAILED_HEADER}, first, *others]


def _with_header(text: str) -> str:
    """Return the output of a failed call with a header, unless its end names an exit code."""
    begins_with_code = _EXIT_CODE.match(text)
    if begins_with_code:
        return f"Exit code: {begins_with_code[1]}\nOutput:\n{text[begins_with_code.end() :]}"
    codes = EXIT_CODE.findall(text[-_ENDING_MAX:])
    is_named = bool(codes) and int(codes[-1]) != 0
    return text if is_named else FAILED_HEADER + text
