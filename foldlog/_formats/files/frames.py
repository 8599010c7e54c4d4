"""The frame of a document: the text between its records. With the frame, an export can write the
document byte for byte.

A frame is replaced at each import, and makes no event. A frame may repeat the content of a record.
So the frame is erased with the first record that is redacted. Without a frame, the records are
exported as an array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, zip_longest
from typing import Any

import msgspec

from foldlog._formats.json_text import UnreadableJson, parse

KEY = "frame"
"""The key of the frame in the stored fields of a source."""
TITLE = "title"
"""The key of a title that a program stores outside of the records. Like a frame, this title is
replaced at each import and erased with the first redaction.
"""
WHERE = "where"
"""The key of the folder, the branch and the model in which a source was written, according to its
records.
"""
REDACTED = "redacted"
"""The key that marks a source whose frame and title were redacted. No later import of the same
conversation may store a frame and a title again.
"""


class Frame(msgspec.Struct, frozen=True):
    """The texts ``between`` the records of a document. ``order`` has the numbers of the records in
    the order of the document. ``records`` is the number of all records of the source; some of these
    records may not be in the document.
    """

    between: Sequence[str] = ()
    order: Sequence[int] = ()
    records: int = 0


def frame_of(text: str, places: Mapping[int, tuple[int, int]], records: int) -> Frame:
    """Return the frame of a document. ``places`` has the start and the end of each record in the
    text, by the number of the record.
    """
    order = sorted(places, key=lambda number: places[number])
    edges = [0, *chain.from_iterable(places[number] for number in order), len(text)]
    return Frame(
        [text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)],
        order,
        records,
    )


def whole(frame: Frame, records: Sequence[bytes]) -> bytes:
    """Return the document that consists of ``frame`` and ``records``. If ``records`` are not the
    records of the frame, return an array of the records.
    """
    if frame.records != len(records):
        return b"[%b]\n" % b",\n".join(records)
    parts = zip_longest(
        map(str.encode, frame.between), (records[number] for number in frame.order), fillvalue=b""
    )
    return b"".join(chain.from_iterable(parts))


def frame_in(fields: Mapping[str, Any]) -> Frame | None:
    """Return the frame in the stored fields of a source; None if the source has no frame."""
    return msgspec.convert(fields[KEY], Frame) if KEY in fields else None


def texts_beside(fields: Mapping[str, Any]) -> list[Any]:
    """Return the texts about a source that are not in its records: the title of the source, where
    it was written, and the text between the records of its document, also as values.
    """
    texts = [fields.get(TITLE), fields.get(WHERE)]
    frame = frame_in(fields)
    if frame is not None:
        texts += frame.between
        with suppress(UnreadableJson):  # if it is not JSON, only its text is searched
            texts.append(parse(whole(frame, [b"null"] * frame.records)))
    return [value for value in texts if value is not None]


def without_words(about: bytes) -> bytes:
    """Return the stored fields of a source without the title and ``where``, and with an empty
    frame.
    """
    if not about:  # a runtime recorded the records: there are no other fields
        return about
    fields = msgspec.json.decode(about)
    fields.pop(TITLE, None)
    fields.pop(WHERE, None)
    if KEY in fields:
        fields[KEY] = Frame()
    return msgspec.json.encode({**fields, REDACTED: True})
