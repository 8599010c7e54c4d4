"""Redact events, and everything in the store that repeats their content.

redact_events     redact events of one conversation, for ``History.redact``
redact_matching   search a store for a text or for old events, and redact the events that are found
Redacting         the steps of ``redact_matching``, between which the command asks the user

When an event is redacted, these events are redacted too:

records   the other events of the same source record
copies    events of companions that contain the same texts
titles    lines with a title that contains a text of the event, in sessions in which another program
          went on with the conversation
quotes    only with ``with_summaries``: condensations whose summaries may quote the event
"""

from __future__ import annotations

import getpass
import glob
import os
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache, partial
from itertools import chain
from typing import NamedTuple, TypeVar

from foldlog._imports.redacting import (
    events_of_records,
    imported_paths,
    redact_beside,
    redact_records,
    source_files,
)
from foldlog._privacy.matching import (
    Holds,
    copies_of,
    events_with,
    keep_documents,
    source_with,
    streams_with,
    texts_of,
    titles_in,
)
from foldlog._reports.records.stored import was_handed_over
from foldlog.eventstore import (
    NOT_RECORDED,
    CannotRedact,
    CondensationAction,
    ConversationErased,
    ConversationNotFound,
    ConversationRow,
    CorruptEvent,
    DocumentChanges,
    Event,
    EventStoreError,
    InvalidArgument,
    KeyUnavailable,
    Observation,
    Store,
    summary_of,
)
from foldlog.eventstore.arguments import check_reason, check_text
from foldlog.eventstore.documents.values import newest_documents
from foldlog.eventstore.files.written_files import (
    describe_file,
    erased_sources,
    is_a_copy,
    is_missing,
    may_hold,
    path_in,
    read_models,
    source_name,
)
from foldlog.eventstore.log.finding import Moment, query_all
from foldlog.eventstore.log.redacted import can_be_redacted, has_content
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.maintenance import redact
from foldlog.eventstore.maintenance.redact import RedactionReceipt
from foldlog.eventstore.recorders.types import Conversation, Stream
from foldlog.eventstore.sources.reading import continued
from foldlog.eventstore.sources.tables import Sources
from foldlog.eventstore.store import bind
from foldlog.eventstore.usage import PLACED_FROM
from foldlog.formats.registry import UnknownFormat
from foldlog.projections.conversations.companions import (
    companion_of,
    companions_at,
    forked_from,
    origins_of,
)
from foldlog.projections.conversations.unreadable import sound

T = TypeVar("T")

SEARCHED = "events, summaries, documents, attributes, streams and the records of imports"
NOT_SEARCHED = (
    "other files and stores; text that is encoded (base64, URLs, HTML, bytes other than UTF-8),"
    " compressed or in a picture; text that is divided between fields or events, has markup in it"
    " or is spelled in another way; idempotency keys and the names of workers and followers"
)

_TOGETHER = 1_000
"""The maximum number of events that one transaction redacts."""
_IN_TOMBSTONE = (
    "the tombstone of the erased conversation {!r} contains the text, and stays in this store; copy"
    " the other conversations to a new store with foldlog store copy FROM TO ID …"
)
_IN_ID = (
    "the id of conversation {!r} contains the text; erase the conversation, and import its source "
    "under another name (--conversation). Its tombstone, with the id, stays in this store, so copy "
    "the other conversations to a new store with foldlog store copy FROM TO ID …"
)
_IN_EVENT = (
    "conversation {!r}, event {} still contains the text, in a part that a redaction does not "
    "erase, such as the name of a tool; erase the conversation with foldlog store erase ID"
)
_IN_SOURCE = (
    "the source of conversation {!r} contains the text outside of its records; run the same command"
    " again"
)
_WITHOUT_FORMAT = (
    "conversation {!r} still contains the text, because its records have a format of a package that"
    " is not installed; install the package, and run the same command again ({})"
)
_IN_STREAM = (
    "stream {1!r} of conversation {0!r} contains the text, because a model is still writing it; run"
    " the same command again after its end"
)
_IN_PATH = (
    "conversation {!r} was imported from {}, and this path contains the text; rename the file, and "
    "import or erase the conversation again"
)


class Problem(NamedTuple):
    """A place where the text stays, or a conversation that could not be searched, for the user."""

    conversation: str | None
    problem: str


class Chosen(NamedTuple):
    """The events to redact.

    ``events``      all events by conversation, including events that are redacted already
    ``unredacted``  the events that still have content, by conversation
    ``quotes``      the conversations and ids of the events that may quote other events
    ``shown``       the events to redact, by conversation; a fork is listed with the events
                    that it shares with its parent
    ``beside``      the conversations whose source contains the text outside of its records
    ``streams``     the streams that contain the text, such as a reply that a model is writing, by
                    conversation; a stream is deleted as a whole
    ``sessions``    the conversations in ``beside`` whose source begins with the records that were
                    handed over to another program; the text may be in these records
    ``unread``      names of companions and events that could not be read
    """

    events: dict[str, list[Event]]
    unredacted: dict[str, list[Event]]
    quotes: set[tuple[str, int]]
    shown: dict[str, list[Event]]
    beside: list[str]
    streams: dict[str, list[Stream]]
    sessions: list[str]
    unread: list[str]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to redact."""
        return not (self.unredacted or self.beside or self.streams)


class RedactionReport(NamedTuple):
    """The result of ``redact_matching``. With ``dry_run``, nothing is redacted.

    ``events``        the ids of the redacted events, by conversation
    ``beside``        the conversations whose source contains the text outside of its records;
                      everything outside of the records was removed
    ``streams``       the names of the streams that contain the text and were deleted, by
                      conversation
    ``receipts``      the receipts
    ``stay``          places where the store still contains the text, and conversations that could
                      not be searched
    ``unconfirmed``   the read models and files that may contain the text, as far as the store knows
                      them
    ``searched``, ``not_searched``  the places that were searched, and the places that were not
                                    searched
    """

    events: Mapping[str, tuple[int, ...]]
    beside: tuple[str, ...]
    streams: Mapping[str, tuple[str, ...]]
    receipts: tuple[RedactionReceipt, ...]
    stay: tuple[Problem, ...]
    unconfirmed: tuple[str, ...]
    searched: str = SEARCHED
    not_searched: str = NOT_SEARCHED


def redact_matching(
    redacting: Redacting, *, reason: str, by: str | None, with_summaries: bool, dry_run: bool
) -> RedactionReport:
    """Redact the events that ``redacting`` finds. With ``dry_run``, only find them."""
    chosen = redacting.choose(with_summaries=with_summaries)
    receipts = list[RedactionReceipt]()
    stay = list[Problem]()
    if not dry_run:
        receipts, stay = redacting.redact(
            chosen, reason=reason, by=by, with_summaries=with_summaries
        )
        if redacting.holds is not None:
            stay += redacting.find_remaining()
    stay += [Problem(name, problem) for name, problem in redacting.problems.items()]
    ids = {
        name: tuple(sorted(event.id for event in events))
        for name, events in chosen.unredacted.items()
    }
    unconfirmed = unconfirmed_by(chosen, receipts, () if dry_run else redacting.files())
    return RedactionReport(
        ids,
        tuple(chosen.beside),
        stream_names(chosen),
        tuple(receipts),
        tuple(stay),
        unconfirmed,
    )


def stream_names(chosen: Chosen) -> dict[str, tuple[str, ...]]:
    """Return the names of the streams that contain the text, by conversation."""
    return {name: tuple(stream.name for stream in found) for name, found in chosen.streams.items()}


class Redacting:
    """The steps of a redaction. Call ``choose`` first, then ``redact``, and then ``find_remaining``
    and ``files``.

    ``rows`` are the conversations to search. ``everywhere`` is true if ``rows`` are all
    conversations of the store. ``holds`` returns whether a text is a match. With ``before``, only
    events that were recorded before this time are redacted, streams that began before it, and texts
    beside the records of imports that began before it. ``problems`` maps each conversation that
    could not be searched to the reason.

    ``conversation`` is the conversation that the user named. If this conversation is erased during
    the redaction, the methods raise ``ConversationErased``. If any other conversation is erased, it
    is left out.
    """

    def __init__(
        self,
        store: Store,
        rows: Sequence[ConversationRow],
        holds: Holds | None,
        before: datetime | None = None,
        *,
        everywhere: bool = True,
        conversation: str | None = None,
    ) -> None:
        self.store = store
        self.rows = rows
        self.holds = holds
        self.everywhere = everywhere
        self.store_of = cache(lambda name: bind(store, name)[1])
        """Returns a store that is bound to the conversation which has the id now. If that
        conversation is erased and the id is used again, the new conversation is not redacted.
        """
        self.problems: dict[str, str] = {}
        self._refused: set[tuple[str, int]] = set()
        self._before = before
        self._conversation = conversation

    def choose(
        self, named: Mapping[str, Sequence[int]] | None = None, *, with_summaries: bool = False
    ) -> Chosen:
        """Return the events to redact: the events with the ids in ``named``, or else the events
        that a search finds. The result includes the events that must be redacted together with the
        chosen events.

        Raises ``KeyUnavailable`` if a conversation that has or shares an event is encrypted and its
        key is missing, because a summary of this conversation may quote the event.
        """
        unread: list[str] = []
        beside: list[str] = []
        streams: dict[str, list[Stream]] = {}
        found: Mapping[str, Sequence[Event]] = {}
        if named is None:
            found = self._find_events()
            beside = self._find_texts_beside()
            streams = self._find_streams()
        events_by_name = with_related(self.store, found, unread, unread_ids=named or {})
        ids_without_quotes = _keys(events_by_name)
        if with_summaries:
            events_by_name = with_related(self.store, events_by_name, unread, with_summaries=True)
        names = [*events_by_name]
        if self._conversation is not None:
            names.append(self._conversation)
        for name in names:
            with self._without_erased():
                self.store_of(name).version(name)  # binds the store
        query_all(self.store.database, partial(_check_keys, self.store, events_by_name))
        unredacted = {
            name: [event for event in events if has_content(event)]
            for name, events in events_by_name.items()
        }
        return Chosen(
            {name: [*events] for name, events in events_by_name.items()},
            {name: events for name, events in unredacted.items() if events},
            _keys(unredacted) - ids_without_quotes,
            shown_by(self.store, events_by_name),
            beside,
            streams,
            [name for name in beside if was_handed_over(self.store, name)],
            unread,
        )

    def redact(
        self,
        chosen: Chosen,
        *,
        reason: str,
        by: str | None = None,
        with_summaries: bool = False,
        asked: Mapping[str, Sequence[int]] = {},
        on_events: Callable[[int], object] = lambda count: None,
    ) -> tuple[list[RedactionReceipt], list[Problem]]:
        """Redact the events in ``chosen``. Return the receipts, and the events that could not be
        redacted. If ``asked`` has an entry for a conversation, only the events with these ids are
        redacted in it. If ``chosen`` has only one event and it cannot be redacted, raises
        ``CannotRedact``.

        If a searched fork was detached after the search, it now has copies of the events that it
        shared. The fork is then searched again, and its events are redacted too and added to
        ``chosen.unredacted``.
        """
        batches = [*_batches(chosen, asked)]
        is_single = sum(len(ids) for _, ids in batches) == 1
        redact_ids = partial(
            redact_events,
            reason=reason,
            by=by,
            with_summaries=with_summaries,
            for_content=self._before is None or self.holds is not None,
        )
        receipts, stay = self._redact(chosen, batches, redact_ids, on_events, is_single=is_single)
        searched = set[str]()
        while rows := self._detached_forks(searched):
            searched |= {row.id for row in rows}
            forks = Redacting(
                self.store,
                rows,
                self.holds,
                self._before,
                everywhere=False,
                conversation=self._conversation,
            )
            forks.store_of = self.store_of
            copied = forks.choose(with_summaries=with_summaries)
            more_receipts, more_stay = forks._redact(copied, [*_batches(copied, {})], redact_ids)
            receipts += more_receipts
            stay += more_stay
            for name, events in copied.unredacted.items():
                chosen.unredacted.setdefault(name, []).extend(events)
            self.problems |= forks.problems
            self._refused |= forks._refused
        return receipts, stay

    def _redact(
        self,
        chosen: Chosen,
        batches: list[tuple[str, list[int]]],
        redact_ids: Callable[[Store, str, list[int]], RedactionReceipt],
        on_events: Callable[[int], object] = lambda count: None,
        *,
        is_single: bool = False,
    ) -> tuple[list[RedactionReceipt], list[Problem]]:
        """Redact the batches of events with ``redact_ids``, and remove the texts beside them and
        the streams. Pass the number of tried events to ``on_events``. If ``is_single``, the one
        event that cannot be redacted raises its error.
        """
        receipts = list[RedactionReceipt]()
        stay = list[Problem]()
        if self.holds is not None:
            for name, shown_events in chosen.shown.items():
                shown_ids = {event.id for event in shown_events}
                with self._without_erased():
                    keep_documents(self.store_of(name), name, shown_ids, self.holds)
        while batches:
            name, ids = batches.pop(0)
            try:
                with self._without_erased():
                    receipts.append(redact_ids(self.store_of(name), name, ids))
            except UnknownFormat as error:
                stay.append(Problem(name, _WITHOUT_FORMAT.format(name, error)))
                self._refused |= {(name, event_id) for event_id in ids}
            except (CannotRedact, InvalidArgument) as error:
                # One event that cannot be redacted stops its whole batch, so the events of the
                # batch are tried one by one.
                if len(ids) > 1:
                    batches[:0] = [(name, [event_id]) for event_id in ids]
                    continue
                if is_single:
                    raise
                # A fork may share the event with a conversation that was redacted together with
                # a later event of the fork.
                if not self._is_redacted(name, ids[0]):
                    stay.append(Problem(name, str(error)))
                    self._refused.add((name, ids[0]))
            on_events(len(ids))
        for name in chosen.beside:
            try:
                with self._without_erased():
                    redact_beside(self.store_of(name), name)
            except UnknownFormat as error:
                stay.append(Problem(name, _WITHOUT_FORMAT.format(name, error)))
        for name, found in chosen.streams.items():
            with self._without_erased():
                _delete_streams(self.store_of(name), name, found)
        return receipts, stay

    def _is_redacted(self, name: str, event_id: int) -> bool:
        """Return whether an event exists and is redacted now."""
        recorded_id = _recorded_id(event_id)
        with self._without_erased():
            events = self.store_of(name).events(name, recorded_id, recorded_id + 1)
            return any(not has_content(event) for event in events)
        return False

    def _detached_forks(self, except_ids: Container[str]) -> list[ConversationRow]:
        """Return the searched forks that have no parent any more."""
        rows = list[ConversationRow]()
        for row in self.rows:
            if row.parent is not None and row.id not in except_ids:
                with self._without_erased():
                    present = self.store_of(row.id).conversation(row.id, as_stored=True)
                    if present.parent is None and present.erased_at is None:
                        rows.append(present)
        return rows

    @contextmanager
    def _without_erased(self) -> Iterator[None]:
        """Leave the block without an error if its conversation was erased, unless the user named
        this conversation.
        """
        try:
            yield
        except ConversationErased as error:
            self._check_not_named(error)

    def _check_not_named(self, error: ConversationErased) -> None:
        if error.conversation == self._conversation:
            raise error

    def find_remaining(self) -> list[Problem]:
        """Return a problem for each place where the store still contains the text, such as an id, a
        tombstone or the path of an imported file. Events that ``redact`` reported are left out.
        """
        assert self.holds is not None
        rows = [*self.store.iter_conversations()] if self.everywhere else self.rows
        stay = [
            Problem(name, _IN_EVENT.format(name, event.id))
            for name, events in self._find_events(redacted_too=True).items()
            for event in events
            if (name, event.id) not in self._refused
        ]
        for row in rows:
            if self.holds(row.id) or self.holds(row.erased_reason or ""):
                text = _IN_ID if row.erased_at is None else _IN_TOMBSTONE
                stay.append(Problem(row.id, text.format(row.id)))
        stay += [Problem(name, _IN_SOURCE.format(name)) for name in self._find_texts_beside()]
        stay += [
            Problem(name, _IN_STREAM.format(name, stream.name))
            for name, found in self._find_streams().items()
            for stream in found
        ]
        for name, paths in self.sources().items():
            stay += [
                Problem(name, _IN_PATH.format(name, path)) for path in paths if self.holds(path)
            ]
        return stay

    def sources(self, unread: set[str] | None = None) -> dict[str, list[str]]:
        """Return the paths from which conversations were imported, by conversation. A conversation
        whose paths cannot be read is added to ``unread``.
        """
        names = [
            row.id for row in (self.store.iter_conversations() if self.everywhere else self.rows)
        ]
        readable = [name for name in names if name not in self.problems]
        imported = source_files(self.store, readable, unread)
        for name in self.problems:
            # A search reports the missing key. All other conversations are redacted and reported.
            with suppress(KeyUnavailable):
                imported |= source_files(self.store, [name], unread)
        noted = erased_sources(self.store)
        paths_by_name = {
            name: list(dict.fromkeys((*imported.get(name, ()), *noted.get(name, ()))))
            for name in names
        }
        return {name: paths for name, paths in paths_by_name.items() if paths}

    def files(self) -> tuple[str, ...]:
        """Return the files and read models that may still contain the text."""
        if self.holds is None:
            return ()  # no text was searched for
        names = None if self.everywhere else {row.id for row in self.rows}
        copies = [
            name for name in read_models(self.store) if is_a_copy(name) and may_hold(name, names)
        ]
        unread = set[str]()
        paths = [path for paths in self.sources(unread).values() for path in paths]
        return (
            *holders(self.store, copies, names, paths),
            *map(unread_source_name, sorted(unread)),
        )

    def _find_events(self, *, redacted_too: bool = False) -> dict[str, list[Event]]:
        """Return the events with a match, by conversation. An event that a fork shares is listed
        only for the conversation to which it belongs, unless that conversation is not searched.
        """
        events_by_name: dict[str, list[Event]] = {}
        searched_ids = {row.id for row in self.rows}
        # Forks come first, because their documents may be differences to values that they share.
        remaining = sorted(self.rows, key=lambda row: row.created_at)
        while remaining:
            row = remaining.pop()
            start = (row.parent_version or 0) if row.parent in searched_ids else 0
            try:
                events = events_with(
                    self.store_of(row.id),
                    row.id,
                    self.holds,
                    self._before,
                    start,
                    redacted=redacted_too,
                )
            except ConversationErased as error:
                self._check_not_named(error)
                # Its forks were detached, so they have their own copies of the shared events.
                searched_ids.discard(row.id)
                remaining += [fork for fork in self.rows if fork.parent == row.id]
                continue
            except EventStoreError as error:
                self.problems[row.id] = str(error)
                continue
            if events:
                events_by_name[row.id] = events
        return events_by_name

    def _find_texts_beside(self) -> list[str]:
        """Return the conversations whose source contains the text outside of its records."""
        names = (name for _, name in self._search_rows(source_with) if name is not None)
        return [*dict.fromkeys(names)]

    def _find_streams(self) -> dict[str, list[Stream]]:
        """Return the streams that contain the text, by conversation."""
        streams = {
            name: [stream for stream in found if self._is_old(from_microseconds(stream.began_at))]
            for name, found in self._search_rows(streams_with)
        }
        return {name: found for name, found in streams.items() if found}

    def _is_old(self, time: datetime) -> bool:
        """Return whether a time is before the time ``before``, if there is one."""
        return self._before is None or time < self._before

    def _may_be_old(self, row: ConversationRow) -> bool:
        """Return whether a conversation began before the time ``before``, or may be a fork of an
        old conversation, of which it shares or has copied the source.
        """
        if self._is_old(row.created_at):
            return True
        for name in forked_from(self.store, row.id):
            try:
                origin = self.store.conversation(name, as_stored=True)
            except ConversationNotFound:
                return True
            # The id of an erased origin may be in use again.
            if origin.generation or self._is_old(origin.created_at):
                return True
        return False

    def _search_rows(self, search: Callable[[Store, str, Holds], T]) -> Iterator[tuple[str, T]]:
        """Yield the id of each conversation, and what the search for the text finds in it. If all
        of a conversation is too young, it is left out.
        """
        if self.holds is None:
            return
        for row in self.rows:
            if not self._may_be_old(row):
                continue
            try:
                found = search(self.store_of(row.id), row.id, self.holds)
            except ConversationErased as error:
                self._check_not_named(error)
                continue
            except EventStoreError as error:
                self.problems[row.id] = str(error)
                continue
            yield row.id, found


def _delete_streams(store: Store, conversation: str, found: Iterable[Stream]) -> None:
    """Delete streams, also if a model is still writing one: the next chunk of its writer raises
    ``StreamNotFound``.
    """
    numbers = {stream.number for stream in found}

    def delete(writing: WriteTransaction) -> None:
        for stream in writing.streams():
            if stream.number in numbers:
                writing.drop_stream(stream.number)
        # This call marks the rows as changed, so a vacuum removes the bytes of the chunks.
        writing.transaction.replace_rows(writing.key, ())

    store.project(conversation, delete)


def _batches(chosen: Chosen, asked: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, list[int]]]:
    """Yield the ids of events in the order in which they must be redacted. Companions come first: a
    copy in a companion is found by the content of the original event, so the original is redacted
    last. Within a conversation, later events come first, because a document may be stored as a
    difference from an earlier event.
    """
    ids_of: dict[str, Sequence[int]] = {
        name: [event.id for event in reversed(events)] for name, events in chosen.events.items()
    }
    ids_of.update(asked)
    for name in sorted(ids_of, key=lambda name: not companion_of(name)):
        ids = [*dict.fromkeys(ids_of[name])]
        for at in range(0, len(ids), _TOGETHER):
            yield name, ids[at : at + _TOGETHER]


def unconfirmed_by(
    chosen: Chosen, receipts: Iterable[RedactionReceipt], files: Iterable[str]
) -> tuple[str, ...]:
    """Return the names of everything that may still contain the text: what ``chosen`` could not
    read, what the receipts name, and ``files``.
    """
    of_receipts = (name for receipt in receipts for name in receipt.unconfirmed)
    return tuple(dict.fromkeys([*chosen.unread, *of_receipts, *files]))


# -- the events of one conversation
# ----------------------------------------------------------------------------------------------


def redact_events(
    store: Store,
    conversation: str,
    event_ids: Sequence[int],
    *,
    reason: str,
    by: str | None,
    with_summaries: bool,
    for_content: bool = True,
) -> RedactionReceipt:
    """Redact events of a conversation, and all events that are redacted together with them. Set
    ``for_content`` to False if events are redacted because of their age. Then an equal record
    without id and time, such as a common short message, may still be imported into other histories.
    """
    by = check_text("by", _user() if by is None else by)
    reason = check_reason(reason, "receipt")
    unread: list[str] = []
    common_events = set[tuple[str, int]]()
    redact_with = partial(
        redact.redact,
        store,
        conversation,
        event_ids[0],
        reason=reason,
        by=by,
        complete=False,
        also=partial(redact_records, store, common_events),
    )
    related: Mapping[str, Sequence[Event]] = {}
    receipt: RedactionReceipt | None = None
    redacted_keys: set[tuple[str, int]] = set()
    names: dict[str, None] = {}
    files: dict[str, None] = {}
    # Other programs may append an event that must be redacted too, so repeat until no new event is
    # found.
    while True:
        related = with_related(
            store,
            related,
            unread,
            with_summaries=with_summaries,
            unread_ids={} if receipt else {conversation: event_ids},
        )
        keys = _keys(related)
        if receipt is not None and keys <= redacted_keys:
            break
        redacted_keys |= keys
        # A conversation may be erased meanwhile, and its files stay.
        names |= dict.fromkeys(related)
        for name, paths in query_all(store.database, partial(_imported_files, store, related)):
            names[name] = None
            files |= dict.fromkeys(paths)
        if not for_content:
            common_events |= _keys(
                {
                    name: [event for event in events if not _is_recognizable(event)]
                    for name, events in related.items()
                }
            )
        newest = redact_with(others=_ids_to_redact(conversation, event_ids, related))
        if receipt and newest.position is None:
            newest = newest._replace(position=receipt.position)
        receipt = newest
    unconfirmed = holders(store, (*dict.fromkeys(unread), *receipt.unconfirmed), names, files)
    lost: tuple[str, ...] = ()
    # The conversation may have been erased after the redaction.
    if any(isinstance(event, DocumentChanges) for event in related.get(conversation, ())):
        lost = documents_lost(store, conversation, receipt.event_ids)
    return receipt._replace(unconfirmed=unconfirmed, documents_lost=lost)


def _ids_to_redact(
    conversation: str, event_ids: Sequence[int], related: Mapping[str, Sequence[Event]]
) -> dict[str, list[int]]:
    """Return the ids of the related events by conversation. The ids ``event_ids``, which the caller
    has named, come first in their conversation.
    """
    ids_by_name = {name: [event.id for event in events] for name, events in related.items()}
    named_ids = {_recorded_id(event_id) for event_id in event_ids}
    further_ids = [
        event_id for event_id in ids_by_name.get(conversation, ()) if event_id not in named_ids
    ]
    ids_by_name[conversation] = [*event_ids, *further_ids]
    return ids_by_name


def _keys(events_by_name: Mapping[str, Iterable[Event]]) -> set[tuple[str, int]]:
    """Return the events as pairs of a conversation and an id."""
    return {(name, event.id) for name, events in events_by_name.items() for event in events}


def _user() -> str:
    """Return the name of the operating system's user, or its number if it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _is_recognizable(event: Event) -> bool:
    """Return whether the event's record has an id or a time. Such a record is never in another
    history by chance.
    """
    origin = event.origin
    return origin is not None and (
        origin.id is not None or origin.time is not None or event.timestamp is not None
    )


def _recorded_id(event_id: int) -> int:
    """Return the id of the recorded event. The id of a summary stands for its condensation."""
    return summary_of(event_id) if event_id < NOT_RECORDED else event_id


def documents_lost(store: Store, conversation: str, event_ids: Sequence[int]) -> tuple[str, ...]:
    """Return the documents whose newest values were in the redacted events."""
    newest = store.query(conversation, partial(newest_documents, version=None))
    return tuple(name for name, event_id in newest.items() if event_id in event_ids)


# -- the events that go with redacted events
# ----------------------------------------------------------------------------------------------


def with_related(
    store: Store,
    events_by_name: Mapping[str, Sequence[Event]],
    unread: list[str],
    *,
    with_summaries: bool = False,
    unread_ids: Mapping[str, Collection[int]] = {},
) -> Mapping[str, Sequence[Event]]:
    """Return the events, the events with the ids in ``unread_ids``, and all events that are
    redacted together with them: the other events of their source records, and the copies in
    companions. With ``with_summaries``, also return the condensations that may quote these events.
    A conversation that is erased at the same time is left out. Cost: one read transaction, and the
    reading of the companions.
    """
    erased = set[str]()
    events_left = dict(events_by_name)
    while True:
        try:
            related = _with_copies(store, events_left, unread, unread_ids)
            if not with_summaries:
                return related
            quotes = query_all(store.database, partial(_quotes_of, related))
            quoted = {
                name: (*related.get(name, ()), *quotes.get(name, ()))
                for name in {**related, **quotes}
            }
            return _with_copies(store, quoted, unread)
        except ConversationErased as error:
            if error.conversation in erased:
                raise
            erased.add(error.conversation)
            events_left.pop(error.conversation, None)


def _with_copies(
    store: Store,
    events_by_name: Mapping[str, Sequence[Event]],
    unread: list[str],
    unread_ids: Mapping[str, Collection[int]] = {},
) -> Mapping[str, Sequence[Event]]:
    """Return the events with the other events of their records, their copies in companions, and the
    titles that repeat them. The names of what cannot be read are added to ``unread``.
    """
    found = query_all(
        store.database, partial(_read_related, store, events_by_name, unread_ids, unread)
    )
    events = found.events
    for state, own_ids, companions in found.beside:
        redacted = (events[state.id][event_id] for event_id in own_ids)
        staying = (
            event for event in _readable(store, state, state.begins, []) if event.id not in own_ids
        )
        # A text that a staying event has too does not identify a copy.
        texts = texts_of(redacted, staying)
        for companion in companions:
            copies = copies_of(texts, _readable(store, companion, 0, unread))
            for owner, copy in _with_owners(store, companion, copies):
                events.setdefault(owner, {})[copy.id] = copy
    for session, handed_over in found.sessions:
        titles = titles_in(handed_over, _readable(store, session, session.begins, unread))
        if titles:
            events.setdefault(session.id, {}).update((title.id, title) for title in titles)
    return {name: [*known.values()] for name, known in events.items()}


def _with_owners(
    store: Store, conversation: Conversation, events: Sequence[Event]
) -> list[tuple[str, Event]]:
    """Return events of a conversation, each with the conversation to which it belongs."""
    if all(event.id >= conversation.begins for event in events):
        return [(conversation.id, event) for event in events]
    return store.query(
        conversation.id,
        lambda reading: [(reading.owner_of(event.id), event) for event in events],
    )


class _Found(NamedTuple):
    """The events with the events of their records, by conversation and id, and the places where
    copies may be.

    ``beside``    a conversation, the ids of its events, and the companions that may repeat them
    ``sessions``  a session in which another program went on with a conversation, and the events
                  that it shares; the program may write the title of the conversation again
    """

    events: dict[str, dict[int, Event]]
    beside: list[tuple[Conversation, set[int], list[Conversation]]]
    sessions: list[tuple[Conversation, list[Event]]]


def _read_related(
    store: Store,
    events_by_name: Mapping[str, Sequence[Event]],
    unread_ids: Mapping[str, Collection[int]],
    unread: list[str],
    moment: Moment,
) -> _Found:
    """Read the events of the same records and the placed results, and look up the places where
    copies may be.
    """
    events = {name: {event.id: event for event in named} for name, named in events_by_name.items()}
    ids_by_name = {
        name: [*events.get(name, ()), *map(_recorded_id, unread_ids.get(name, ()))]
        for name in {**events, **unread_ids}
    }
    sources = Sources(store.database, moment.reader)
    asked: Mapping[str, Collection[int]] = ids_by_name
    while asked:
        _read_records(sources, moment, asked, ids_by_name, events)
        asked = _ids_of_placed(moment, events, unread)
    found = _Found(events, [], [])
    for name, known in events.items():
        reading = moment.conversation(name)
        state = reading.state
        own_ids = {
            event_id
            for event_id, event in known.items()
            if event_id >= state.begins and can_be_redacted(event)
        }
        if own_ids:
            forks = moment.forks_sharing(state, own_ids)
            for fork, shared_ids in forks:
                source = sources.find_by_key(fork.key)
                if source is not None and continued(source) is not None:
                    shared_events = [known[event_id] for event_id in shared_ids]
                    found.sessions.append((fork, shared_events))
            owners = [name, *origins_of(reading), *(fork.id for fork, _ in forks)]
            companions = companions_at(moment, owners)
            living = [companion for companion in companions if companion.erasure is None]
            if living:
                found.beside.append((state, own_ids, living))
    return found


def _read_records(
    sources: Sources,
    moment: Moment,
    asked: Mapping[str, Collection[int]],
    ids_by_name: Mapping[str, Collection[int]],
    events: dict[str, dict[int, Event]],
) -> None:
    """Add the events ``asked`` for, and all events of their records, to ``events``."""
    states = [(moment.conversation(name).state, ids) for name, ids in asked.items()]
    of_records = events_of_records(sources, states)
    all_ids = chain(asked.items(), ((name, sorted(ids)) for name, ids in of_records.items()))
    for name, ids in all_ids:
        known = events.setdefault(name, {})
        for event_id in dict.fromkeys(ids):
            if event_id in known:
                continue
            for event in moment.conversation(name).events(event_id, event_id + 1):
                if event_id in ids_by_name.get(name, ()) or can_be_redacted(event):
                    known[event_id] = event


def _ids_of_placed(
    moment: Moment, events: Mapping[str, Mapping[int, Event]], unread: list[str]
) -> dict[str, list[int]]:
    """Return the ids of further events that have the result of one of the events, by the
    conversation to which they belong: see ``PLACED_FROM``.
    """
    further: dict[str, list[int]] = {}
    for name, known in events.items():
        for owner, other in _same_results(moment, name, known.values(), unread):
            if other.id not in events.get(owner, ()) and can_be_redacted(other):
                further.setdefault(owner, []).append(other.id)
    return further


def _same_results(
    moment: Moment, conversation: str, events: Iterable[Event], unread: list[str]
) -> Iterator[tuple[str, Event]]:
    """Yield the other events that have the same results, each with the conversation to which it
    belongs: the first ones, of which some of ``events`` are the placed copies, and the copies that
    were placed later, in the conversation or in its forks. A fork may share a first one. The
    problems of later events that cannot be read are added to ``unread``.

    Cost: for a result that was written before its call, reading all later events of the
    conversation and of the forks that share the result.
    """
    reading = moment.conversation(conversation)
    results = [event for event in events if isinstance(event, Observation) and event.origin]
    for event in results:
        first_id = _placed_from(event)
        if first_id is not None:
            owner_id = reading.owner_of(first_id)
            yield from ((owner_id, first) for first in reading.events(first_id, first_id + 1))
    early_ids = [
        event.id
        for event in results
        if not event.shown and event.cause is None and PLACED_FROM not in event.meta
    ]
    if not early_ids:
        return
    state = reading.state
    for owner, ids in ((state, early_ids), *moment.forks_sharing(state, early_ids)):
        # Each conversation is read from its own events on: its parent has the others.
        start = max(owner.begins, min(ids) + 1)
        shown_ids = set(ids)
        for later in _readable_at(moment, owner.id, start, unread):
            if _placed_from(later) in shown_ids:
                yield owner.id, later


def _placed_from(event: Event) -> int | None:
    """Return the event of which a placed result is a copy: see ``PLACED_FROM``."""
    first_id = event.meta.get(PLACED_FROM)
    return first_id if type(first_id) is int else None


def _readable_at(
    moment: Moment, conversation: str, start: int, unread: list[str]
) -> Iterator[Event]:
    """Yield the readable events from ``start`` on, as ``_readable`` does, at one moment."""
    reading = moment.conversation(conversation)
    while start < reading.version:
        try:
            yield from reading.events(start)
            return
        except CorruptEvent as error:
            unread.append(str(error))
            if error.event_id < start:
                return  # The conversation itself cannot be read.
            start = error.event_id + 1


def _readable(
    store: Store, conversation: Conversation, start: int, unread: list[str]
) -> Iterator[Event]:
    """Yield the readable events from ``start`` on. The names of the others are added to
    ``unread``.
    """
    version, _ = conversation.end
    return (entry.event for entry in sound(store, conversation.id, start, version, unread))


def shown_by(store: Store, events_by_name: Mapping[str, Iterable[Event]]) -> dict[str, list[Event]]:
    """Return the given events by conversation. An event that forks share is listed for each of
    these forks too.
    """
    return query_all(store.database, partial(_shown_at, events_by_name))


def _shown_at(
    events_by_name: Mapping[str, Iterable[Event]], moment: Moment
) -> dict[str, list[Event]]:
    """Return what ``shown_by`` describes, as of the moment."""
    shown: dict[str, list[Event]] = {}
    for shower, events in _showing(events_by_name, moment):
        shown.setdefault(shower.id, []).extend(events)
    return {name: events for name, events in shown.items() if events}


def _imported_files(
    store: Store, events_by_name: Mapping[str, Iterable[Event]], moment: Moment
) -> list[tuple[str, tuple[str, ...]]]:
    """Return each conversation that has or shares the events, with the paths from which the
    conversation was imported.
    """
    sources = Sources(store.database, moment.reader)
    return [
        (shower.id, imported_paths(sources, shower))
        for shower, _ in _showing(events_by_name, moment)
    ]


def _check_keys(
    store: Store, events_by_name: Mapping[str, Iterable[Event]], moment: Moment
) -> None:
    """Raise ``KeyUnavailable`` if the key of a conversation that has or shares the events is
    missing.
    """
    for shower, _ in _showing(events_by_name, moment):
        store.database.data_key(shower)


def _showing(
    events_by_name: Mapping[str, Iterable[Event]], moment: Moment
) -> Iterator[tuple[Conversation, list[Event]]]:
    """Yield each conversation that has or shares some of the events, with these events."""
    for name, events in events_by_name.items():
        # The conversation may have been erased after its events were found.
        with suppress(ConversationErased):
            state = moment.conversation(name).state
            own_events = {event.id: event for event in events if event.id >= state.begins}
            yield state, [*own_events.values()]
            for fork, ids in moment.forks_sharing(state, own_events):
                yield fork, [own_events[event_id] for event_id in ids]


def _quotes_of(
    events_by_name: Mapping[str, Sequence[Event]], moment: Moment
) -> dict[str, list[CondensationAction]]:
    """Return the further condensations whose summaries may quote the events, by conversation."""
    quotes_by_name: dict[str, list[CondensationAction]] = {}
    for name, events in _shown_at(events_by_name, moment).items():
        reading = moment.conversation(name)
        known_ids = {event.id for event in events_by_name.get(name, ())}
        quotes_by_name[name] = [
            quote
            for quote in redact.quotes_in(reading, events)
            if quote.id >= reading.state.begins and quote.id not in known_ids
        ]
    return quotes_by_name


# -- the places that may still have the content
# ----------------------------------------------------------------------------------------------


def unread_source_name(conversation: str) -> str:
    """Return the name of the imported file of a conversation whose source is damaged."""
    return f"imported file of {conversation!r}, whose path cannot be read"


def holders(
    store: Store,
    unconfirmed: Iterable[str],
    conversations: Container[str] | None = None,
    sources: Iterable[str] = (),
) -> tuple[str, ...]:
    """Return the read models and files that may hold redacted content: the names in
    ``unconfirmed``, the files that a restore has replaced, and the existing paths in ``sources``.
    """
    names = [
        name
        for name in unconfirmed
        if may_hold(name, conversations) and path_in(name) != store.path
    ]
    noted_sources = {name: path_in(name) for name in names if name.startswith("imported ")}
    # The store's own path is left out, because an open backup has a note of itself.
    named = [describe_file(store, name) for name in names if name not in noted_sources]
    for name in filter(is_missing, noted_sources):
        describe_file(store, name)
    former = []
    if store.path is not None:
        former = sorted(glob.glob(f"{glob.escape(store.path)}.replaced-*"))
    paths = filter(os.path.exists, dict.fromkeys((*noted_sources.values(), *sources)))
    return (*named, *(f"former file {path}" for path in former), *map(source_name, paths))
