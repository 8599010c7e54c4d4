"""Ask what counting short conversations needs in two round trips to a server, instead of seventeen
for each conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from foldlog._reports.figures.overview import FIRST
from foldlog.eventstore import ConversationRow
from foldlog.eventstore.log.ledger import first_question
from foldlog.eventstore.log.reading import question_of_page, question_of_rows
from foldlog.eventstore.recorders.base import Reader

_SHORT: Final = 30
"""The number of events up to which a conversation is short."""


def is_short(row: ConversationRow) -> bool:
    """Return whether a conversation is plain, and so short that it may be read with others."""
    is_plain = row.parent is None and not row.unmade and not row.archived
    return is_plain and row.version <= _SHORT


def read_ahead(reader: Reader, *, rows: Iterable[ConversationRow], projection: str) -> None:
    """Remember the answers to the questions about ``rows``. A question that is missing here only
    costs a round trip. ``projection`` has the stored states of figures.
    """
    names = [row.id for row in rows]
    questions: list[tuple[str, Sequence[Any]]] = [("conversation", (name,)) for name in names]
    questions += [("records_of", (projection, name, name)) for name in names]
    reader.ask_ahead(questions)
    questions = []
    for name in names:
        conversation = reader.conversation(name)
        if conversation is None or conversation.parent is not None:
            continue
        key = conversation.key
        version = conversation.version
        first = min(FIRST, version)
        questions += [
            ("source", (key,)),
            first_question(key),
            ("document_changes", (key, 0, version, 1)),
        ]
        for start, stop in ((0, first), (FIRST, version)):
            if start < stop:  # titles and figures read the same events in two ways
                questions.append(question_of_rows(key, start, stop))
                questions.append(question_of_page(key, start, stop))
        if version:
            questions.append(reader.flagged_question(key, [(0, version - 1, key)]))
    reader.ask_ahead(questions)
