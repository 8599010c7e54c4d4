"""Redact events, and all that repeats their content; find what holds a text, or is old, in a whole
store.
"""

from __future__ import annotations

import getpass
import glob
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache, partial
from itertools import chain
from typing import NamedTuple

from foldlog._archive.redacting import (
    events_of_records,
    redact_beside,
    redact_records,
    source_files,
)
from foldlog._bound_store import bound_store
from foldlog._companions import companion_of, companions, forked_from
from foldlog._matching import Holds, copies_of, events_with, keep_documents, source_with, texts_of
from foldlog._unreadable import sound
from foldlog._written_files import (
    erased_sources,
    is_a_copy,
    is_gone,
    may_hold,
    path_in,
    read_models,
    source_name,
    told,
)
from foldlog.eventstore import (
    NOT_RECORDED,
    CannotRedact,
    ConversationErased,
    ConversationRow,
    Event,
    EventStoreError,
    InvalidArgument,
    Store,
    summary_of,
)
from foldlog.eventstore.inside import (
    can_be_redacted,
    check_reason,
    check_text,
    has_content,
    newest_documents,
)
from foldlog.eventstore.maintenance import redact
from foldlog.eventstore.maintenance.redact import RedactionReceipt

SEARCHED = "events, summaries, documents, attributes and the records of imports"
NOT_SEARCHED = (
    "other files and stores; text that is encoded (base64, URLs, HTML, bytes other than UTF-8),"
    " compressed or in a picture; text that is divided between fields or events, has markup in it"
    " or is spelled in another way; idempotency keys and the names of workers and followers"
)
"""What no search for a text looks into."""

_TOGETHER = 1_000
"""Events that are redacted in one transaction."""
_IN_TOMBSTONE = (
    "the tombstone of the erased conversation {!r} holds the text, and stays in this store; copy"
    " the other conversations to a new one with foldlog store copy FROM TO ID …"
)
_IN_ID = (
    "the id of conversation {!r} holds the text; erase it, and import its source under another name"
    " (--conversation); the tombstone keeps the id in this store, so copy the others to a new one"
    " with foldlog store copy FROM TO ID …"
)
_IN_EVENT = (
    "conversation {!r}, event {} still holds the text, in a part that a redaction keeps, such as"
    " the name of a tool; erase the conversation with foldlog store erase ID"
)
_IN_SOURCE = (
    "the source of conversation {!r} holds the text beside its records; run the same command again"
)
_IN_PATH = (
    "the store keeps that conversation {!r} was imported from {}, which holds the text; rename"
    " that, and import or erase it again"
)


class Problem(NamedTuple):
    """Where something stays, or could not be searched, and why."""

    conversation: str | None
    problem: str


class Chosen(NamedTuple):
    """What is redacted.

    ``named``    the events of each conversation that go, with those that were redacted already
    ``goes``     those that have content still
    ``quotes``   those of them that only may quote another
    ``shown``    the same events by the conversations that show them
    ``beside``   the conversations whose sources hold the text beside their records
    ``unread``   names of what could not be looked into
    """

    named: dict[str, list[Event]]
    goes: dict[str, list[Event]]
    quotes: set[tuple[str, int]]
    shown: dict[str, list[Event]]
    beside: list[str]
    unread: list[str]


class RedactionReport(NamedTuple):
    """What ``redact_matching`` did, or with ``dry_run`` would do.

    ``events``        the ids of the events that go, or went, by their conversations
    ``beside``        the conversations whose sources held the text beside their records: that went
                      as a whole
    ``receipts``      the receipts
    ``stay``          where the store still holds the text, and why; what could not be searched
    ``unconfirmed``   read models and files that may hold it, as far as the store knows
    ``searched``, ``not_searched``  what was searched for the text, and what was not
    """

    events: Mapping[str, tuple[int, ...]]
    beside: tuple[str, ...]
    receipts: tuple[RedactionReceipt, ...]
    stay: tuple[Problem, ...]
    unconfirmed: tuple[str, ...]
    searched: str = SEARCHED
    not_searched: str = NOT_SEARCHED


class Redacting:
    """Finds what holds a text, or is older than ``before``, in some conversations, and redacts it.

    ``problems`` has the conversations that cannot be searched. ``everywhere``: all conversations
    are searched.
    """

    def __init__(
        self,
        store: Store,
        rows: Sequence[ConversationRow],
        holds: Holds | None,
        before: datetime | None = None,
        *,
        everywhere: bool = True,
    ) -> None:
        self.store = store
        self.rows = rows
        self.holds = holds
        self.everywhere = everywhere
        self.store_of = cache(lambda name: bound_store(store, name)[1])
        """Another conversation that gets the id of one of these is not redacted."""
        self.problems: dict[str, str] = {}
        self._before = before

    def choose(
        self, named: Mapping[str, Sequence[Event]] | None = None, *, with_summaries: bool = False
    ) -> Chosen:
        """Return what is to be redacted: these events, or those that are found."""
        unread: list[str] = []
        own = with_copies(
            self.store, with_records(self.store, self._found() if named is None else named), unread
        )
        asked = {(name, event.id) for name, events in own.items() for event in events}
        if with_summaries:
            all_of = all_that_goes(self.store, own, unread, with_summaries=True)
        else:
            all_of = own
        goes = {
            name: its for name, events in all_of.items() if (its := [*filter(has_content, events)])
        }
        going = {(name, event.id) for name, events in goes.items() for event in events}
        beside = self._beside() if named is None else []
        return Chosen(all_of, goes, going - asked, shown_by(self.store, all_of), beside, unread)

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
        """Redact what was chosen, of conversations that were ``asked`` for the events with these
        ids. Return the receipts, and what stays. Raises ``CannotRedact`` if the only event cannot
        be redacted.

        Found events are redacted from the last one on: a document may be stored as a difference to
        an earlier one. Those of companions are the first: the content of the others finds them.
        """
        receipts = list[RedactionReceipt]()
        stay = list[Problem]()
        for_content = self._before is None or self.holds is not None
        how = partial(
            redacted, reason=reason, by=by, with_summaries=with_summaries, for_content=for_content
        )
        if self.holds is not None:
            for name, gone in chosen.shown.items():
                keep_documents(self.store_of(name), name, {event.id for event in gone}, self.holds)
        left = [*_batches({**_ids_of(chosen), **asked})]
        is_single = sum(len(ids) for _, ids in left) == 1
        while left:
            name, ids = left.pop(0)
            try:
                receipts.append(how(self.store_of(name), name, ids))
            except (CannotRedact, InvalidArgument) as error:
                if len(ids) > 1:
                    left[:0] = [(name, [event_id]) for event_id in ids]
                    continue
                if is_single:
                    raise
                stay.append(Problem(name, str(error)))
            on_events(len(ids))
        for name in chosen.beside:
            redact_beside(self.store_of(name), name)
        return receipts, stay

    def look_again(self) -> list[Problem]:
        """Return where the store still holds the text: in what a redaction leaves, in ids,
        tombstones and the names of imported files.
        """
        assert self.holds is not None
        rows = [*self.store.iter_conversations()] if self.everywhere else self.rows
        stay = [
            Problem(name, _IN_EVENT.format(name, event.id))
            for name, events in self._found(again=True).items()
            for event in events
        ]
        for row in rows:
            if self.holds(row.id) or self.holds(row.erased_reason or ""):
                what = _IN_ID if row.erased_at is None else _IN_TOMBSTONE
                stay.append(Problem(row.id, what.format(row.id)))
        stay += [Problem(name, _IN_SOURCE.format(name)) for name in self._beside()]
        for name, paths in self.sources().items():
            stay += [
                Problem(name, _IN_PATH.format(name, path)) for path in paths if self.holds(path)
            ]
        return stay

    def sources(self) -> dict[str, list[str]]:
        """Return the files from which these conversations were imported, those that are erased
        too.
        """
        names = [
            row.id for row in (self.store.iter_conversations() if self.everywhere else self.rows)
        ]
        found = source_files(self.store, names)
        noted = erased_sources(self.store)
        every = {
            name: list(dict.fromkeys((*found.get(name, ()), *noted.get(name, ()))))
            for name in names
        }
        return {name: paths for name, paths in every.items() if paths}

    def files(self) -> tuple[str, ...]:
        """Return the files that may hold the text, as far as the store knows: backups, exports,
        reports, former files, and those from which these conversations were imported. None where no
        text is searched for.
        """
        if self.holds is None:
            return ()
        names = None if self.everywhere else {row.id for row in self.rows}
        known = [
            name for name in read_models(self.store) if is_a_copy(name) and may_hold(name, names)
        ]
        return holders(
            self.store, known, names, [path for paths in self.sources().values() for path in paths]
        )

    def _found(self, *, again: bool = False) -> dict[str, list[Event]]:
        """Return the events to redact, ``again`` those that were, too. Of a fork, those that it
        shares are found in the conversation that they belong to, unless that one is not searched.
        """
        found: dict[str, list[Event]] = {}
        searched = {row.id for row in self.rows}
        # a fork may build on shared values
        for row in sorted(self.rows, key=lambda row: row.created_at, reverse=True):
            start = row.parent_version or 0 if row.parent in searched else 0
            try:
                events = events_with(
                    self.store_of(row.id), row.id, self.holds, self._before, start, redacted=again
                )
            except EventStoreError as error:
                self.problems[row.id] = str(error)
                continue
            if events:
                found[row.id] = events
        return found

    def _beside(self) -> list[str]:
        """Return the conversations whose sources hold the text beside their records."""
        found = dict[str, None]()
        for row in self.rows if self.holds is not None else ():
            try:
                if self.holds:
                    name = source_with(self.store_of(row.id), row.id, self.holds)
                else:
                    name = None
            except EventStoreError as error:
                self.problems[row.id] = str(error)
                continue
            if name is not None:
                found[name] = None
        return [*found]


def _ids_of(chosen: Chosen) -> dict[str, list[int]]:
    return {name: [event.id for event in reversed(events)] for name, events in chosen.named.items()}


def _batches(ids_of: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, list[int]]]:
    """Yield the events to redact in one transaction each."""
    for name in sorted(ids_of, key=lambda name: not companion_of(name)):
        ids = [*dict.fromkeys(ids_of[name])]
        for at in range(0, len(ids), _TOGETHER):
            yield name, ids[at : at + _TOGETHER]


def redact_matching(
    redacting: Redacting, *, reason: str, by: str | None, with_summaries: bool, dry_run: bool
) -> RedactionReport:
    """Find what is to go, redact it unless ``dry_run``, and look again."""
    chosen = redacting.choose(with_summaries=with_summaries)
    ids = {name: tuple(event.id for event in events) for name, events in chosen.goes.items()}
    receipts = list[RedactionReceipt]()
    stay = list[Problem]()
    if not dry_run:
        receipts, stay = redacting.redact(
            chosen, reason=reason, by=by, with_summaries=with_summaries
        )
        stay += redacting.look_again() if redacting.holds is not None else []
    stay += [Problem(name, problem) for name, problem in redacting.problems.items()]
    unconfirmed = unconfirmed_by(chosen, receipts, () if dry_run else redacting.files())
    return RedactionReport(ids, tuple(chosen.beside), tuple(receipts), tuple(stay), unconfirmed)


def unconfirmed_by(
    chosen: Chosen, receipts: Iterable[RedactionReceipt], files: Iterable[str]
) -> tuple[str, ...]:
    """Return what may still hold what is redacted, each once."""
    of_receipts = (name for receipt in receipts for name in receipt.unconfirmed)
    return tuple(dict.fromkeys([*chosen.unread, *of_receipts, *files]))


# -- events, and all that goes with them
# -------------------------------------------------------------------------------


def redacted(
    store: Store,
    conversation: str,
    event_ids: Sequence[int],
    *,
    reason: str,
    by: str | None,
    with_summaries: bool,
    for_content: bool = True,
) -> RedactionReceipt:
    """Redact events, with all that may repeat their content: see ``History.redact``. Where they do
    not go ``for_content``, but for their age, records without an id and a time stay welcome in
    other histories.
    """
    by = check_text("by", _user() if by is None else by)
    reason = check_reason(reason, "receipt")
    unread: list[str] = []
    named = {conversation: asked_for(store, conversation, event_ids)}
    asked = {event.id for event in named[conversation]}
    common = set[tuple[str, int]]()
    redact_with = partial(
        redact.redact,
        store,
        conversation,
        event_ids[0],
        reason=reason,
        by=by,
        complete=False,
        also=redact_records(store, common),
    )
    receipt: RedactionReceipt | None = None
    chosen: set[tuple[str, int]] = set()
    while True:  # until others have appended nothing that has to go too
        named = all_that_goes(store, named, unread, with_summaries=with_summaries)
        others = {name: [each.id for each in its] for name, its in named.items()}
        now = {(name, each) for name, its in others.items() for each in its}
        if receipt is not None and now <= chosen:
            break
        chosen |= now
        if not for_content:
            common |= {
                (name, each.id)
                for name, its in named.items()
                for each in its
                if not _is_named(each)
            }
        touched = {conversation}
        for name, its in others.items():
            with suppress(ConversationErased):  # since it was found
                touched |= {name, *(store.forks_sharing(name, min(its)) if its else ())}
        sources = source_files(store, sorted(touched))
        others[conversation] = [
            *event_ids,
            *(each for each in others.get(conversation, ()) if each not in asked),
        ]
        after = redact_with(others=others)
        if receipt and after.position is None:
            receipt = after._replace(position=receipt.position)
        else:
            receipt = after
    files = chain.from_iterable(sources.values())
    unconfirmed = holders(store, (*dict.fromkeys(unread), *receipt.unconfirmed), touched, files)
    lost = documents_lost(store, conversation, receipt.event_ids)
    return receipt._replace(unconfirmed=unconfirmed, documents_lost=lost)


def _is_named(event: Event) -> bool:
    """Return whether the record of an event has an id or a time: no other history has it by
    chance.
    """
    origin = event.origin
    return origin is not None and (
        origin.id is not None or origin.time is not None or event.timestamp is not None
    )


def asked_for(store: Store, conversation: str, event_ids: Iterable[int]) -> list[Event]:
    """Return the events of these ids that are there, each once; for the id of a summary its
    condensation.
    """
    wanted = dict.fromkeys(summary_of(each) if each < NOT_RECORDED else each for each in event_ids)
    return [
        event
        for each in wanted
        if each >= 0
        for event in store.events(conversation, each, each + 1)
    ]


def documents_lost(store: Store, conversation: str, event_ids: Sequence[int]) -> tuple[str, ...]:
    """Return the documents whose newest values are in these events."""
    newest = store.query(conversation, partial(newest_documents, version=None))
    return tuple(name for name, event_id in newest.items() if event_id in event_ids)


def all_that_goes(
    store: Store, named: Mapping[str, Sequence[Event]], unread: list[str], *, with_summaries: bool
) -> dict[str, list[Event]]:
    """Return these events of conversations and all events whose content goes with theirs: those of
    the same records of a source and copies of them (``with_copies``), and with summaries the
    condensations that may quote them, in forks too, and copies of these.
    """
    goes = with_copies(store, with_records(store, named), unread)
    if not with_summaries:
        return goes
    for name, events in shown_by(store, goes).items():
        begins = store.conversation(name).parent_version or 0
        known = {each.id for each in goes.get(name, ())}
        quotes = store.query(name, partial(redact.quotes_in, redacted=events))
        own = [each for each in quotes if each.id >= begins and each.id not in known]
        if own:
            goes.setdefault(name, []).extend(own)
    return with_copies(store, with_records(store, goes), unread)


def with_records(store: Store, named: Mapping[str, Sequence[Event]]) -> dict[str, list[Event]]:
    """Return these events, and those that came of the same records: see ``events_of_records``."""
    ids = events_of_records(
        store, {name: [each.id for each in events] for name, events in named.items()}
    )
    found = {name: {each.id: each for each in events} for name, events in named.items()}
    for name, its in ids.items():
        there = found.setdefault(name, {})
        for missing in sorted(its - there.keys()):
            there |= {
                each.id: each
                for each in store.events(name, missing, missing + 1)
                if can_be_redacted(each)
            }
    return {name: [*events.values()] for name, events in found.items()}


def with_copies(
    store: Store, named: Mapping[str, Sequence[Event]], unread: list[str]
) -> dict[str, list[Event]]:
    """Return these events of conversations, and those of companions that repeat their content. Of
    these, one that cannot be read is named in ``unread``. Cost: the events of a conversation that
    has companions; those of companions.
    """
    found = {name: [*events] for name, events in named.items()}
    for name, events in named.items():
        row = store.conversation(name)
        own = [
            event
            for event in events
            if event.id >= (row.parent_version or 0) and can_be_redacted(event)
        ]
        for beside, copies in _copies_beside(store, row, own, unread):
            found[beside] = [
                *{each.id: each for each in (*found.get(beside, ()), *copies)}.values()
            ]
    return found


def _copies_beside(
    store: Store, row: ConversationRow, gone: Sequence[Event], unread: list[str]
) -> Iterator[tuple[str, list[Event]]]:
    """Yield each companion that shows these events of a conversation, with its events that repeat
    their content.
    """
    ids = {each.id for each in gone}
    sharing = store.forks_sharing(row.id, min(ids)) if gone else ()
    found = companions(store, row.id, *forked_from(store, row.id), *sharing) if gone else ()
    if beside := [each for each in found if each.erased_at is None]:
        own = _readable(store, row, row.parent_version or 0, [])
        texts = texts_of(gone, (each for each in own if each.id not in ids))
        yield from (
            (each.id, copies_of(texts, _readable(store, each, 0, unread))) for each in beside
        )


def _readable(store: Store, row: ConversationRow, start: int, unread: list[str]) -> Iterator[Event]:
    """Yield the events from ``start`` on that can be read. The others are named in ``unread``."""
    return (each.event for each in sound(store, row.id, start, row.version, unread))


def _user() -> str:
    """Return the name of the user that this process runs as; its number where it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}" if hasattr(os, "getuid") else ""


def shown_by(store: Store, named: Mapping[str, Iterable[Event]]) -> dict[str, list[Event]]:
    """Return which of these events of conversations each conversation shows: its own, and those
    that it shares as a fork. Cost: a look-up for each event.
    """
    shown: dict[str, list[Event]] = {}
    for name, events in named.items():
        begins = store.conversation(name).parent_version or 0
        for event in (event for event in events if event.id >= begins):
            for each in (name, *store.forks_sharing(name, event.id)):
                shown.setdefault(each, []).append(event)
    return shown


def holders(
    store: Store,
    unconfirmed: Iterable[str],
    conversations: Container[str] | None = None,
    sources: Iterable[str] = (),
) -> tuple[str, ...]:
    """Return what may still hold what was erased of these conversations, or of any one: of
    ``unconfirmed`` the read models and the files that foldlog wrote of them, the former files that
    restores kept, and the files and folders ``sources``.
    """
    known = [
        name
        for name in unconfirmed
        if may_hold(name, conversations) and path_in(name) != store.path
    ]
    noted_sources = {name: path_in(name) for name in known if name.startswith("imported ")}
    # a backup knows itself
    there = [told(store, name) for name in known if name not in noted_sources]
    for name in filter(is_gone, noted_sources):
        told(store, name)
    if store.path is None:
        former = []
    else:
        former = sorted(glob.glob(f"{glob.escape(store.path)}.replaced-*"))
    paths = filter(os.path.exists, dict.fromkeys((*noted_sources.values(), *sources)))
    return (*there, *(f"former file {path}" for path in former), *map(source_name, paths))
