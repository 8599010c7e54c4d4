"""Read a JSON document of any length value by value, with memory for one value.

A window slides over the file's text. The standard library's scanner reads one value at a time from the window. If a
value continues beyond the window, the window grows, so at most twice the length of a value is scanned.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from foldlog._formats.json_text import (
    DEPTH_MAX,
    RECORD_SIZE_MAX,
    TOO_DEEP,
    TOO_LONG,
    UnreadableJson,
    check_depth,
    fault,
)
from foldlog._formats.record import Located

CUT = "not JSON: the file ends in the middle of a value"

_WINDOW = 64 * 2**10
_NEAR_END = 16
"""A problem within this distance of the window's end may be caused by that end: no escape or literal is longer."""

_DELIMITERS = tuple(" \t\n\r,]}")

_WHITESPACE = re.compile(r"[ \t\n\r\0]*")  # a crash of the machine leaves NUL bytes
_SCALAR = re.compile(r"[^\s,\]\}]*")
_OUTSIDE = re.compile(r'["\[\]{}]')
_INSIDE = re.compile(r'["\\]')

_read = json.JSONDecoder(strict=False).raw_decode


class Broken(UnreadableJson):
    """The document cannot be read after this place."""


class Scanner:
    """A position in a JSON text. ``line`` and ``offset`` (in bytes) say where the position is; it may begin anywhere in
    a file.

    ``window`` is the number of bytes that are read at a time, if no value needs more. Raises ``Broken`` where the text
    is not JSON, or not UTF-8.
    """

    def __init__(self, file: BinaryIO, *, offset: int = 0, line: int = 1, window: int = _WINDOW) -> None:
        file.seek(offset)
        if offset == 0 and file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8:
            offset = len(codecs.BOM_UTF8)
        file.seek(offset)
        self._file = file
        self.source = str(getattr(file, "name", ""))
        self._window = window
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        self._ended = False
        self._fault = ""
        self._line, self._counted = line, 0
        self._offset = offset

    @property
    def line(self) -> int:
        """The line of the position; the first line is 1."""
        self._count_lines()
        return self._line

    def located(self, problem: object) -> Located:
        """Return the problem at the position."""
        return Located(self.line, 0, None, str(problem), self.source)

    @property
    def offset(self) -> int:
        """The position in bytes from the beginning of the file. Cost: the window."""
        self._drop()
        return self._offset

    def peek(self) -> str:
        """Return the next character that is not white space, without taking it; "" at the end."""
        while True:
            match = _WHITESPACE.match(self._text, self._at)
            self._at = match.end() if match is not None else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def take(self, expected: str) -> None:
        """Take the next character, which must be ``expected``."""
        found = self.peek()
        if found != expected:
            named = "a comma" if expected == "," else repr(expected)
            raise Broken(f"not JSON: expected {named}, found {repr(found) if found else 'the end of the file'}")
        self._at += 1

    def each_key(self) -> Iterator[str]:
        """Take an object, and yield each key when the position is at its value, which the caller takes or skips."""
        self.take("{")
        while self.peek() != "}":
            key = str(self.value())
            self.take(":")
            yield key
            if self.peek() != "}":
                self.take(",")
        self.take("}")

    def value(self) -> Any:
        """Return the next value. A value that is too long or too deep is skipped and raises ``UnreadableJson``; then
        the value after it can be read.
        """
        self.peek()
        while True:
            try:
                value, end = _read(self._text, self._at)
            except json.JSONDecodeError as error:
                self._broken_unless_cut(fault(error), error.pos)
            except RecursionError:
                raise self._gone_over(TOO_DEEP) from None
            except ValueError:
                raise self._gone_over("holds a number with too many digits") from None
            else:
                if self._is_whole(end):
                    return self._taken(value, end)
            if len(self._text) - self._at > RECORD_SIZE_MAX:
                raise self._gone_over(TOO_LONG)
            self._fill()

    def _is_whole(self, end: int) -> bool:
        """Return whether a value ends where it seems to end: the window may hold only the beginning of a number, 0 of
        0.5.
        """
        return (
            self._ended
            or self._text[end - 1] in '"]}'
            or end < len(self._text) - _NEAR_END
            or self._text[end : end + 1] in _DELIMITERS
        )

    def _taken(self, value: Any, end: int) -> Any:
        start, self._at = self._at, end
        if end - start > RECORD_SIZE_MAX:
            raise UnreadableJson(TOO_LONG)
        if self._text.count("[", start, end) + self._text.count("{", start, end) > DEPTH_MAX:
            check_depth(value)
        return value

    def _gone_over(self, problem: str) -> UnreadableJson:
        try:
            self.skip()
        except Broken:
            return Broken(problem)
        return UnreadableJson(problem)

    def _broken_unless_cut(self, problem: str, place: int) -> None:
        """Raise ``Broken`` with the problem at ``place``, unless the problem is only that the window ends there and
        more text follows.
        """
        unterminated = problem.startswith("Unterminated string")
        if self._ended:
            cut = unterminated or place >= len(self._text.rstrip())
            self._at = min(place, len(self._text))
            raise Broken(CUT if cut else f"not JSON: {problem}")
        if not unterminated and place < len(self._text) - _NEAR_END:
            self._at = place
            raise Broken(f"not JSON: {problem}")

    def skip(self) -> None:
        """Skip the next value, however long it is, without parsing it."""
        if self.peek() not in '"[{':
            self._go_over(_SCALAR)
            return
        depth = 0
        while True:
            found = self._find(_OUTSIDE)
            if found == '"':
                while self._find(_INSIDE) == "\\":
                    self._step()
            else:
                depth += 1 if found in "[{" else -1
            if depth <= 0:
                return

    def _find(self, pattern: re.Pattern[str]) -> str:
        """Take the characters up to the next one that ``pattern`` matches, and return that one."""
        while True:
            match = pattern.search(self._text, self._at)
            if match is not None:
                self._at = match.end()
                return match.group()
            self._at = len(self._text)
            if not self._fill():
                raise Broken(CUT)

    def _step(self) -> None:
        if self._at == len(self._text):
            self._fill()
        self._at = min(self._at + 1, len(self._text))

    def _go_over(self, pattern: re.Pattern[str]) -> None:
        while True:
            match = pattern.match(self._text, self._at)
            self._at = match.end() if match is not None else self._at
            if self._at < len(self._text) or not self._fill():
                return

    def _fill(self) -> bool:
        """Read more of the file into the window. Return False at the end of the file. The window doubles while no value
        is taken from it.
        """
        if self._fault:
            raise Broken(self._fault)
        if self._ended:
            return False
        self._drop()
        chunk = self._file.read(max(self._window, len(self._text)))
        try:
            self._text += self._decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            self._text += error.object[: error.start].decode()  # earlier bytes are read first
            self._fault = "not UTF-8"
        self._ended = not chunk and not self._fault
        return not self._ended

    def _drop(self) -> None:
        self._offset += len(self._text[: self._at].encode())
        self._count_lines()
        self._text = self._text[self._at :]
        self._at = self._counted = 0

    def _count_lines(self) -> None:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
