"""Print the heads of conversations, and read a file of printed heads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET

from foldlog._answers.document import stream
from foldlog._answers.store import HeadDocument, HeadsDocument
from foldlog._cli import terminal
from foldlog._cli.hints import command
from foldlog._cli.outcome import Refused
from foldlog._cli.stores import iter_rows, open_existing, resolve
from foldlog.maintenance import Published


class _Heads(msgspec.Struct):
    """A file of heads, as ``foldlog store verify --print-heads --json`` prints it. ``store`` is the
    id of the store.
    """

    heads: list[HeadDocument]
    store: str | None = None


def published_heads(path: Path) -> dict[str, list[Published]]:
    """Read the heads in a file. The file may have heads of several versions of one conversation."""
    now = command("store verify", "--print-heads", "--json")
    try:
        document = msgspec.convert(json.loads(path.read_text("utf-8")), _Heads)
        heads: dict[str, list[Published]] = {}
        for head_row in document.heads:
            published = Published(
                head_row.version,
                bytes.fromhex(head_row.head),
                head_row.generation or 0,
                document.store,
            )
            heads.setdefault(head_row.conversation, []).append(published)
    except OSError as error:
        raise Refused(
            f"the heads in {path} cannot be read: {error.strerror or error}; name a file of"
            f" published heads; '{now} > heads.json' writes the current heads"
        ) from error
    except (ValueError, RecursionError) as error:
        problem = "it is not JSON" if isinstance(error, json.JSONDecodeError) else error
        raise Refused(
            f"{path} is not a file of heads that 'foldlog store verify --print-heads --json'"
            f" printed ({problem}); name a file of published heads; '{now} > heads.json'"
            " writes the current heads"
        ) from error
    return heads


def show_heads(conversations: Sequence[str], db: str, *, as_json: bool) -> None:
    with open_existing(db) as store:
        rows = (
            (store.conversation(resolve(store, name)) for name in conversations)
            if conversations
            else iter_rows(store)
        )
        if as_json:
            heads = (
                HeadDocument.of(one, conversation=one.id, generation=one.generation or UNSET)
                for one in rows
            )
            terminal.emit_list(
                HeadsDocument(store=store.database.uuid, heads=stream(heads)), exact=True
            )
        else:
            for row in rows:
                terminal.say(f"{row.head}  {row.version}  {row.id}")
