"""Words on a terminal, and documents for programs.

Nothing that comes out of a history may steer the terminal that it is shown on: control characters, and those that turn
the direction of writing, are shown as escapes.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.text import Text

__all__ = [
    "complain",
    "console",
    "emit",
    "emit_list",
    "json_text",
    "prepare",
    "print_line",
    "printable",
    "progress",
    "warn",
]

_STEERING = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_STEERS = re.compile(f"[{_STEERING}]")
_STEERS_OR_BREAKS = re.compile(f"[{_STEERING}\\t\\n]")
_NON_FINITE = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity')


def prepare() -> None:
    """Have what a terminal's encoding lacks printed as an escape, rather than end in an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def printable(text: str, *, one_line: bool = False) -> str:
    """``text`` with what would steer a terminal as escapes; with ``one_line``, line breaks and tabs as well."""
    return (_STEERS_OR_BREAKS if one_line else _STEERS).sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(match[0]) or (
        f"\\x{ord(match[0]):02x}" if ord(match[0]) < 0x100 else f"\\u{ord(match[0]):04x}"
    )


def console() -> Console:
    """Where people read: stdout. As wide as the terminal; piped, as ``COLUMNS`` says, or 120."""
    from rich.console import Console

    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, markup=False, emoji=False, width=None if known else 120)


def print_line(console: Console, line: Text | str) -> None:
    """One line, cut where the terminal ends."""
    console.print(line, no_wrap=True, overflow="ellipsis")


def progress() -> Progress:
    """A bar on stderr for long work; nothing where stderr is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,.0f} {task.fields[unit]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def complain(message: str) -> None:
    """An error: one line on stderr."""
    sys.stderr.write(f"foldlog: {printable(message, one_line=True)}\n")


def warn(message: str) -> None:
    """A finding: one line on stderr."""
    complain(f"found: {message}")


def json_text(value: Any, *, indent: int | None = None) -> str:
    """``value`` as JSON that every parser takes and no terminal minds: what JSON cannot say of a text is escaped, and a
    number beyond all doubles is written as one (``1e999``), not as ``Infinity``.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if "Infinity" in text:
        text = _NON_FINITE.sub(
            lambda found: found[0].replace("Infinity", "1e999") if found[0][0] != '"' else found[0], text
        )
    return _STEERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def emit(document: Any) -> None:
    """The one JSON document that ``--json`` promises."""
    sys.stdout.write(f"{json_text(document, indent=2)}\n")


def emit_list(
    head: Mapping[str, Any], name: str, items: Iterable[Any], tail: Callable[[], Mapping[str, Any]] = dict
) -> None:
    """The one document, with a list under ``name`` that is written while it is read, however long it is; ``tail`` is
    asked after that for what stands behind it.
    """
    sys.stdout.write("{")
    for key, value in head.items():
        sys.stdout.write(f"{json_text(key)}: {json_text(value)}, ")
    sys.stdout.write(f"{json_text(name)}: [")
    for number, item in enumerate(items):
        sys.stdout.write(f"{',' if number else ''}\n{json_text(item)}")
    sys.stdout.write("\n]")
    for key, value in tail().items():
        sys.stdout.write(f", {json_text(key)}: {json_text(value)}")
    sys.stdout.write("}\n")
