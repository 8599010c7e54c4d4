"""Find names in texts: files, tests, identifiers of code, each with the words around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import repeat

_WINDOWS = r"[A-Za-z]:[\\/][^\s\"'<>|*?:,;()`]+"
_ESCAPED = re.compile(rf"(?<!\w)({_WINDOWS})|\\[nrt\"]")
_NAME = re.compile(rf"(?<![<\w])(?:{_WINDOWS}|\w+://[\w./:?=&%-]+|~?/?\w(?:[\w./-]|::)+)")
_OF_A_NAME = re.compile(r"[_/\\]|::|\w\.\w|[a-z][A-Z]|[a-zA-Z]\d")
_NO_NAME = re.compile(
    r"(?![^/]*[/\\])\d.*"  # a number, a date, a size
    r"|[a-z]+(?:-[a-z]+)*-[\d./]+"  # a class of a style sheet
    r"|(?:Math|JSON|Object|Array|Promise|Module|console)\.\w+"
    r"|.*\w{65}.*"
)
_NUMBERED = re.compile(r"\A\s*\d+(?:→|\t|: )")
"""The number of a line, as tools that show files write it."""
_FRAME = re.compile(r"\s*at .*:\d+|.*(?:node:internal|node_modules/|site-packages/|/lib/python3)")
_LEAST, _MOST = 6, 160
_BESIDE = 14
"""How many characters of its line stand on each side of a name, up to the ends of words."""


def names_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names in a text, each with the words around it. A name comes once for each line that has it."""
    for line in map(_NUMBERED.sub, repeat(""), unescaped(text).splitlines()):
        if not _FRAME.match(line):
            for found in _NAME.finditer(line):
                name = found[0].rstrip("./:-\\")
                if _LEAST <= len(name) <= _MOST and _OF_A_NAME.search(name) and not _NO_NAME.fullmatch(name):
                    yield name, _around(line, found.start(), found.start() + len(name))


def unescaped(text: str) -> str:
    """Return a text with the line ends that JSON within it escapes. A path of Windows stays."""
    return _ESCAPED.sub(lambda found: (found[1] or "\n").replace("\\\\", "\\"), text) if "\\" in text else text


def is_file(name: str) -> bool:
    """Return whether a name names a file or a test."""
    return "/" in name or "\\" in name or "::" in name or bool(re.search(r"\w\.[a-z]\w{0,4}\Z|(?i:test)", name))


def _around(line: str, start: int, end: int) -> str:
    """Return the words around a name in a line."""
    begin = max(0, start - _BESIDE)
    if begin:
        begin = line.find(" ", begin, start) + 1 or start
    last = end + _BESIDE
    if last < len(line):
        last = max(line.rfind(" ", end, last), end)
    return " ".join(line[begin:last].split())
