"""Read JSON documents with the text of each value, so that a store can keep the bytes of the
document. A document is read as a whole. An incomplete document is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from foldlog.formats.json_text import TOO_DEEP, TOO_MANY_DIGITS, UnreadableJson, fault
from foldlog.formats.record import Located, at

_CUT = "the file ends in the middle of a value"
"""The problem of a document that its program is still writing."""
_decode = json.JSONDecoder(strict=False).raw_decode
_space = re.compile(r"[ \t\n\r\0\ufeff]*")
"""White space, the byte order mark at the beginning of a file, and NUL bytes. A crash of the
machine may leave NUL bytes in a file.
"""


class DocumentRecords:
    """The records of one history, and the text of the document that contains them.

    A record with a ``text`` begins at its ``offset`` in the document. A record without a text was
    made from other fields of the document.
    """

    def __init__(self, text: str, records: Sequence[Located]) -> None:
        self.text = text
        self._records = records

    def __iter__(self) -> Iterator[Located]:
        return iter(self._records)


def document_in(data: bytes, source: str, line: int = 1) -> Located:
    """Return the value of a JSON text that begins in line ``line`` of a source. Raises
    ``UnreadableJson`` with the line of the problem.
    """
    text = text_of(data)
    value, end = _value_and_end(text, _skip(text, 0))
    rest = _skip(text, end)
    if rest < len(text):
        raise _unreadable(text, rest, "more text after the end")
    return Located(line, 0, value, None, source, data)


def text_of(data: bytes) -> str:
    """Return the text of a document. Raises ``UnreadableJson``."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UnreadableJson(f"not UTF-8 at byte {error.start:,}") from error


def elements(text: str, source: str, start: int = 0, line: int = 1) -> Iterator[Located]:
    """Yield the elements of the array that begins at ``start``, each element with its text. Raises
    ``UnreadableJson`` at the place where the array is damaged.
    """
    counted = 0
    place = _skip(text, _skip(text, start) + 1)
    while not text.startswith("]", place):
        value, end = _value_and_end(text, place)
        line += text.count("\n", counted, place)
        counted = place
        yield Located(line, place, value, None, source, text[place:end].encode())
        place = _skip(text, end)
        if text.startswith(",", place):
            place = _skip(text, place + 1)
        elif not text.startswith("]", place):
            raise _unreadable(text, place, "expected a comma")


def document_of(holder: Located, key: str, records: Iterable[Any]) -> DocumentRecords:
    """Return the records of a document. Elements of the array under ``key`` keep their place in the
    text. All other records were made from other fields of the document.
    """
    text = text_of(holder.text)
    array = holder.value.get(key)
    places = dict[int, Located]()
    if type(array) is list:
        pieces = elements(text, holder.source, _start_of(text, key), holder.line)
        places = {id(value): piece for value, piece in zip(array, pieces, strict=True)}
    located = (at(holder.place, record) for record in records)
    return DocumentRecords(text, [places.pop(id(record.value), record) for record in located])


def _start_of(text: str, key: str) -> int:
    """Return the offset of the value under a key of an object. If the object has the key twice, the
    last value counts.
    """
    place = _skip(text, _skip(text, 0) + 1)
    start = 0
    while not text.startswith("}", place):
        name, end = _value_and_end(text, place)
        begin = _skip(text, _skip(text, end) + 1)
        if name == key:
            start = begin
        _, end = _value_and_end(text, begin)
        place = _skip(text, end)
        if text.startswith(",", place):
            place = _skip(text, place + 1)
    return start


def _skip(text: str, start: int) -> int:
    """Return the offset behind white space."""
    space = _space.match(text, start)
    assert space is not None  # the pattern also matches an empty text
    return space.end()


def _value_and_end(text: str, start: int) -> tuple[Any, int]:
    """Return the value at an offset, and the offset behind it. Raises ``UnreadableJson``."""
    try:
        return _decode(text, start)
    except json.JSONDecodeError as error:
        raise _unreadable(text, error.pos, fault(error)) from error
    except RecursionError:
        raise UnreadableJson(TOO_DEEP) from None
    except ValueError as error:  # Python limits the digits of a number
        raise UnreadableJson(TOO_MANY_DIGITS) from error


def _unreadable(text: str, place: int, problem: str) -> UnreadableJson:
    """Return the error for the problem at an offset."""
    is_cut = problem.startswith("Unterminated string") or place >= len(text.rstrip())
    line = text.count("\n", 0, place) + 1
    return UnreadableJson(f"line {line}: not JSON: {_CUT if is_cut else problem}")
