"""The title of an imported conversation that its user chose."""

from __future__ import annotations

from functools import partial

import msgspec

from foldlog.eventstore import Store
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.sources.reading import about
from foldlog.eventstore.sources.tables import TITLED, Sources, SourcesToWrite, query_sources


def note_chosen_title(writing: WriteTransaction) -> None:
    """Note, in the transaction that appends the title, that a user chose the title of the
    conversation, so that no later import of its source sets another title.
    """
    _forget_set_title(SourcesToWrite.beside(writing), writing.key)


def note_equal_title(store: Store, key: int) -> None:
    """Note the same of a title that is not appended, because an import has set it already. ``key``
    is the key of the conversation.
    """
    source = query_sources(store.database, Sources.find_by_key, key)
    if source is not None and TITLED in about(source):
        store.database.recorder.transact(partial(_note_alone, store, key))


def _note_alone(store: Store, key: int, transaction: Transaction) -> None:
    _forget_set_title(SourcesToWrite(store.database, transaction), key)


def _forget_set_title(sources: SourcesToWrite, key: int) -> None:
    source = sources.settle(key)
    if source is not None:
        facts = about(source)
        facts.pop(TITLED, None)
        sources.put(source._replace(about=msgspec.json.encode(facts)))
