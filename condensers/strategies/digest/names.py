"""This module finds the names of files, tests and identifiers in texts, with the words around
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import repeat

_WINDOWS = r"[A-Za-z]:[\\/][^\s\"'<>|*?:,;()`]+"
_ESCAPED = re.compile(rf"(?<!\w)({_WINDOWS})|\\[nrt\"]")
_NAME = re.compile(rf"(?<![<\w])(?:{_WINDOWS}|\w+://[\w./:?=&%-]+|~?/?\w(?:[\w./-]|::)+)")
_IN_A_NAME = re.compile(r"[_/\\]|::|\w\.\w|[a-z][A-Z]|[a-zA-Z]\d")
_NO_NAME = re.compile(
    r"(?![^/]*[/\\])\d.*"  # This matches a number, a date or a size.
    r"|[a-z]+(?:-[a-z]+)*-[\d./]+"  # This matches a class of a style sheet.
    r"|(?:Math|JSON|Object|Array|Promise|Module|console)\.\w+"
    r"|.*\w{65}.*"
)
_NUMBERED = re.compile(r"\A\s*\d+(?:→|\t|: )")
_FRAME = re.compile(r"\s*at .*:\d+|.*(?:node:internal|node_modules/|site-packages/|/lib/python3)")
_WORD = re.compile(r"(?:[^\W_]|[_~/.\\-]|::|:(?=[\\/]))+")
_LEAST = 6
_MOST = 160
CUT = "…"
_BESIDE = 20
"""How many characters on each side of a name stand with the name, up to whole words."""


def names_in(
    text: str, is_wanted: Callable[[str], bool] = lambda name: True
) -> Iterator[tuple[str, str]]:
    """Yield the wanted names in a text, each with the words around it."""
    for line in map(_NUMBERED.sub, repeat(""), unescape(text).splitlines()):
        if not _FRAME.match(line):
            for match in _NAME.finditer(line):
                name = match[0].rstrip("./:-\\")
                if (
                    _LEAST <= len(name) <= _MOST
                    and _IN_A_NAME.search(name)
                    and not _NO_NAME.fullmatch(name)
                    and is_wanted(name)
                ):
                    yield name, _around(line, match.start(), match.start() + len(name))


def unescape(text: str) -> str:
    # The backslashes in a path of Windows stay.
    if "\\" in text:
        return _ESCAPED.sub(lambda found: (found[1] or "\n").replace("\\\\", "\\"), text)
    return text


def is_file(name: str) -> bool:
    return (
        "/" in name
        or "\\" in name
        or "::" in name
        or bool(re.search(r"\w\.[a-z]\w{0,4}\Z|(?i:test)", name))
    )


def words_in(text: str) -> set[str]:
    """Return the words of a text, and thus all names that it shows."""
    return {word.rstrip("./:-\\") for word in _WORD.findall(text)}


def _around(line: str, start: int, end: int) -> str:
    """Return the words of a line around the characters from ``start`` to ``end``, with a mark where
    it is cut.
    """
    begin = 0
    stop = len(line)
    if start > _BESIDE:
        begin = line.find(" ", start - _BESIDE, start) + 1 or start
    if stop - end > _BESIDE:
        stop = max(line.rfind(" ", end, end + _BESIDE), end)
    words = " ".join(line[begin:stop].split())
    return CUT * bool(line[:begin].strip()) + words + CUT * bool(line[stop:].strip())
