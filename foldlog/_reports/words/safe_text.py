"""Make text and JSON that are safe to print on a terminal.

Control characters, and characters that change the direction of writing, become escapes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

UNLIMITED = sys.maxsize
"""A length of a line that never cuts the line."""
# The characters that move the cursor or turn the direction of writing, and halves of surrogates.
_STEERING = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029"
    r"\u202a-\u202e\u2066-\u2069\ud800-\udfff"
)
# ``re`` compiles these patterns when they are first used: this takes a fiftieth of a short command
# (benchmark "list of a small store"), and most commands print no such character.
_STEERS = f"[{_STEERING}]"
_STEERS_OR_BREAKS = f"[{_STEERING}\\t\\n]"
_LONE = r"(?<!\\)((?:\\\\)*)\\u(?=d[89a-f])"
"""The escape of a lone surrogate in JSON. An escaped backslash before ``u`` is no escape."""
_NON_FINITE = r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN'
"""A number that JSON does not have. Strings are matched too, so that no text inside is changed."""


def printable(text: str, *, one_line: bool = False) -> str:
    """Return ``text`` with escapes for characters that control a terminal. With ``one_line``, also
    escape line breaks and tabs.
    """
    if text.isprintable():  # none of the replaced characters is printable
        return text
    return re.sub(_STEERS_OR_BREAKS if one_line else _STEERS, _escape, text)


def escape_cells(rows: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """Escape the cells of rows, so that no cell controls a terminal or begins a second line."""
    if "".join(map("".join, rows)).isprintable():  # one check for a page of a long table
        return rows
    return [[printable(cell, one_line=True) for cell in row] for row in rows]


def typed_id(conversation: str) -> str:
    """Quote the id of a conversation for a shell such as bash or zsh. Control characters and line
    breaks are escaped, as in ``$'tab\\tx'``. An id without control characters is unchanged.
    """
    if conversation.isprintable() or not re.search(_STEERS_OR_BREAKS, conversation):
        return conversation
    quoted = conversation.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{re.sub(_STEERS_OR_BREAKS, _escape, quoted)}'"


def shell_word(text: str) -> str:
    """Quote a text for a shell such as bash or zsh. A text with characters that control a terminal
    has escapes for them, as in ``$'a\\nb'``.
    """
    if not re.search(_STEERS_OR_BREAKS, text):
        from shlex import quote  # compiles a pattern, and most texts are not for a shell

        return quote(text)
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{re.sub(_STEERS_OR_BREAKS, _escape, quoted)}'"


def _escape(match: re.Match[str]) -> str:
    """Return the escape of a character as a shell or Python reads it."""
    character = match[0]
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    if named is not None:
        return named
    number = ord(character)
    return f"\\x{number:02x}" if character.isascii() else f"\\u{number:04x}"


def json_text(value: Any, *, indent: int | None = None, exact: bool = False) -> str:
    """Return ``value`` as JSON that every parser accepts and that is safe to print on a terminal.

    Control characters and lone surrogates are escaped. An infinite number is written as ``1e999``,
    and ``NaN`` as ``null``. With ``exact``, ``NaN`` stays as the source wrote it. Bytes are written
    in base64. Unset fields of documents are left out.
    """
    if indent is None:
        encoded = _encode(value)
        if encoded is not None:
            if encoded.isascii() and b"\x7f" not in encoded:
                return encoded.decode("ascii")
            text = encoded.decode()
            return text if text.isprintable() else re.sub(_STEERS, _escape_match, text)
    separators = (",", ":") if indent is None else None
    text = json.dumps(
        value, ensure_ascii=False, indent=indent, separators=separators, default=_plain
    )
    if "Infinity" in text or "NaN" in text:
        written = {"Infinity": "1e999", "-Infinity": "-1e999"}
        if not exact:
            written["NaN"] = "null"
        text = re.sub(_NON_FINITE, lambda found: written.get(found[0], found[0]), text)
    return re.sub(_STEERS, _escape_match, text)


def well_formed(text: str) -> str:
    """Change the JSON of ``json_text`` for parsers such as ``jq`` that refuse lone surrogates. A
    lone surrogate becomes the text that ``printable`` shows, such as ``\\ud800``, so two different
    values may become equal.
    """
    return re.sub(_LONE, r"\1\\\\u", text) if r"\ud" in text else text


def _encode(value: Any) -> bytes | None:
    """Write ``value`` as JSON with msgspec, which takes a third of the time of ``json``. Return
    None if msgspec cannot write the value, or may have written an infinite number or ``NaN`` as
    ``null``. Some numbers have other digits than ``json`` writes, such as ``1e16`` for ``1e+16``.
    """
    import msgspec  # imported here, because the help of a command does not need msgspec

    try:
        encoded = msgspec.json.encode(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None  # msgspec refuses lone surrogates, and integers of more than 64 bits
    return None if b"null" in encoded else encoded


def _plain(value: Any) -> Any:
    """Return a value that ``json`` can write for one that it cannot: bytes, or a document."""
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode("ascii")
    if not hasattr(value, "__struct_fields__"):
        raise TypeError(f"a value of type {type(value).__name__} cannot be written as JSON")
    import msgspec

    return msgspec.to_builtins(value, builtin_types=(bytes,))


def _escape_match(match: re.Match[str]) -> str:
    """Return the escape of a character as JSON reads it."""
    return f"\\u{ord(match[0]):04x}"
