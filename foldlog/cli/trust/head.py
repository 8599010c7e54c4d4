"""``foldlog head``: print the heads to publish; later changes to a history can then be detected."""

from __future__ import annotations

from foldlog.cli import terminal
from foldlog.cli.options import DEFAULT_DB, AsJson, Db, SomeConversations
from foldlog.cli.outcome import DONE
from foldlog.cli.stores import listed, open_existing, resolved
from foldlog.eventstore import ConversationRow


def run(conversations: SomeConversations = None, db: Db = DEFAULT_DB, as_json: AsJson = False) -> int:
    """Print the hash-chain head of each conversation. Keep it outside the store.

    A head is a hash of all events up to a version. 'foldlog verify --heads FILE', with the file that '--json' printed
    here, then detects any later change, also a missing end.

    Example: foldlog head --json
    """
    with open_existing(db) as store:
        rows = (store.conversation(resolved(store, name)) for name in conversations) if conversations else listed(store)
        if as_json:
            terminal.emit_list({"store": store.database.uuid}, "heads", map(_as_json, rows), exact=True)
        else:
            for row in rows:
                print_head(row)
    return DONE


def print_head(row: ConversationRow) -> None:
    terminal.console().print(
        f"{row.head}  {row.version}  {terminal.printable(row.id, one_line=True)}", soft_wrap=True, style=None
    )


def _as_json(row: ConversationRow) -> dict[str, object]:
    generation = {"generation": row.generation} if row.generation else {}
    return {"conversation": row.id, "version": row.version, "head": row.head, **generation}
