"""``foldlog verify``: check that every event is unchanged, that none is missing, and that each is in its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from foldlog._cli import terminal
from foldlog._cli.hints import command
from foldlog._cli.options import DEFAULT_DB, AsJson, Db, From, SomeConversations
from foldlog._cli.outcome import Refused
from foldlog._cli.stores import events_total, listed, open_existing, resolved
from foldlog._documents import (
    CheckedDocument,
    HeadDocument,
    HeadsDocument,
    LossDocument,
    VerdictDocument,
    VerifiedDocument,
    streamed,
)
from foldlog._maintenance import Maintenance, Published, Verdict
from foldlog._words.gist import count
from foldlog.eventstore.inside import from_microseconds


def run(
    conversations: SomeConversations = None,
    heads: Annotated[
        Path | None,
        typer.Option("--heads", metavar="FILE", help="Heads to compare with, as --print-heads --json printed them."),
    ] = None,
    start: From = "",
    print_heads: Annotated[
        bool, typer.Option("--print-heads", help="Check nothing: print the heads, to keep outside the store.")
    ] = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Check every event: its checksum, its place in the hash chain, and that no event is missing.

    Changed, missing, inserted, swapped and moved events are reported by conversation and id; exit status 1. A missing
    end, or a conversation that was rewritten as a whole, is detected with heads that were published before (--heads): a
    head is a hash of all events up to a version. Erased conversations are listed and are not findings. What is
    interrupted says where to go on (--from).

    Example: foldlog verify --heads heads.json
    """
    if start and (conversations or print_heads):
        raise Refused("--from goes on with a check of all conversations; leave out the names and --print-heads")
    if print_heads:
        _print_heads(conversations, db, as_json=as_json)
        return
    published = {} if heads is None else _published(heads)
    found = _Found()
    try:
        with open_existing(db) as store, terminal.working("verifying", "events") as update:
            names = [resolved(store, name) for name in conversations or ()]
            update(total=events_total(store, names, start))
            verify = partial(Maintenance(store).verify, published=published, start=start)
            checked = (each for name in dict.fromkeys(names) or (None,) for each in verify(name))
            verdicts = found.counted(checked, update)
            if as_json:
                document = VerifiedDocument(db=db, conversations=streamed(map(_document, verdicts)), **found.summary())
                terminal.emit_list(document, found.summary)
            else:
                for verdict in verdicts:
                    _show_erased(verdict)
    except BaseException:
        if found.newest is not None and not conversations:
            terminal.note(f"it ended early; '{command('verify', '--from', found.newest)}' goes on")
        raise
    finally:
        for name, finding in found.findings:
            terminal.warn(finding if name is None else f"conversation {name!r}: {finding}")
    if found.damaged:
        terminal.note("'foldlog copy --damaged' copies what is sound to a new store; a backup may have all of it")
    if not as_json:
        outcome = f"{count(len(found.findings), 'finding')}, named above" if found.findings else "no changes found"
        unmade = f" and {count(found.records, 'record')} without events" if found.records else ""
        words = f"{count(found.conversations, 'conversation')} with {count(found.events, 'event')}{unmade} checked"
        words += f", {found.unchecked:,} not checked because a key is not given" if found.unchecked else ""
        terminal.say(f"{words}: {outcome}.", wraps=True)


def _print_heads(conversations: list[str] | None, db: str, *, as_json: bool) -> None:
    with open_existing(db) as store:
        rows = (store.conversation(resolved(store, name)) for name in conversations) if conversations else listed(store)
        if as_json:
            heads = (
                HeadDocument.of(one, conversation=one.id, generation=one.generation or msgspec.UNSET) for one in rows
            )
            terminal.emit_list(HeadsDocument(store=store.database.uuid, heads=streamed(heads)), exact=True)
        else:
            for row in rows:
                terminal.say(f"{row.head}  {row.version}  {row.id}")


class _Found:
    """The checks so far, and their findings."""

    def __init__(self) -> None:
        self.conversations = self.events = self.records = self.erased = self.unchecked = 0
        self.damaged = False
        self.newest: str | None = None
        self.findings: list[tuple[str | None, str]] = []

    def counted(self, verdicts: Iterator[Verdict], update: Any) -> Iterator[Verdict]:
        """Yield the verdicts on conversations; count the verdict on the database as well."""
        for verdict in verdicts:
            self.findings += [(verdict.conversation, str(finding)) for finding in verdict.findings]
            self.damaged |= not all(finding.needs_key or finding.unfinished for finding in verdict.findings)
            if verdict.conversation is None:
                continue
            self.newest = verdict.conversation
            if any(finding.needs_key for finding in verdict.findings):
                self.unchecked += 1
            elif verdict.erasure is None:
                self.conversations += 1
                self.events += verdict.events
                self.records += verdict.pending
                update(advance=verdict.events)
            else:
                self.erased += 1
            yield verdict

    def summary(self) -> dict[str, Any]:
        return {
            "checked": CheckedDocument.of(self),
            "unchecked": self.unchecked,
            "database": tuple(finding for name, finding in self.findings if name is None),
            "sound": not self.findings,
        }


def _status(verdict: Verdict) -> str:
    if any(finding.needs_key for finding in verdict.findings):
        return "unchecked"
    if verdict.findings:
        return "damaged"
    return "sound" if verdict.erasure is None else "erased"


def _document(verdict: Verdict) -> VerdictDocument:
    erasure = verdict.erasure
    return VerdictDocument(
        conversation=verdict.conversation,
        version=verdict.version,
        head=None if verdict.head is None else verdict.head.hex(),
        status=_status(verdict),
        findings=tuple(map(LossDocument.of, verdict.findings)),
        generation=verdict.generation or msgspec.UNSET,
        erased_at=msgspec.UNSET if erasure is None else from_microseconds(erasure.erased_at).isoformat(),
        erased_reason=msgspec.UNSET if erasure is None else erasure.reason,
    )


def _show_erased(verdict: Verdict) -> None:
    if verdict.erasure is not None:
        name = terminal.typed_id(verdict.conversation or "")
        reason = verdict.erasure.reason
        when = from_microseconds(verdict.erasure.erased_at)
        events = count(verdict.erasure.events, "event")
        terminal.say(f"{name}: erased at {when:%Y-%m-%d %H:%M:%S} UTC, with {events} ({reason})", wraps=True)


class _Heads(msgspec.Struct):
    """A file of heads, as ``--print-heads --json`` prints it. ``store`` is the id of the store."""

    heads: list[HeadDocument]
    store: str | None = None


def _published(path: Path) -> dict[str, list[Published]]:
    """Read the heads in a file. It may hold several heads of one conversation, at several versions."""
    now = command("verify", "--print-heads", "--json")
    try:
        document = msgspec.convert(json.loads(path.read_text("utf-8")), _Heads)
        heads: dict[str, list[Published]] = {}
        for one in document.heads:
            published = Published(one.version, bytes.fromhex(one.head), one.generation or 0, document.store)
            heads.setdefault(one.conversation, []).append(published)
    except OSError as error:
        raise Refused(
            f"the heads in {path} cannot be read: {error.strerror or error}; name the published file; without one, "
            f"'{now} > heads.json' publishes the present heads, which show later changes only"
        ) from error
    except (ValueError, RecursionError) as error:
        problem = "it is not JSON" if isinstance(error, json.JSONDecodeError) else error
        raise Refused(
            f"{path} does not hold heads as 'foldlog verify --print-heads --json' prints them ({problem}); "
            f"name the published file; '{now} > heads.json' publishes the present heads"
        ) from error
    return heads
