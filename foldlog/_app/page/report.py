"""Write the page of one history into a single file that needs no network and no other file."""

from __future__ import annotations

import io
import tempfile
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import IO

from msgspec.structs import replace

from foldlog._app.page import assets
from foldlog._app.page.document import PageFold
from foldlog._app.page.texts import shown_document
from foldlog._base.json_types import JsonMap
from foldlog._reports.answers.events import NoteDocument
from foldlog._reports.answers.page import HistoryDocument
from foldlog._reports.figures.documents import models_of
from foldlog._reports.figures.overview import around_damage
from foldlog._reports.figures.prices import Prices
from foldlog._reports.figures.tokens import CountsTokens
from foldlog._reports.needed_again import needed_again
from foldlog._reports.words.gist import count
from foldlog._reports.words.safe_text import json_text, printable
from foldlog.eventstore import CorruptEvent, Logged, Store
from foldlog.eventstore.files.whole_file import whole_file
from foldlog.projections.conversations.unreadable import iter_log

_CHUNK_CHARACTERS = 256 * 1024
"""The number of characters in a chunk of texts. A browser decompresses a whole chunk to show one of
its texts.
"""
_SPLIT = "\0split\0"
"""Stands for the data in the frame of the page, where the file is written in two parts."""
_READ_CHARACTERS = 1024 * 1024
"""The texts are copied in parts of this size, so that no long history is in memory."""

Progress = Callable[[int], None]


def write_report(
    store: Store,
    conversation: str,
    path: Path,
    *,
    limit: int | None = None,
    model: CountsTokens | None = None,
    prices: Prices | None = None,
    notes: Sequence[NoteDocument] = (),
    progress: Progress = lambda done: None,
) -> int:
    """Write the page of a conversation to ``path``, and return the size of the page in bytes.

    The page draws a line at ``limit`` tokens. ``model``, such as a ``foldlog.LLM``, counts tokens.
    Without a model, tokens are estimated. ``notes`` are shown beside the events. If a call records
    no cost, its cost is computed with ``prices``, by default an installed table of prices.

    The file appears whole or not at all, and only its owner can read it. A symbolic link at
    ``path`` is replaced, not followed. An event that cannot be read is shown as damaged. Raises
    ``ConversationNotFound`` and ``OSError``. Raises ``TokensUnknown`` if the tokenizer of the model
    is missing. Cost: all events are read, and the columns of the page are held in memory. The
    events that the store's figures do not count yet are read a second time, and also what
    ``needed_again`` reads.
    """
    row = store.conversation(conversation)
    fold = PageFold(store, conversation, limit, model)
    with tempfile.TemporaryFile("w+", encoding="ascii") as texts:
        fold.take(_spool(iter_log(store, conversation, 0, row.version), texts, progress))
        models = models_of(store, conversation, prices or Prices())
        document = replace(fold.document(around_damage(store, row)), models=models)
        texts.seek(0)
        beside = {"dropped": needed_again(store, conversation), "notes": notes}
        with whole_file(path) as opened:
            file = io.TextIOWrapper(opened, encoding="utf-8")
            _write(file, document, texts, beside)
            file.detach()  # flushes the text; ``whole_file`` syncs and closes the file
    return path.stat().st_size


def _spool(
    entries: Iterable[Logged | CorruptEvent], texts: IO[str], progress: Progress
) -> Iterator[Logged | CorruptEvent]:
    """Yield the events, and write their texts in compressed chunks on the way."""
    chunk: list[str] = []
    size = 0
    first = 0
    for number, entry in enumerate(entries, 1):
        chunk.append(json_text(shown_document(entry)))
        size += len(chunk[-1])
        if size >= _CHUNK_CHARACTERS:
            _write_data(texts, "texts", f"[{','.join(chunk)}]", first)
            progress(number)
            chunk = []
            size = 0
            first = number
        yield entry
    if chunk:
        _write_data(texts, "texts", f"[{','.join(chunk)}]", first)


def _write_data(file: IO[str], name: str, text: str, first: int = 0) -> None:
    """Write a compressed text as an element that a browser does not run. The text is in base64, so
    it cannot end the element.
    """
    packed = b64encode(zlib.compress(text.encode("utf-8"), 6)).decode("ascii")
    file.write(f'<script type="text/plain" class="{name}" data-first="{first}">{packed}</script>\n')


def _write(
    file: IO[str],
    document: HistoryDocument,
    texts: IO[str],
    beside: JsonMap,
) -> None:
    """Write the page: its frame, the document, what is shown beside the events, and the texts."""
    name = document.title or document.conversation
    style = assets.style()
    script = assets.script()
    policy = (
        f"default-src 'none'; script-src {assets.content_hash(script)}; style-src"
        f" {assets.content_hash(style)}; img-src data:; base-uri 'none'; form-action 'none';"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    )
    whole = assets.page(
        title=f"{printable(name, one_line=True)} · foldlog",
        head=(
            '<meta http-equiv="Content-Security-Policy"'
            f' content="{policy}">\n<style>{style}</style>'
        ),
        script=f"<script>{script}</script>",
        fallback=_table_of_condensations(document),
        data=_SPLIT,
    )
    before, after = whole.split(_SPLIT)
    file.write(before)
    _write_data(file, "history", json_text(document))
    for part_name, value in beside.items():
        _write_data(file, part_name, json_text(value))
    while part := texts.read(_READ_CHARACTERS):
        file.write(part)
    file.write(after)


def _table_of_condensations(document: HistoryDocument) -> str:
    """Return what a browser shows that does not run the script."""
    rows = "".join(
        f"<tr><td>{change.id}</td><td>{escape(printable(change.reason))}</td></tr>"
        for change in document.changes
        if change.kind == "condensation"
    )
    return (
        f"<p>{count(document.events_counted or 0, 'event')}. This page needs a browser that runs"
        " its script.</p>"
        "<table><caption>Condensations</caption><tr><th>event</th><th>reason</th></tr>"
        f"{rows}</table>"
    )
