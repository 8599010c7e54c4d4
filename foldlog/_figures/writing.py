"""Write figures into the tables of the store, with a conversation or a source.

Numbers are columns, also in an encrypted store. Texts are sealed there: a name is then a keyed
digest, by which SQL adds up and chooses, and the sealed texts have the name of each digest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec.structs import astuple

from foldlog._companions import companion_of
from foldlog._documents import CondensationsDocument
from foldlog._figures.counting import Figures
from foldlog._figures.counts import Counts
from foldlog._formats.record import INCOMPLETE
from foldlog._formats.summed_calls import USAGE, Calls
from foldlog.eventstore.inside import event_microseconds
from foldlog.eventstore.log.keys import DataKey, KeyRing
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Conversation

CODE: Final = 1
"""The version of what makes figures: those of another one are made again."""
SAVED: Final = ("condensations", "tokens_saved", "cost")
"""What is counted of condensations by their reasons."""
NO_CALLS: Final = Calls("", "", {}, None, 0)
"""Of a reply that is not found again."""

FIRST_IS_LOCAL: Final = 1
LAST_IS_LOCAL: Final = 2
SEALED: Final = 1
DIGEST: Final = "\x1f"
"""Precedes the digest of a name."""
_DIGEST_BYTES: Final = 16
_NAME_MAX: Final = 300
_COUNT_MAX: Final = 10**15
"""The highest number of tokens of a call: SQL cannot add up any numbers."""
_CONDENSED: Final = CondensationsDocument.__struct_fields__


def put_figures(
    transaction: Transaction,
    found: Conversation,
    data_key: DataKey | None,
    keys: KeyRing | None,
    figures: Figures,
) -> None:
    """Write the figures of a conversation as it was found, in the place of those that are there."""
    names = _Names(found, data_key, keys)
    key = found.key
    for statement in ("forget_figure_calls", "forget_figure_counts"):
        transaction.write_sources(statement, key)
    if not found.pending:
        stored = transaction.ask_sources("figure_replies_of", key)
        transaction.write_sources("forget_figure_replies", key)
        known = {unsigned(hashed): figures.replies.get(unsigned(hashed)) for (hashed,) in stored}
        replies = {hashed: calls for hashed, calls in known.items() if calls is not None}
        put_replies(transaction, found, data_key, keys, replies)
    counts = {(what, names.of(name)): number for what, name, number in _counts(figures)}
    transaction.write_rows(
        "put_figure_calls", key, [_row_of(call, names) for call in figures.calls]
    )
    transaction.write_rows(
        "put_figure_counts", key, [(*pair, number) for pair, number in counts.items()]
    )
    texts = json.dumps(names.with_texts(figures)).encode()
    if data_key is None:
        sealed = texts
    else:
        sealed = data_key.encrypt(texts, place_of_texts(key))
    encoding = 0 if data_key is None else SEALED
    numbers = json.dumps(_numbers(found, figures))
    transaction.write_sources(
        "put_figures", key, found.id, encoding, sealed, figures.hashes, numbers
    )


def put_replies(
    transaction: Transaction,
    found: Conversation,
    data_key: DataKey | None,
    keys: KeyRing | None,
    replies: Mapping[int, Calls],
) -> None:
    """Write what replies of a conversation used, by their hashes: those that others have too."""
    names = _Names(found, data_key, keys)
    rows = [(_signed(hashed), *_row_of(call, names)) for hashed, call in replies.items()]
    transaction.write_rows("put_figure_replies", found.key, rows)


class _Names:
    """The names of tools, models and other things in the figures of one conversation, and their
    digests.
    """

    def __init__(self, found: Conversation, data_key: DataKey | None, keys: KeyRing | None) -> None:
        self._key_id = found.key_id or ""
        self._keys = None if data_key is None else keys
        self._of_digests = dict[str, str]()

    def of(self, name: str) -> str:
        name = storable(name)
        if self._keys is None:
            return name
        digest = digest_of(self._keys, self._key_id, name)
        self._of_digests[digest] = name
        return digest

    def with_texts(self, figures: Figures) -> dict[str, Any]:
        overview = figures.overview
        texts = {
            "title": overview.title,
            "attributes": overview.attributes,
            "problem": overview.problem,
            "needs_key": overview.needs_key,
            "last": None if figures.counts.last_at else overview.last_event_at,
            "first_error": figures.counts.first_error,
            "context": figures.context,
            "findings": figures.counts.findings,
            "names": self._of_digests,
        }
        return {name: value for name, value in texts.items() if value}


def digest_of(keys: KeyRing, key_id: str, name: str) -> str:
    return DIGEST + keys.digest(key_id, name.encode(), _DIGEST_BYTES).hex()


def storable(name: str) -> str:
    """Return a name without what a column of text may not hold."""
    name = name[:_NAME_MAX].replace("\0", "\ufffd").replace(DIGEST, "\ufffd")
    return name.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _signed(hashed: int) -> int:
    """Return a hash as SQL has whole numbers."""
    return hashed - (1 << 64) if hashed >> 63 else hashed


def unsigned(hashed: int) -> int:
    """Return a hash from what SQL has of it."""
    return hashed % (1 << 64)


def _row_of(call: Calls, names: _Names) -> tuple[Any, ...]:
    usage = (call.usage.get(name) for name in USAGE)
    tokens = (None if count is None else min(count, _COUNT_MAX) for count in usage)
    counted = call.above, int(call.by_condenser), min(call.calls, _COUNT_MAX)
    return call.day, names.of(call.model), *counted, *tokens, call.cost


def _numbers(found: Conversation, figures: Figures) -> list[Any]:
    overview = figures.overview
    counts = figures.counts
    saved = figures.saved()
    tokens = [call.tokens for call in figures.calls]
    recorded_at = found.updated_at or found.created_at
    ends = (counts.first_at, counts.last_at)
    is_local = [at is not None and at.tzinfo is None for at in ends]
    return [
        *(CODE, found.version, int(bool(companion_of(found.id))), recorded_at),
        FIRST_IS_LOCAL * is_local[0] + LAST_IS_LOCAL * is_local[1],
        None if counts.first_at is None else event_microseconds(counts.first_at),
        None if counts.last_at is None else event_microseconds(counts.last_at),
        *(counts.longest_wait_s, overview.events, figures.errors, overview.tokens),
        *(overview.sent_events, overview.sent_summaries),
        figures.last_prompt_tokens and min(figures.last_prompt_tokens, _COUNT_MAX),
        min(sum(tokens), _COUNT_MAX) if any(tokens) else None,
        *(saved.condensations if figures.is_sound else None, saved.tokens_saved),
        *(overview.format and storable(overview.format), counts.state),
    ]


def _counts(figures: Figures) -> Iterable[tuple[str, str, float | None]]:
    """Yield what is counted, under which name, and the number."""
    counts = figures.counts
    overview = figures.overview
    yield from _events_counted(counts)
    for name, saving in figures.reasons.items():
        for field in SAVED:
            yield f"reason {field}", name, getattr(saving, field)
    for call in figures.calls:
        yield "model", call.model, 1
    if counts.state is not None:
        yield "state", counts.state, 1
    if overview.format is not None:
        yield "program", overview.format, 1
    if figures.errors:
        yield "errors", "any", figures.errors
    for name, value in (overview.attributes or {}).items():
        for one in value if isinstance(value, list | tuple) else [value]:
            if name not in ("title", INCOMPLETE) and isinstance(one, str | int):
                yield "attribute", f"{name}={one}", 1


def _events_counted(counts: Counts) -> Iterable[tuple[str, str, float | None]]:
    for what, numbers in (("kind", counts.events), ("day", counts.days)):
        for name, number in numbers.items():
            yield what, name, number
    for name, tool in counts.tools.items():
        yield "tool", name, tool.calls
        yield "tool errors", name, None if counts.errors is None else tool.errors
    for name, condensed in counts.condensations.items():
        for field, number in zip(_CONDENSED, astuple(condensed), strict=True):
            yield f"condensations {field}", name, number


def place_of_texts(key: int) -> bytes:
    return b"figures\0%d" % key
