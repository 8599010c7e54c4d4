"""This module finds the names of files, tests and identifiers in texts, with the words around
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import repeat

from foldlog.condensers.prompts.rendering import clipped
from foldlog.condensers.strategies.user_words import SENTENCE_END, is_prose

_WINDOWS = r"[A-Za-z]:[\\/][^\s\"'<>|*?:,;()`]+"
_ESCAPED = re.compile(rf"(?<!\w)({_WINDOWS})|\\[nrt\"]")
_NAME = re.compile(rf"(?<![<\w])(?:{_WINDOWS}|\w+://[\w./:?=&%-]+|~?/?\w(?:[\w./-]|::)+)")
_OF_A_NAME = re.compile(r"[_/\\]|::|\w\.\w|[a-z][A-Z]|[a-zA-Z]\d")
_NO_NAME = re.compile(
    r"(?![^/]*[/\\])\d.*"  # This matches a number, a date or a size.
    r"|[a-z]+(?:-[a-z]+)*-[\d./]+"  # This matches a class of a style sheet.
    r"|(?:Math|JSON|Object|Array|Promise|Module|console)\.\w+"
    r"|.*\w{65}.*"
)
_WORD = re.compile(r"\w+")
_NUMBERED = re.compile(r"\A\s*\d+(?:→|\t|: )")
"""The number of a line, in the formats of tools that show files."""
_FRAME = re.compile(r"\s*at .*:\d+|.*(?:node:internal|node_modules/|site-packages/|/lib/python3)")
_DEFINITION = re.compile(
    r"^[ \t]*(?:(?:export|default|abstract|public|pub|async)[ ]+)*"
    r"((?:class|interface|struct|enum|model|type|def|func|fn|function)[ ]+(\w+))"
    r"[^\n]*(?:\n(?![ \t]*[})<]|[ \t]*$)[^\n]*){0,8}",
    re.MULTILINE,
)
"""A definition with the lines after it, up to a line that is empty or closes the definition."""
_DEFINITION_MAX = 400
_LEAST = 6
_MOST = 160
CUT = "…"
_SENTENCE_MAX = 120
_BESIDE = 14
"""How many characters of the line are shown on each side of a name. Words are not cut."""


def names_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield every name in a text with the words around it. A repeated name is yielded again."""
    for line in map(_NUMBERED.sub, repeat(""), unescaped(text).splitlines()):
        if not _FRAME.match(line):
            for found in _NAME.finditer(line):
                name = found[0].rstrip("./:-\\")
                if (
                    _LEAST <= len(name) <= _MOST
                    and _OF_A_NAME.search(name)
                    and not _NO_NAME.fullmatch(name)
                ):
                    yield name, _around(line, found.start(), found.start() + len(name))


def definitions_in(text: str, asked: str) -> Iterator[tuple[str, str]]:
    """Yield the definitions in ``text`` of names in ``asked``. A definition is a name and its first
    lines as a single line.
    """
    names = {word for word in _WORD.findall(asked) if not word.islower()}
    code = "\n".join(map(_NUMBERED.sub, repeat(""), text.splitlines()))
    for found in _DEFINITION.finditer(code):
        if found[2] in names:
            yield found[1], clipped(" ".join(found[0].split()), _DEFINITION_MAX)


def unescaped(text: str) -> str:
    """Return a text in which the escaped line ends of JSON are real line ends. The backslashes in a
    path of Windows stay.
    """
    if "\\" in text:
        return _ESCAPED.sub(lambda found: (found[1] or "\n").replace("\\\\", "\\"), text)
    return text


def is_file(name: str) -> bool:
    """Return whether a name is the name of a file or a test."""
    return (
        "/" in name
        or "\\" in name
        or "::" in name
        or bool(re.search(r"\w\.[a-z]\w{0,4}\Z|(?i:test)", name))
    )


def _around(line: str, start: int, end: int) -> str:
    """Return the words around a name in a line. A short sentence is returned whole, because a part
    of it may have another meaning. A mark shows where the line was cut.
    """
    begin = start - len(SENTENCE_END.split(line[:start])[-1])
    stop = end + len(SENTENCE_END.split(line[end:], 1)[0])
    if stop - begin > _SENTENCE_MAX or not is_prose(line[begin:stop]):
        if start - begin > _BESIDE:
            begin = line.find(" ", start - _BESIDE, start) + 1 or start
        if stop - end > _BESIDE:
            stop = max(line.rfind(" ", end, end + _BESIDE), end)
    words = " ".join(line[begin:stop].split())
    return CUT * bool(line[:begin].strip()) + words + CUT * bool(line[stop:].strip())
