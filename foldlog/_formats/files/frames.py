"""What a document holds between its records: with it, the document is put together again byte for
byte.

A frame is replaced at each import, makes no event and proves nothing. It may repeat what a record
says, so it goes with the first record that is redacted: what is left is exported as an array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, zip_longest
from typing import Any

import msgspec

from foldlog._formats.json_text import UnreadableJson, parse

KEY = "frame"
"""The name of the frame in what is stored about a source."""
TITLE = "title"
"""The name of the title that a program keeps beside the records of a source. It is replaced, and
goes, as a frame.
"""
WHERE = "where"
"""The name of what its records say of where a source was written: the folder, the branch, the
model.
"""
REDACTED = "redacted"
"""The mark of a source whose frame and title were redacted: no later import of its family brings
them back.
"""


class Frame(msgspec.Struct, frozen=True):
    """The texts ``between`` the records, and the numbers of the records in their ``order`` in the
    document. ``records`` is how many the source had; some may stand nowhere in it.
    """

    between: Sequence[str] = ()
    order: Sequence[int] = ()
    records: int = 0


def frame_of(text: str, places: Mapping[int, tuple[int, int]], records: int) -> Frame:
    """Return the frame of a document, in which records stand: ``places`` has of each number its
    start and end.
    """
    order = sorted(places, key=lambda number: places[number])
    edges = [0, *chain.from_iterable(places[number] for number in order), len(text)]
    return Frame(
        [text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)],
        order,
        records,
    )


def whole(frame: Frame, records: Sequence[bytes]) -> bytes:
    """Return a document with these records; an array, if they are not the records of the frame."""
    if frame.records != len(records):
        return b"[%b]\n" % b",\n".join(records)
    parts = zip_longest(
        map(str.encode, frame.between), (records[number] for number in frame.order), fillvalue=b""
    )
    return b"".join(chain.from_iterable(parts))


def frame_in(told: Mapping[str, Any]) -> Frame | None:
    """Return the frame in the stored fields of a source; None if it is not a document."""
    return msgspec.convert(told[KEY], Frame) if KEY in told else None


def texts_beside(told: Mapping[str, Any]) -> list[Any]:
    """Return the title of a source, where it was written, and what its document holds between the
    records: the values, and their text.
    """
    found = [told.get(TITLE), told.get(WHERE)]
    frame = frame_in(told)
    if frame is not None:
        found += frame.between
        with suppress(UnreadableJson):  # its text is searched
            found.append(parse(whole(frame, [b"null"] * frame.records)))
    return [value for value in found if value is not None]


def without_words(about: bytes) -> bytes:
    """Return what is stored about a source without its title, where it was written, and what its
    document holds between the records.
    """
    if not about:  # a runtime recorded its records: there is nothing beside them
        return about
    told = msgspec.json.decode(about)
    told.pop(TITLE, None)
    told.pop(WHERE, None)
    if KEY in told:
        told[KEY] = Frame()
    return msgspec.json.encode({**told, REDACTED: True})
