"""The frame of a document is the text between its records. With the frame, an export can write the
document byte for byte.

Each import replaces the frame, and no event is made from a frame. A frame may repeat the content of
a record, so the first redaction of a record erases the frame. Without a frame, an export writes the
records as an array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, zip_longest
from typing import Any

import msgspec

from foldlog._base.json_types import JsonMap
from foldlog.eventstore.sources.tables import FRAME, TITLE, WHERE
from foldlog.formats.json_text import UnreadableJson, parse


class Frame(msgspec.Struct, frozen=True):
    """The texts ``between`` the records of a document. ``order`` lists the numbers of the records
    in the order of the document. ``records`` is the number of all records of the source, including
    records outside of the document.
    """

    between: Sequence[str] = ()
    order: Sequence[int] = ()
    records: int = 0


def frame_of(text: str, places: Mapping[int, tuple[int, int]], records: int) -> Frame:
    """Return the frame of a document. ``places`` maps the number of a record to its start and end
    in the text.
    """
    order = sorted(places, key=lambda number: places[number])
    between = []
    behind = 0
    for number in order:
        start, end = places[number]
        between.append(text[behind:start])
        behind = end
    return Frame([*between, text[behind:]], order, records)


def whole(frame: Frame, records: Sequence[bytes]) -> bytes:
    """Return the document that consists of ``frame`` and ``records``. If ``records`` do not belong
    to the frame, return an array of the records.
    """
    if frame.records != len(records):
        return b"[%b]\n" % b",\n".join(records)
    parts = zip_longest(
        map(str.encode, frame.between), (records[number] for number in frame.order), fillvalue=b""
    )
    return b"".join(chain.from_iterable(parts))


def frame_in(fields: JsonMap) -> Frame | None:
    """Return the frame that a store keeps of a source, or None."""
    return msgspec.convert(fields[FRAME], Frame) if FRAME in fields else None


def texts_beside(fields: JsonMap) -> list[Any]:
    """Return the texts of a source that are not in its records: the title, the folder, and the text
    between the records. The text between the records is returned twice: as pieces of text, and
    parsed as JSON.
    """
    texts = [fields.get(TITLE), fields.get(WHERE)]
    frame = frame_in(fields)
    if frame is not None:
        texts += frame.between
        with suppress(UnreadableJson):  # if not JSON: only the pieces of text
            texts.append(parse(whole(frame, [b"null"] * frame.records)))
    return [value for value in texts if value is not None]
