"""``foldlog store redact``: erase the content of events for good."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from itertools import chain
from typing import Annotated, NamedTuple

import typer

from foldlog._archive.redacting import redact_beside, source_files
from foldlog._cli import erasing, terminal
from foldlog._cli.hints import command
from foldlog._cli.options import DEFAULT_DB, EVENT_SETTINGS, AsJson, Db, NoVacuum, Yes, completed
from foldlog._cli.outcome import Refused
from foldlog._cli.selection import DryRun, Where, given_moment, pairs
from foldlog._cli.stores import open_existing, whole
from foldlog._cli.vacuuming import bytes_pending_words, bytes_stay_pending
from foldlog._companions import companion_of, with_companions
from foldlog._copies import erased_sources, may_hold, path_in, read_models
from foldlog._documents import (
    MatchDocument,
    ProblemDocument,
    QuoteDocument,
    RedactedDocument,
    RedactionsDocument,
)
from foldlog._formats.files.found import files_below
from foldlog._maintenance import (
    all_that_goes,
    asked_for,
    conversations_with,
    documents_lost,
    holders,
    redacted,
    shown_by,
    with_copies,
    with_records,
)
from foldlog._matching import Holds, events_with, files_with, is_json, keep_documents, source_with, text_or_pattern
from foldlog._meant import meant
from foldlog._words.gist import count, gist
from foldlog.eventstore import (
    ATTRIBUTES,
    CannotRedact,
    CondensationAction,
    ConversationRow,
    Event,
    EventStoreError,
    InvalidArgument,
    Store,
)
from foldlog.eventstore.inside import check_reason, has_content
from foldlog.eventstore.maintenance.redact import RedactionReceipt

SETTINGS = EVENT_SETTINGS
_LISTED_MAX = 20
_TOGETHER = 1_000
"""Events that are redacted in one transaction."""
_IN_TOMBSTONE = (
    "the tombstone of the erased conversation {!r} holds the text, and stays in this store; copy the other "
    "conversations to a new one with foldlog store copy FROM TO ID …"
)
_IN_ID = (
    "the id of conversation {!r} holds the text; erase it, and import its source under another name (--conversation); "
    "the tombstone keeps the id in this store, so copy the others to a new one with foldlog store copy FROM TO ID …"
)
_IN_SOURCE = "its source holds the text beside the records, in its title or around them: both go as a whole"
_ELSEWHERE = (
    "in another conversation; leave out ID and --where to search all of them",
    "in deleted data, in an idempotency key or in the name of a follower; run 'foldlog store vacuum', or erase the "
    "conversation with the key",
)
"""Where the store holds a text that was found nowhere, by whether all conversations were searched."""


def run(
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; the receipt keeps it.")],
    conversation: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="The conversation.", show_default=False, autocompletion=completed),
    ] = None,
    events: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="EVENT", help="Events, by their ids; the id of a summary is below -1.", show_default=False
        ),
    ] = None,
    matching: Annotated[
        str | None,
        typer.Option(
            "--matching",
            metavar="TEXT",
            help="The events that hold this text, in capital or small letters, with or without accents. Without ID: in "
            "all conversations.",
        ),
    ] = None,
    pattern: Annotated[
        bool,
        typer.Option(
            "--pattern",
            help="The text is a regular expression, whose repeats have limits: 'sk-[a-z]{20,60}'. (?i) before it "
            "ignores the case.",
        ),
    ] = False,
    secrets: Annotated[
        bool, typer.Option("--secrets", help="The events that hold keys and tokens: see foldlog secrets.")
    ] = False,
    where: Where = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="TIME",
            help="Only events that were recorded before: 90d (or s, m: minutes, h, w), 2026-03-01; what was imported "
            "is recorded at its first use. System prompts and documents stay, unless they match.",
        ),
    ] = None,
    with_summaries: Annotated[
        bool,
        typer.Option("--with-summaries", help="Redact summaries that may quote an event too, and why they were made."),
    ] = False,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="NAME", help="Who does it.", show_default="the user of the operating system"),
    ] = None,
    dry_run: DryRun = False,
    no_vacuum: NoVacuum = False,
    yes: Yes = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Erase the content of events for good, from tables, derived data, free pages and logs.

    In a terminal the command shows the events and asks first. The whole content of an event goes. Id, kind, place,
    times, size, and the model, tokens and cost of a reply stay, and published heads still verify. The model sees the
    word "redacted". The receipt is a new event: who, when, why, and a hash of the former content. At the end the store
    is vacuumed: a SQLite file is rewritten as a whole, and other writers wait. Earlier copies still hold the content.

    --matching finds a text in events, summaries, documents and records of imports, and in what a file holds around its
    records, which goes as a whole. In the end it names what still holds it: events, ids, and of the store's file, known
    backups, exports, reports, audit databases, and the files that were replaced or imported those with its bytes. It
    does not look into other stores. Exit status 1 if nothing is found, or something still holds the text.

    Example: foldlog store redact tidewatch 17 --reason "asked to"
    """
    check_reason(reason, "receipt")
    before = given_moment("--older-than", older_than)
    if secrets and (matching is not None or pattern):
        raise Refused("--secrets and --matching: give one of the two")
    text = None if matching is None else text_or_pattern(matching, is_pattern=pattern)
    text = _secret() if secrets else text
    if text is not None and (text(reason) or text(by or "")):
        raise Refused("the reason, or the name after --by, holds the text to redact, and the receipt keeps it")
    searches = text is not None or before is not None or bool(where)
    if bool(events) == searches or (events and conversation is None):
        raise Refused("name events by their ids, or find them by --matching, --older-than or --where: one of the two")
    with open_existing(db) as store:
        rows = _conversations(store, conversation, where) if searches else []
        search = _Search(store, rows, text, before, everywhere=conversation is None and not where)
        with terminal.working("searching"):
            name = "" if searches else whole(store, conversation or "")
            named = search.found() if searches else {name: asked_for(search.store_of(name), name, events or ())}
            chosen = _chosen(store, named, with_summaries=with_summaries)
            beside = search.beside()
            similar = _similar(search, chosen.asked, matching) if matching and not pattern else ""
        if (searches or dry_run) and not as_json:
            _show_found(chosen, beside)
        if not (yes or dry_run):
            _ask(chosen, beside, listed=searches)
        receipts: list[RedactionReceipt] = []
        stay: list[ProblemDocument] = []
        if not dry_run:
            ids = {name: [event.id for event in reversed(each)] for name, each in chosen.named.items()}
            if events and conversation is not None:
                ids[conversation] = list(dict.fromkeys(events))
            for_content = text is not None or not searches
            redact = partial(redacted, reason=reason, by=by, with_summaries=with_summaries, for_content=for_content)
            receipts, stay = _redacted(search, ids, redact, chosen.shown)
            for name in beside:
                redact_beside(search.store_of(name), name)
        taken = _taken(receipts, with_summaries=with_summaries)
        done = f"{_what(len(taken), len(beside))} redacted"
        is_pending = bool(receipts or beside) and bytes_stay_pending(store, done, no_vacuum=no_vacuum)
        unconfirmed = [*chosen.unread, *(name for receipt in receipts for name in receipt.unconfirmed)]
        if text is not None and not dry_run:
            unconfirmed = _look_again(search, text, stay, unconfirmed, with_store=not is_pending, in_files=as_json)
        pending = bytes_pending_words(store, "it")
        if not as_json:
            _show(store, receipts, taken)
    if not (chosen.goes or receipts or beside):
        terminal.matched_nothing()
    unconfirmed = [*dict.fromkeys(unconfirmed)]
    is_left = bool(stay)
    stay += [ProblemDocument(conversation=name, problem=problem) for name, problem in search.problems.items()]
    if as_json:
        terminal.emit(_documents(chosen, beside, receipts, stay, unconfirmed, is_pending=is_pending))
    for problem in stay:
        terminal.warn(problem.problem)
    if is_pending:
        terminal.note(f"bytes pending: {pending}")
    erasing.warn_of_unconfirmed(unconfirmed, "redaction")
    if similar:
        terminal.note(similar)
    if text is not None:
        terminal.note(_result(search, chosen, beside, None if dry_run else done, is_left=is_left))


def _secret() -> Holds:
    """Return what finds secrets. Raises ``InvalidOption`` where the extra for it is not installed."""
    from foldlog._secrets import holds_secret

    holds_secret("")
    return holds_secret


class _Search:
    """Which events are looked for, and in which conversations: ``problems`` has those that cannot be searched."""

    def __init__(
        self,
        store: Store,
        rows: Sequence[ConversationRow],
        text: Holds | None,
        before: datetime | None,
        *,
        everywhere: bool,
    ) -> None:
        self.store, self.rows, self.text, self.everywhere = store, rows, text, everywhere
        self.store_of = cache(lambda name: meant(store, name)[1])
        """Another conversation that gets the id of one of these is not redacted."""
        self.problems: dict[str, str] = {}
        self._before = before

    def found(self, text: Holds | None = None, *, again: bool = False) -> dict[str, list[Event]]:
        """Return the events to redact, ``again`` those that were, too, or those with another ``text``. Of a fork, those
        that it shares are found in the conversation that they belong to, unless that one is not searched.
        """
        found: dict[str, list[Event]] = {}
        searched = {row.id for row in self.rows}
        for row in sorted(self.rows, key=lambda row: row.created_at, reverse=True):  # a fork may build on shared values
            start = row.parent_version or 0 if row.parent in searched else 0
            try:
                store, holds = self.store_of(row.id), text or self.text
                if events := events_with(store, row.id, holds, self._before, start, redacted=again):
                    found[row.id] = events
            except EventStoreError as error:
                self.problems[row.id] = terminal.about(row.id, str(error))
        return found

    def beside(self) -> list[str]:
        """Return the conversations whose sources hold the text beside their records."""
        found = dict[str, None]()
        if self.text is None:
            return []
        for row in self.rows:
            try:
                if (name := source_with(self.store_of(row.id), row.id, self.text)) is not None:
                    found[name] = None
            except EventStoreError as error:
                self.problems[row.id] = terminal.about(row.id, str(error))
        return [*found]


class _Chosen(NamedTuple):
    """What is redacted.

    ``named``    the events of each conversation that go, with those that were redacted already
    ``asked``    those that were asked for, and their copies, by conversation and id
    ``goes``     those that have content still
    ``quotes``   those of them that only may quote another
    ``shown``    the same events by the conversations that show them
    ``unread``   names of what could not be looked into
    """

    named: dict[str, list[Event]]
    asked: set[tuple[str, int]]
    goes: dict[str, list[Event]]
    quotes: set[tuple[str, int]]
    shown: dict[str, list[Event]]
    unread: list[str]


def _chosen(store: Store, named: Mapping[str, Sequence[Event]], *, with_summaries: bool) -> _Chosen:
    """Return all that goes with these events of conversations."""
    unread: list[str] = []
    own = with_copies(store, with_records(store, named), unread)
    asked = {(name, event.id) for name, events in own.items() for event in events}
    all_of = all_that_goes(store, own, unread, with_summaries=True) if with_summaries else own
    goes = {name: its for name, events in all_of.items() if (its := [*filter(has_content, events)])}
    going = {(name, event.id) for name, events in goes.items() for event in events}
    shown = shown_by(store, all_of)
    return _Chosen(all_of, asked, goes, going - asked, shown, unread)


def _look_again(
    search: _Search,
    text: Holds,
    stay: list[ProblemDocument],
    unconfirmed: Iterable[str],
    *,
    with_store: bool,
    in_files: bool,
) -> list[str]:
    """Add to ``stay`` where the text still is, and return what may hold it: of what is named as that, and of the read
    models that are behind, what was not looked into; with ``in_files`` also the files that hold it.
    """
    store = search.store
    stay += _left(search.found(again=True), store.iter_conversations() if search.everywhere else search.rows, text)
    stay += [_beside(name) for name in search.beside()]
    rows = [*store.iter_conversations()] if search.everywhere else search.rows
    sources = _sources(store, [row.id for row in rows])
    stay += [_in_path(name, path) for name, paths in sources.items() for path in paths if text(path)]
    those = None if search.everywhere else {row.id for row in search.rows}
    known = [name for name in read_models(store) if may_hold(name, those)]
    held_it = {row.id for row in store.iter_conversations() if row.redactions or row.erased_at is not None}
    behind = [name for name in read_models(store, store.database.last_position) if may_hold(name, those)]
    unconfirmed = [*unconfirmed, *holders(store, behind, held_it)]
    paths = [*dict.fromkeys(chain.from_iterable(sources.values()))]
    held = dict(files_with(store, text, [*known, *dict.fromkeys(unconfirmed)], paths, with_store=with_store))
    stay += [*_files(store, held, "in what is named above" if stay else _ELSEWHERE[search.everywhere])]
    without = {path for path in paths if is_json(path) and held.keys().isdisjoint(files_below(path))}
    told = without if in_files else {*without, *held}
    return [name for name in unconfirmed if path_in(name) not in told]


def _what(events: int, sources: int) -> str:
    """Return how many events there are, and how many texts beside the records of sources."""
    beside = f" and what {count(sources, 'source')} held beside the records" if sources else ""
    return f"{count(events, 'event')}{beside}"


def _result(search: _Search, chosen: _Chosen, beside: Sequence[str], done: str | None, *, is_left: bool) -> str:
    """Return what is known of the text: after a redaction that has ``done`` something, or a dry run."""
    files = "the files of the store, backups, exports, reports and imports"
    several = count(len(search.rows) - len(search.problems), "conversation")
    searched = f"all events, summaries, documents and imported records of {several}, and what is beside these"
    if done is None:
        of_those = " of those searched" * bool(search.problems)
        result = f"no event{of_those} holds the text"
        if chosen.goes:
            result = "the events listed above hold the text"
        if beside:
            result += ", and the sources listed above hold it beside their records"
        said = f"{result}. Searched: {searched}. A dry run does not search {files}"
    else:
        not_found = f"The text was not found any more{' in what was searched' * bool(search.problems)}"
        result = "The text is still in the places named above" if is_left else not_found
        said = f"{done}. {result}. Searched: {searched}, and {files}"
    if search.problems:
        left = count(len(search.problems), "conversation")
        said += f". {left} could not be searched, and may hold the text: see above"
    return (
        f"{said}. Never searched: files that a shell wrote, and other stores. To redact a copy of this store, copy it "
        f"again"
    )


def _similar(search: _Search, known: Container[tuple[str, int]], text: str) -> str:
    """Return a hint to events that hold a word of the text, but not the text; empty where none does."""
    words = dict.fromkeys(re.findall(r"\w{3,}", text))
    if len(words) < 2:
        return ""
    each = [text_or_pattern(word, is_pattern=False) for word in words]
    found = search.found(lambda given: any(holds(given) for holds in each))
    more = [at for name, events in found.items() for event in events if (at := (name, event.id)) not in known]
    if not more:
        return ""
    first = ", ".join(f"{name} {event_id}" for name, event_id in more[:3])
    return (
        f"words of the text ({', '.join(words)}) are in {count(len(more), 'more event')} of "
        f"{count(len(dict(more)), 'conversation')}, such as {first}; look for each word with --matching WORD --dry-run"
    )


def _redacted(
    search: _Search,
    ids_of: dict[str, list[int]],
    redact: Callable[..., RedactionReceipt],
    shown: Mapping[str, Iterable[Event]],
) -> tuple[list[RedactionReceipt], list[ProblemDocument]]:
    """Redact these events. Return the receipts, and what stays. Raises ``Refused`` if the only event cannot be
    redacted.

    Found events are redacted from the last one on: a document may be stored as a difference to an earlier one. Those of
    companions are the first: the content of the others finds them.
    """
    receipts, stay = [], []
    names = sorted(ids_of, key=lambda name: not companion_of(name))
    total = sum(map(len, ids_of.values()))
    each = [
        (name, ids_of[name][at : at + _TOGETHER]) for name in names for at in range(0, len(ids_of[name]), _TOGETHER)
    ]
    with terminal.working("redacting", "events", total) as update:
        if search.text is not None:
            for name, gone in shown.items():
                keep_documents(search.store_of(name), name, {event.id for event in gone}, search.text)
        while each:
            name, ids = each.pop(0)
            try:
                receipts.append(redact(search.store_of(name), name, ids))
            except (CannotRedact, InvalidArgument) as error:
                if len(ids) > 1:
                    each[:0] = [(name, [event_id]) for event_id in ids]
                    continue
                if total == 1:
                    raise Refused(str(error)) from error
                stay.append(ProblemDocument(conversation=name, problem=str(error)))
            update(advance=len(ids))
    return receipts, stay


def _left(found: dict[str, list[Event]], rows: Iterable[ConversationRow], text: Holds) -> list[ProblemDocument]:
    """Return where the text still is: in what a redaction leaves, and in the ids and tombstones of these rows."""
    stay = [
        ProblemDocument(
            conversation=name,
            problem=f"conversation {name!r}, event {event.id} still holds the text, in a part that a redaction keeps, "
            f"such as the name of a tool; '{command('store erase', name, '--reason', 'TEXT')}' erases the conversation",
        )
        for name, events in found.items()
        for event in events
    ]
    for row in rows:
        if text(row.id) or text(row.erased_reason or ""):
            what = _IN_ID if row.erased_at is None else _IN_TOMBSTONE
            stay.append(ProblemDocument(conversation=row.id, problem=what.format(row.id)))
    return stay


def _beside(conversation: str) -> ProblemDocument:
    problem = f"the source of conversation {conversation!r} holds the text beside its records; "
    return ProblemDocument(conversation=conversation, problem=f"{problem}run the same command again")


def _sources(store: Store, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the files from which conversations were imported, those that are erased too."""
    found, noted = source_files(store, names), erased_sources(store)
    every = {name: list(dict.fromkeys((*found.get(name, ()), *noted.get(name, ())))) for name in names}
    return {name: paths for name, paths in every.items() if paths}


def _in_path(conversation: str, path: str) -> ProblemDocument:
    problem = f"the store keeps that conversation {conversation!r} was imported from {path}, which holds the text; "
    return ProblemDocument(conversation=conversation, problem=f"{problem}rename that, and import or erase it again")


def _files(store: Store, held: Mapping[str, EventStoreError | None], own: str) -> Iterator[ProblemDocument]:
    """Yield what is wrong with the files that may still hold the text: the store's ``own`` says where."""
    audits = {path_in(name) for name in read_models(store) if name.startswith("audit database ")}
    for path, error in held.items():
        remedy = f"; run '{command('export', '--to', path)}', or delete it" if path in audits else "; delete it"
        told = f"still holds the text{f', {own}' if path in (store.path, f'{store.path}-wal') else remedy}"
        if error is not None:
            told = f"cannot be looked into, and may hold the text; delete it: {error}"
        yield ProblemDocument(conversation=None, problem=f"the file {path} {told}")


def _conversations(store: Store, conversation: str | None, where: Sequence[str] | None) -> list[ConversationRow]:
    if conversation is None:
        return conversations_with(store, pairs(list(where or ())), and_shared=True)
    if where:
        raise Refused("ID and --where: give one of the two")
    return with_companions(store, [store.conversation(whole(store, conversation))])


def _taken(receipts: Sequence[RedactionReceipt], *, with_summaries: bool) -> dict[tuple[str, int], RedactionReceipt]:
    """Return the events that were redacted, with the first receipt of each: summaries of forks too."""
    taken: dict[tuple[str, int], RedactionReceipt] = {}
    for receipt in receipts:
        own = [(receipt.conversation, event_id) for event_id in receipt.event_ids]
        theirs = [(quote.conversation, quote.event_id) for quote in receipt.quotes if with_summaries]
        for key in (*own, *theirs):
            taken.setdefault(key, receipt)
    return taken


def _show_found(chosen: _Chosen, beside: Sequence[str]) -> None:
    """List the events, without the text that they hold."""
    for name, events in chosen.goes.items():
        ids = ", ".join(_named_event(name, event, chosen.quotes) for event in events)
        terminal.say(f"{terminal.typed_id(name)}: {count(len(events), 'event')}: {ids}")
    for name in beside:
        terminal.say(f"{terminal.typed_id(name)}: {_IN_SOURCE}", wraps=True)
    total = sum(map(len, chosen.goes.values()))
    terminal.say(f"{count(total, 'event')} of {count(len(chosen.goes), 'conversation')} to redact", wraps=True)


def _named_event(name: str, event: Event, quotes: Container[tuple[str, int]]) -> str:
    if not isinstance(event, CondensationAction) or not event.summary:
        return str(event.id)
    may_quote = ", which may quote it" if (name, event.id) in quotes else ""
    return f"summary of condensation {event.id}{may_quote}"


def _ask(chosen: _Chosen, beside: Sequence[str], *, listed: bool) -> None:
    """Ask a person. A redacted event is not asked about."""
    each = [(name, event) for name, events in chosen.goes.items() for event in events]
    if not (each or beside):
        return
    of = f"each of {_what(len(each), len(beside))}"
    if len(each) == 1 and not beside:
        ((name, event),) = each
        of = f"event {event.id} of {name!r}"
    shown = [f"{terminal.typed_id(name)}: {_IN_SOURCE}" for name in beside]
    for name, event in each[:_LISTED_MAX]:
        is_quote = (name, event.id) in chosen.quotes
        said = _named_event(name, event, chosen.quotes) if is_quote else f"event {event.id}"
        shown.append(f"{terminal.typed_id(name)}, {said}: {gist(event, erasing.WORDS_MAX)}")
    if len(each) > _LISTED_MAX:
        shown.append(f"… and {len(each) - _LISTED_MAX:,} more")
    terminal.confirm(
        "redact", "redacted", [] if listed else shown, "Erase this content for good? Nothing brings it back.", of
    )


def _documents(
    chosen: _Chosen,
    beside: Sequence[str],
    receipts: Sequence[RedactionReceipt],
    stay: Sequence[ProblemDocument],
    holders: Sequence[str],
    *,
    is_pending: bool,
) -> RedactionsDocument:
    return RedactionsDocument(
        found=tuple(
            MatchDocument(conversation=name, event_ids=tuple(event.id for event in events))
            for name, events in chosen.goes.items()
        ),
        beside=tuple(beside),
        receipts=tuple(_document(receipt, is_pending=is_pending) for receipt in receipts),
        stay=tuple(stay),
        holders=tuple(holders),
    )


def _document(receipt: RedactionReceipt, *, is_pending: bool) -> RedactedDocument:
    quotes = tuple(QuoteDocument.of(quote, event=quote.event_id) for quote in receipt.quotes)
    return RedactedDocument.of(receipt, at=receipt.at.isoformat(), quotes=quotes, bytes_pending=is_pending)


def _show(
    store: Store,
    receipts: Sequence[RedactionReceipt],
    taken: dict[tuple[str, int], RedactionReceipt],
) -> None:
    """Show who redacted each event, when, and which documents lost their values: one that was redacted before keeps its
    receipt. Then name each summary that may quote an event, and each fork, once.
    """
    for (conversation, event_id), receipt in taken.items():
        (event,) = store.events(conversation, event_id, event_id + 1)
        its = event.redacted or receipt
        hashed = "" if event.redacted is None else f", hash {event.redacted.hash}"
        said = f"event {event_id} redacted at {its.at.isoformat()} by {its.by}{hashed}"
        if receipt.documents_lost and (lost := documents_lost(store, conversation, [event_id])):
            held = ("all attributes" if name == ATTRIBUTES else repr(name) for name in lost)
            said += f"; it held the values of {', '.join(held)}: set them again"
        terminal.say(f"{terminal.typed_id(conversation)}: {said}")
    it, them = ("it", "it") if sum(len(each.event_ids) for each in receipts) == 1 else ("redacted events", "them")
    quotes = (quote for receipt in receipts for quote in receipt.quotes if not quote.redacted)
    for conversation, event_id in dict.fromkeys((quote.conversation, quote.event_id) for quote in quotes):
        if (conversation, event_id) not in taken:
            where = terminal.typed_id(conversation)
            said = f"{where}: the summary of condensation {event_id} replaces {it} and may quote {them}"
            terminal.say(f"{said}; --with-summaries redacts it")
    forks = list(dict.fromkeys(fork for receipt in receipts for fork in receipt.forks))
    if forks:
        names = ", ".join(map(terminal.typed_id, forks))
        shows = "shows" if len(forks) == 1 else "show"
        terminal.say(f"{count(len(forks), 'fork')} {shows} {them} redacted too: {names}")
