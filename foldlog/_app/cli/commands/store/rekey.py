"""``foldlog store rekey``: encrypt, compress or decrypt stored events."""

from __future__ import annotations

from foldlog._app.cli import terminal
from foldlog._app.cli.options import conversations_argument, flag, store_options
from foldlog._app.cli.stores import open_existing, require_id
from foldlog._app.cli.vacuuming import bytes_pending_words
from foldlog._reports.answers.store import RekeyDocument, RekeyedDocument
from foldlog._reports.words.gist import count
from foldlog.maintenance import Maintenance


@conversations_argument
@flag(
    "--decrypt",
    "Store encrypted conversations as plain text. Decrypting needs the key of the conversations.",
)
@store_options
def run(
    conversations: tuple[str, ...],
    db: str,
    decrypt: bool,
) -> None:
    """Re-encrypt and re-compress stored events with the current settings. The store stays online.

    FOLDLOG_KEY contains the keys, or FOLDLOG_KEY_FILE names a file with the keys. The first key
    encrypts, and all keys decrypt. To make a key: (umask 077; openssl rand -base64 32 > key). To
    change the key: put the new key before the old key, restart the programs that use the store, run
    this command, then remove the old key.

    FOLDLOG_COMPRESSION chooses zlib, zstd or none. Encrypted events need their key, and stay
    encrypted. --decrypt stores encrypted events as plain text. If no compression is chosen, the
    compression of stored events does not change. Heads do not change. The old bytes stay in a
    SQLite file until 'foldlog store vacuum' removes them.

    Example: FOLDLOG_KEY_FILE=key foldlog store rekey
    """
    with open_existing(db) as store, terminal.working("rekeying", "conversations") as update:
        ids = [require_id(store, name) for name in dict.fromkeys(conversations)]
        update(total=len(ids) or None)
        outcomes = Maintenance(store).rekey(
            *ids, decrypt=decrypt, on_result=lambda rekeyed: update(advance=1)
        )
        pending = store.database.bytes_pending or any(outcome.bytes_pending for outcome in outcomes)
        remedy = bytes_pending_words(store, "the old form")
        settings = store.database.settings
    rows = sum(outcome.rows for outcome in outcomes)
    keys = sum(outcome.key for outcome in outcomes)
    sentence = (
        f"{count(len(outcomes), 'conversation')}: {count(rows, 'event')} rewritten,"
        f" {count(keys, 'key')} changed."
    )
    document = RekeyDocument(
        db=db, conversations=tuple(map(RekeyedDocument.of, outcomes)), bytes_pending=pending
    )
    terminal.answer(document, sentence)
    is_new = any(
        outcome.rows or outcome.key or outcome.damaged or outcome.problem for outcome in outcomes
    )
    if not decrypt and settings.keys is None and settings.compression is None and not is_new:
        terminal.note(
            "neither a key nor a compression is set, so there was nothing to change; to encrypt,"
            " set FOLDLOG_KEY or FOLDLOG_KEY_FILE and run the command again"
        )
    for outcome in outcomes:
        for event_id in outcome.damaged:
            terminal.warn(
                f"conversation {outcome.conversation!r}, event {event_id}: the event is damaged and"
                " was left as it is"
            )
        if outcome.problem is not None:
            terminal.warn(
                f"conversation {outcome.conversation!r} was left as it is: {outcome.problem}"
            )
    if outcomes:
        for name in outcomes[-1].plain:
            terminal.note(
                f"{name} contains texts of the store as plain text; protect it like the key, or "
                f"delete it"
            )
    if pending:
        terminal.note(remedy)
