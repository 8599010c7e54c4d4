"""The five programs: where they keep transcripts and settings, and when they delete transcripts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from foldlog._formats.registry import format_named


class Target(NamedTuple):
    """A file of settings, and the file of ``plugins/`` whose content goes there.

    ``how``  "own": the file is ours alone; "merge": our values are put into the JSON that is there; "toml": they are a
             block of its text
    """

    plugin: str
    path: str
    how: str


class Program(NamedTuple):
    """A coding agent.

    ``format``    the format of its transcripts, which says where they are kept
    ``home``      the folder that is there if it is installed
    ``targets``   what ``foldlog setup`` writes
    ``days``      after how many days it deletes transcripts if its settings do not say; None: it does not
    ``setting``   the file and the names of the setting that says it
    """

    name: str
    format: str
    home: str
    targets: tuple[Target, ...]
    days: int | None = None
    setting: tuple[str, tuple[str, ...]] | None = None

    def transcripts(self) -> Iterator[Path]:
        """Yield the files that hold its conversations."""
        seen = set[Path]()
        for place in format_named(self.format).kept_in:
            root = place_at(place)
            if root is None or not root.is_dir():
                continue
            for path in sorted(root.rglob("*.json*" if self.name != "opencode" else "opencode.db")):
                is_transcript = self.name in ("opencode", "claude-code", "codex") or "chats" in path.parts
                is_transcript = is_transcript or path.name == "events.jsonl"
                if path.is_file() and path.resolve() not in seen and is_transcript:
                    seen.add(path.resolve())
                    yield path

    def days_kept(self) -> float | None:
        """Return after how many days it deletes a transcript; None if it deletes none."""
        if self.setting is None:
            return self.days
        value: Any = settings_at(place_at(self.setting[0]))
        for name in self.setting[1]:
            value = value.get(name) if isinstance(value, Mapping) else None
        if isinstance(value, Mapping):  # Gemini: {"enabled": true, "maxAge": "30d"}
            return None if value.get("enabled") is False else _days(value.get("maxAge"), self.days)
        return value if type(value) is int else self.days


def place_at(place: str) -> Path | None:
    """Return a place with ``~`` and variables of the environment as a path; None where a variable is not set."""
    path = os.path.expanduser(os.path.expandvars(place))
    return None if path.startswith("$") else Path(path)


def settings_at(path: Path | None) -> dict[str, Any]:
    """Return the settings in a JSON file; none where it is missing. Raises ``ValueError`` for another content."""
    if path is None or not path.is_file():
        return {}
    settings = json.loads(path.read_text("utf-8") or "{}")
    if not isinstance(settings, dict):
        raise ValueError(f"{path} holds no JSON object")  # noqa: TRY004 - as other contents that cannot be read
    return settings


def _days(text: Any, default: int | None) -> float | None:
    """Return a duration of Gemini's settings, such as ``30d``, in days."""
    units = {"h": 1 / 24, "d": 1, "w": 7, "m": 30}
    if isinstance(text, str) and text[:-1].isdigit() and text[-1:] in units:
        return int(text[:-1]) * units[text[-1]]
    return default


PROGRAMS = {
    program.name: program
    for program in (
        Program(
            "claude-code",
            "claude-code",
            "~/.claude",
            (
                Target("claude-code/hooks/hooks.json", "~/.claude/settings.json", "merge"),
                Target("claude-code/.mcp.json", "~/.claude.json", "merge"),
            ),
            30,
            ("~/.claude/settings.json", ("cleanupPeriodDays",)),
        ),
        Program(
            "codex",
            "codex",
            "~/.codex",
            (
                Target("codex/hooks/hooks.json", "~/.codex/hooks.json", "merge"),
                Target("codex/config.toml", "~/.codex/config.toml", "toml"),
            ),
        ),
        Program(
            "gemini",
            "gemini-cli",
            "~/.gemini",
            (
                Target("gemini/hooks/hooks.json", "~/.gemini/settings.json", "merge"),
                Target("gemini/gemini-extension.json", "~/.gemini/settings.json", "merge"),
            ),
            30,
            ("~/.gemini/settings.json", ("general", "sessionRetention")),
        ),
        Program(
            "opencode",
            "opencode",
            "~/.config/opencode",
            (
                Target("opencode/foldlog.ts", "~/.config/opencode/plugins/foldlog.ts", "own"),
                Target("opencode/opencode.json", "~/.config/opencode/opencode.json", "merge"),
            ),
        ),
        Program(
            "copilot",
            "copilot-cli",
            "~/.copilot",
            (
                Target("copilot/hooks.json", "~/.copilot/hooks/foldlog.json", "own"),
                Target("copilot/mcp-config.json", "~/.copilot/mcp-config.json", "merge"),
            ),
        ),
    )
}
