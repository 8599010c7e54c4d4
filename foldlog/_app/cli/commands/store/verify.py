"""``foldlog store verify``: check that no event is changed, moved or missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from msgspec import UNSET

from foldlog._app.cli import terminal
from foldlog._app.cli.checkpoints import (
    against_option,
    ca_option,
    key_option,
    read_against,
)
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.hints import command
from foldlog._app.cli.options import conversations_argument, flag, from_option, store_options
from foldlog._app.cli.printing.verification import (
    show_erased,
    show_outcome,
    show_redacted,
    show_redacted_records,
)
from foldlog._app.cli.stores import events_total, open_existing, require_id, resolve
from foldlog._app.cli.verify_findings import Checks, verdict_document
from foldlog._reports.answers.document import stream
from foldlog._reports.answers.verification import VerifiedDocument
from foldlog.eventstore import Store
from foldlog.eventstore.maintenance import archive
from foldlog.eventstore.maintenance.verify import Verdict, verify
from foldlog.eventstore.proof.signed_note import StoreCheckpoint


@conversations_argument
@against_option
@key_option
@ca_option
@flag(
    "--views",
    "Also fold and count each conversation again, and compare every stored View and figure with"
    " the result.",
)
@flag(
    "--repair",
    "With --views: first rebuild the stored Views, and delete the stored figures, which the next"
    " reader counts again. Other programs can read at the same time.",
)
@from_option
@store_options
def run(
    conversations: tuple[str, ...],
    against: Path | None,
    keys: tuple[Path, ...],
    ca: Path | None,
    views: bool,
    repair: bool,
    start: str,
    db: str,
) -> None:
    """Check every event's checksum and its place in the hash chain, and check that no event is
    missing.

    If events are changed, missing, inserted, swapped or moved, the command reports them, and the
    exit status is 1. If nothing is changed, but something could not be checked, it is 3. With a
    checkpoint (--against), the command also detects a missing end and a
    rewritten conversation. Lawful erasures and redactions are listed and are not findings. An
    interrupted check prints where to continue (--from).

    Example: foldlog store verify --against checkpoint.txt
    """
    _check_options(conversations, against, start, views=views, repair=repair)
    note, stamped_at = read_against(against, keys, ca)
    checks = Checks()
    try:
        with open_existing(db) as store, terminal.working("verifying", "events") as update:
            if repair:
                _check_is_writable(store)
            find_conversation = require_id if repair else resolve
            names = [find_conversation(store, name) for name in conversations]
            update(total=events_total(store, names, start))
            # Generators print the verdicts of a large store one by one, and do not collect them.
            verdicts = _verdicts(store, names, start, note)
            counted = checks.count(verdicts, update)
            if views:
                rows = checks.with_views(store, counted, repair=repair)
            else:
                rows = ((verdict, UNSET) for verdict in counted)
            if terminal.prints_json():
                # The counts are final only after the last verdict. The document needs counts now,
                # so it has the present counts. After the verdicts are written, ``emit_list`` asks
                # for the final counts.
                streaming = stream(verdict_document(*row) for row in rows)
                document = VerifiedDocument(
                    db=db,
                    conversations=streaming,
                    stamped_at=None if stamped_at is None else stamped_at.isoformat(),
                    **checks.summary(),
                )
                terminal.emit_list(document, checks.summary)
            else:
                for verdict, _ in rows:
                    show_erased(verdict)
                    show_redacted(verdict)
                    show_redacted_records(verdict)
    except BaseException:
        # A check that continues cannot compare with a checkpoint, so that one begins again.
        if checks.newest is not None and not conversations and against is None:
            rest = _command_for_rest(checks.newest, views=views, repair=repair)
            terminal.note(f"the check ended early; '{rest}' continues it")
        raise
    finally:
        # Findings make the command end with status 1, also with --json.
        terminal.warn(*map(_in_words, checks.findings))
        terminal.not_checked(*map(_in_words, checks.not_checked))
    if checks.damaged:
        terminal.note(
            "'foldlog store copy --damaged' copies the undamaged events to a new store; a backup "
            "may have all events"
        )
    if not terminal.prints_json():  # the document has the outcome already
        show_outcome(checks, stamped_at, with_views=views)


def _check_options(
    conversations: Sequence[str], against: Path | None, start: str, *, views: bool, repair: bool
) -> None:
    """Raise ``Refused`` for options that contradict one another."""
    if start and conversations:
        raise Refused("--from continues a check of all conversations; leave out the names")
    if repair and not views:
        raise Refused("--repair rebuilds stored Views; add --views")
    if against is not None and (start or conversations):
        raise Refused("--against compares all conversations; leave out the names and --from")


def _check_is_writable(store: Store) -> None:
    """Raise ``Refused`` if the store is open for reading only."""
    if not store.database.recorder.writable:
        raise Refused(
            "--repair writes, but the store is open for reading only; leave out --repair, or open"
            " the store without ?mode=ro at the end of its URL, as a user who may write it"
        )


def _in_words(finding: tuple[str | None, str]) -> str:
    """Return a finding that names its conversation."""
    conversation, problem = finding
    return problem if conversation is None else f"conversation {conversation!r}: {problem}"


def _verdicts(
    store: Store,
    names: Sequence[str],
    start: str,
    note: StoreCheckpoint | None,
) -> Iterator[Verdict]:
    """Yield the verdict about each conversation, and about the whole store."""
    if note is not None:
        from foldlog._reports.records.compared_imports import verify_with_records  # all formats

        return verify_with_records(store, note)
    check = partial(verify, store, start=start)
    chosen: list[str | None] = [*dict.fromkeys(names)]
    if not chosen:
        chosen = [None]  # all conversations
    stored = chain.from_iterable(check(name) for name in chosen)
    return (archive.check_archived(store, verdict) for verdict in stored)


def _command_for_rest(newest: str, *, views: bool, repair: bool) -> str:
    """Return the command that continues an interrupted check."""
    flags = []
    if views:
        flags.append("--views")
    if repair:
        flags.append("--repair")
    return command("store verify", *flags, "--from", newest)
