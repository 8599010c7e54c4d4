"""The five programs: where their transcripts and settings are, and when they delete transcripts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foldlog.formats.registry import format_named

_CLAUDE = "${CLAUDE_CONFIG_DIR:-~/.claude}"
_CODEX = "${CODEX_HOME:-~/.codex}"
_GEMINI = "~/.gemini/extensions/foldlog"
_OPENCODE = "${XDG_CONFIG_HOME:-~/.config}/opencode"
_COPILOT = "${COPILOT_HOME:-~/.copilot}"
_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
"""A variable of the environment, and its default."""
_DURATION = re.compile(r"(\d+)([hdwm])")


class Target(NamedTuple):
    """A settings file, and the file in ``plugins/`` with foldlog's values. If ``is_ours``, the
    whole file belongs to foldlog.
    """

    plugin: str
    path: str
    is_ours: bool = False


class Program(NamedTuple):
    """A coding agent.

    name      its name on the command line
    format    the format of its transcripts. The format has the names of the transcripts' folders
    files     a pattern for the file names of its transcripts
    home      the folder that exists if the program is installed
    targets   the files that ``foldlog setup`` writes
    days      by default, the program deletes transcripts after this many days; None for never
    setting   the setting that changes ``days``: its file, and the keys in the file
    """

    name: str
    format: str
    files: str
    home: str
    targets: tuple[Target, ...]
    days: int | None = None
    setting: Sequence[str] = ()

    def transcripts(self) -> Iterator[Path]:
        """Yield the transcripts that are there, each once."""
        roots = filter(None, map(place_at, format_named(self.format).kept_in))
        files = {path.resolve(): path for root in roots for path in sorted(root.rglob(self.files))}
        return (path for path in files.values() if path.is_file())

    def days_kept(self) -> float | None:
        """Return the number of days after which the program deletes a transcript, or None for
        never. Raises ``ValueError`` for settings that cannot be read.
        """
        if not self.setting:
            return self.days
        file, *names = self.setting
        path = settings_at(file)
        value: Any = settings_in(path, text_at(path))
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        if isinstance(value, Mapping):  # Gemini: {"enabled": true, "maxAge": "30d"}
            if value.get("enabled") is False:
                return None
            return _days(value.get("maxAge"), self.days)
        return value if type(value) is int else self.days


def place_at(place: str) -> Path | None:
    """Return a path after the expansion of ``~`` and environment variables, or None if a variable
    is not set.
    """
    path = os.path.expanduser(os.path.expandvars(place))
    return None if path.startswith("$") else Path(path)


def settings_at(place: str) -> Path:
    """Return the path of a settings file. ``place`` may contain environment variables with
    defaults, such as ``${NAME:-default}``.
    """
    path = _VARIABLE.sub(lambda found: os.environ.get(found[1]) or found[2], place)
    return Path(path).expanduser().absolute()


def text_at(path: Path) -> str | None:
    """Read a file. Return None if the file is missing. Raises ``ValueError`` if the bytes of the
    file are not text.
    """
    try:
        return path.read_text("utf-8") if path.is_file() else None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}") from error


def settings_in(path: Path, text: str | None) -> MutableMapping[str, Any]:
    """Read the JSON or TOML in ``text``. Raises ``ValueError`` if the text cannot be read."""
    try:
        if path.suffix == ".toml":
            import tomlkit

            document: MutableMapping[str, Any] = tomlkit.parse(text or "")
            return document
        settings = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(settings, dict):
        # A ValueError, as for other contents that cannot be read.
        raise ValueError(f"{path} does not contain a JSON object")  # noqa: TRY004
    return settings


def _days(text: Any, default: int | None) -> float | None:
    """Return a duration of Gemini's settings, such as ``30d``, in days."""
    days_of = {"h": 1 / 24, "d": 1, "w": 7, "m": 30}
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    return default if match is None else int(match[1]) * days_of[match[2]]


PROGRAMS = {
    program.name: program
    for program in (
        Program(
            "claude-code",
            "claude-code",
            "*.jsonl",
            _CLAUDE,
            (
                Target("claude-code/hooks/hooks.json", f"{_CLAUDE}/settings.json"),
                Target("claude-code/.mcp.json", "${CLAUDE_CONFIG_DIR:-~}/.claude.json"),
            ),
            30,
            (f"{_CLAUDE}/settings.json", "cleanupPeriodDays"),
        ),
        Program(
            "codex",
            "codex",
            "rollout-*.json*",
            _CODEX,
            (
                Target("codex/hooks/hooks.json", f"{_CODEX}/hooks.json"),
                Target("codex/config.toml", f"{_CODEX}/config.toml"),
            ),
        ),
        Program(
            "gemini",
            "gemini-cli",
            "chats/*.json*",
            "~/.gemini",
            (
                Target("gemini/hooks/hooks.json", f"{_GEMINI}/hooks/hooks.json", is_ours=True),
                Target(
                    "gemini/gemini-extension.json", f"{_GEMINI}/gemini-extension.json", is_ours=True
                ),
            ),
            30,
            ("~/.gemini/settings.json", "general", "sessionRetention"),
        ),
        Program(
            "opencode",
            "opencode",
            "opencode.db",
            _OPENCODE,
            (Target("opencode/foldlog.ts", f"{_OPENCODE}/plugins/foldlog.ts", is_ours=True),),
        ),
        Program(
            "copilot",
            "copilot-cli",
            "events.jsonl",
            _COPILOT,
            (
                Target("copilot/hooks.json", f"{_COPILOT}/hooks/foldlog.json", is_ours=True),
                Target("copilot/mcp-config.json", f"{_COPILOT}/mcp-config.json"),
            ),
        ),
    )
}
