"""This module finds the names of files, tests and identifiers in texts, with the words around
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import repeat

from foldlog.condensers.prompts.rendering import clip_line
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
_FRAME = re.compile(r"\s*at .*:\d+|.*(?:node:internal|node_modules/|site-packages/|/lib/python3)")
_DEFINITION = re.compile(
    r"^[ \t]*(?:(?:export|default|abstract|public|pub|async)[ ]+)*"
    r"((?:class|interface|struct|enum|model|type|def|func|fn|function)[ ]+(\w+))"
    r"[^\n]*(?:\n(?![ \t]*[})<]|[ \t]*$)[^\n]*){0,8}",
    re.MULTILINE,
)
_DEFINITION_MAX = 400
_LEAST = 6
_MOST = 160
CUT = "…"
_SENTENCE_MAX = 120
_BESIDE = 14


def names_in(
    text: str, is_wanted: Callable[[str], bool] = lambda name: True
) -> Iterator[tuple[str, str]]:
    for line in map(_NUMBERED.sub, repeat(""), unescape(text).splitlines()):
        if not _FRAME.match(line):
            for match in _NAME.finditer(line):
                name = match[0].rstrip("./:-\\")
                if (
                    _LEAST <= len(name) <= _MOST
                    and _OF_A_NAME.search(name)
                    and not _NO_NAME.fullmatch(name)
                    and is_wanted(name)
                ):
                    yield name, _around(line, match.start(), match.start() + len(name))


def definitions_in(text: str, statement: str) -> Iterator[tuple[str, str]]:
    names = {word for word in _WORD.findall(statement) if not word.islower()}
    code = "\n".join(map(_NUMBERED.sub, repeat(""), text.splitlines()))
    for match in _DEFINITION.finditer(code):
        if match[2] in names:
            yield match[1], clip_line(" ".join(match[0].split()), _DEFINITION_MAX)


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


def _around(line: str, start: int, end: int) -> str:
    # A part of a short sentence may have another meaning, so a short sentence stays whole.
    begin = start - len(SENTENCE_END.split(line[:start])[-1])
    stop = end + len(SENTENCE_END.split(line[end:], 1)[0])
    if stop - begin > _SENTENCE_MAX or not is_prose(line[begin:stop]):
        if start - begin > _BESIDE:
            begin = line.find(" ", start - _BESIDE, start) + 1 or start
        if stop - end > _BESIDE:
            stop = max(line.rfind(" ", end, end + _BESIDE), end)
    words = " ".join(line[begin:stop].split())
    return CUT * bool(line[:begin].strip()) + words + CUT * bool(line[stop:].strip())
