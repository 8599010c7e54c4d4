"""Sessions of Claude Code: lines that form a chain by ``parentUuid``.

Claude Code looks for a session in a folder whose name it makes from the path of the project.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from string import ascii_letters, ascii_lowercase, digits
from uuid import uuid4

from foldlog._base.json_types import JsonObject
from foldlog.formats.blocks import THINKING
from foldlog.formats.claude_code.lines import MARK, NAME
from foldlog.formats.native_sessions.session import (
    NativeSession,
    SessionRecord,
    count_tokens,
    newest_below,
    times_of,
)
from foldlog.projections import View

_PLAIN = frozenset(ascii_letters + digits)
"""The characters of a path that stay in the name of a folder."""
_FOLDER_MAX = 200
"""A longer name of a folder is cut, as Claude Code cuts it."""
_DIGITS = digits + ascii_lowercase
_SESSION_FILE = re.compile(r"[0-9a-f-]{36}\.jsonl")


class ClaudeCodeSession(NativeSession):
    """A new session of Claude Code."""

    program = "claude-code"
    label = "Claude Code"
    format = NAME
    release = "2.1.332"
    small_window = 200_000

    def new_id(self) -> str:
        return str(uuid4())

    def path(self) -> Path:
        return self._projects() / folder_of(str(self.cwd)) / f"{self.session}.jsonl"

    def newest(self) -> Path | None:
        return newest_below(self._projects(), _SESSION_FILE, 1)

    def _projects(self) -> Path:
        """Return the folder with a folder for each project."""
        home = os.environ.get("CLAUDE_CONFIG_DIR") or "~/.claude"
        return Path(home).expanduser() / "projects"

    @property
    def resume(self) -> tuple[str, ...]:
        return "claude", "--resume", self.session

    def records(self, view: View, title: str, left_out: dict[str, int]) -> list[SessionRecord]:
        lines = list[SessionRecord]()
        if title:
            named = {"type": "custom-title", "customTitle": title, "sessionId": self.session}
            lines.append(SessionRecord(named, is_repeated=True))
        times = times_of(view.events, self.now)
        messages = view.rendered("anthropic")
        last_reply: JsonObject = {}
        parent: str | None = None
        waiting: tuple[int, ...] = ()
        for message, positions in messages:
            positions = (*waiting, *positions)
            waiting = ()
            content = self._content(message["content"], left_out)
            if not content:
                waiting = positions
                continue
            role = message["role"]
            uuid = str(uuid4())
            line: JsonObject = {
                "parentUuid": parent,
                "isSidechain": False,
                "userType": "external",
                "cwd": str(self.cwd),
                "sessionId": self.session,
                "version": self.release,
                "type": role,
                "message": {"role": role, "content": content},
                "uuid": uuid,
                "timestamp": times[positions[-1]] if positions else times[0],
            }
            if role == "assistant":
                # Without a model: Claude Code would try to go on with the model of the last reply,
                # and ignores the usage of the model "<synthetic>".
                calls = content[-1]["type"] == "tool_use"
                last_reply = {
                    "id": f"msg_{uuid.replace('-', '')}",
                    "type": "message",
                    "role": role,
                    "content": content,
                    "stop_reason": "tool_use" if calls else "end_turn",
                    "stop_sequence": None,
                    "usage": {"input_tokens": 0, "output_tokens": 0},
                }
                line["message"] = last_reply
            if parent is None:
                line[MARK] = {"session": self.session}
            parent = uuid
            lines.append(SessionRecord(line, positions))
        self.tokens = count_tokens(written.record.get("message", {}) for written in lines)
        if last_reply:
            # Claude Code compacts before its first turn if the last usage is near the window.
            last_reply["usage"] = {"input_tokens": self.tokens, "output_tokens": 0}
        return lines

    def _content(
        self, content: str | list[JsonObject], left_out: dict[str, int]
    ) -> list[JsonObject]:
        """Return the blocks of a message, without thinking and marks of a cache."""
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        blocks = list[JsonObject]()
        for block in content:
            # The signature of another account or server is refused, and the session with it.
            if block["type"] in THINKING:
                left_out["thinking"] = left_out.get("thinking", 0) + 1
            else:
                blocks.append({key: block[key] for key in block if key != "cache_control"})
        return blocks


def folder_of(path: str) -> str:
    """Return the name of the folder in which Claude Code keeps the sessions of a project.

    Each unit of UTF-16 of the real path that is no ASCII letter or digit becomes ``-``. A long name
    is cut, and gets a hash of the path.
    """
    encoded = os.path.realpath(path).encode("utf-16-le", "surrogatepass")
    units = [
        int.from_bytes(encoded[place : place + 2], "little") for place in range(0, len(encoded), 2)
    ]
    letters = map(chr, units)
    name = "".join(letter if letter in _PLAIN else "-" for letter in letters)
    if len(name) <= _FOLDER_MAX:
        return name
    return f"{name[:_FOLDER_MAX]}-{_in_base_36(_hash_of(units))}"


def _hash_of(units: list[int]) -> int:
    """Return the hash of a text in Java, without its sign."""
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return abs(value - (1 << 32)) if value >> 31 else value


def _in_base_36(value: int) -> str:
    """Return a number in base 36, as JavaScript writes it."""
    text = "" if value else "0"
    while value:
        value, digit = divmod(value, 36)
        text = _DIGITS[digit] + text
    return text
