"""``foldlog erase``: a history, for good."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foldlog.cli import terminal
from foldlog.cli.gist import count
from foldlog.cli.options import DEFAULT_DB, AsJson, ConversationId, Db
from foldlog.cli.outcome import DONE, Refused
from foldlog.cli.stores import open_existing

__all__ = ["run"]


def run(
    conversation: ConversationId,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; the receipt keeps it.")],
    audit: Annotated[
        Path | None, typer.Option("--audit", metavar="FILE", help="Erase it from this audit database too.")
    ] = None,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> int:
    """Erase a history for good: its events, and all that was derived from them, from tables, free pages and logs.

    From the first moment on nobody reads it. What stays is a receipt: when, why, how many events, and the last head.
    Its id is not used again. Archives and backups made before still hold it; those made later hold the receipt.
    """
    if not reason.strip():
        raise Refused("--reason is empty; say why, the receipt keeps it")
    if audit is not None and not audit.exists():
        raise Refused(f"there is no audit database {audit}; nothing was erased")
    with open_existing(db) as store:
        receipt = store.erase(conversation, reason=reason)
        if audit is not None:
            from foldlog.reports.audit_database import update

            update(store, audit, [conversation])
    erased_at = "" if receipt.erased_at is None else receipt.erased_at.isoformat()
    if as_json:
        terminal.emit(
            {
                "conversation": receipt.id,
                "erased_at": erased_at,
                "reason": receipt.erased_reason,
                "events": receipt.version,
                "head": receipt.head,
            }
        )
    else:
        name = terminal.printable(receipt.id, one_line=True)
        said = f"{name}: erased at {erased_at}, {count(receipt.version, 'event')}, head {receipt.head}"
        terminal.console().print(said, soft_wrap=True)
    return DONE
