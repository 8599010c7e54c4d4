"""This module writes the figures of a conversation or a source into the tables of the store.

Numbers are plain columns, even in an encrypted store. Texts are encrypted in an encrypted store.
For each encrypted name, another column has a keyed digest, so that SQL can group and filter by
names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import to_builtins
from msgspec.structs import astuple

from foldlog._base.json_types import JsonObject
from foldlog._reports.answers.figures import CondensationsDocument
from foldlog._reports.figures.counts import Counts
from foldlog._reports.figures.overview import parent_in
from foldlog._reports.figures.tools_of_replies import CountedReply
from foldlog.eventstore.log.keys import DataKey, KeyRing
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Conversation
from foldlog.eventstore.times import EventTime, event_microseconds
from foldlog.formats.record import INCOMPLETE
from foldlog.formats.summed_calls import HASH_BYTES, USAGE, Calls
from foldlog.projections.conversations.companions import companion_of

if TYPE_CHECKING:
    from foldlog._reports.figures.counting import Figures

CODE: Final = 11
"""The version of the code that makes figures. Figures of another version are counted again."""
SAVED: Final = ("condensations", "tokens_saved", "cost")
"""The fields of ``SavingsDocument`` that are stored for each reason."""
NO_REPLY: Final = CountedReply(Calls("", "", {}, None, 0))
"""Stands for a reply that its source no longer contains."""
OF_A_TOOL: Final = 2
"""The value of ``by_condenser`` in the rows of a repeated reply that count its calls of a tool. The
tool stands in place of the model, and the errors in place of the tokens of the prompt.
"""

FIRST_IS_LOCAL: Final = 1
LAST_IS_LOCAL: Final = 2
"""The bits of the column ``is_local``: the first or the last time has no zone."""
SEALED: Final = 1
"""The bit of the column ``encoding`` that says that the texts are encrypted."""
DIGEST: Final = "\x1f"
"""The first character of a name's column that has a digest in place of the name."""
_DIGEST_BYTES: Final = 16
_NAME_MAX: Final = 300
"""The number of characters that are stored of a name."""
_COUNT_MAX: Final = 10**15
"""The maximum number of tokens that is stored, because SQL could not add up higher numbers."""
_CONDENSED: Final = CondensationsDocument.__struct_fields__


class FigureColumns(NamedTuple):
    """A row of the table of figures. The fields must be in the order of the table's columns."""

    code: int
    version: int
    is_companion: int
    recorded_at: int
    local_times: int
    first_at: int | None
    """All times of this class are in microseconds."""
    last_at: int | None
    longest_wait_s: float | None
    events: int | None
    errors: int | None
    view_tokens: int | None
    sent_events: int | None
    sent_summaries: int | None
    last_prompt_tokens: int | None
    tokens: int | None
    condensations: int | None
    """``condensations`` is None if an event could not be read. All figures are then incomplete."""
    tokens_saved: int | None
    format: Any
    """Some databases return the texts ``format`` and ``state`` as bytes."""
    state: Any


def put_figures(
    transaction: Transaction,
    conversation: Conversation,
    data_key: DataKey | None,
    keys: KeyRing | None,
    figures: Figures,
) -> None:
    """Replace the stored figures of a conversation. Texts are encrypted with ``data_key``, and the
    digests of names use ``keys``; both are None if the conversation is not encrypted.
    """
    names = _Names(conversation, data_key, keys)
    key = conversation.key
    for statement in ("forget_figure_calls", "forget_figure_counts"):
        transaction.write(statement, key)
    if not conversation.lacks_events:
        # Replies are stored one by one only if other conversations have them too. Update them, and
        # delete replies that are no longer in this conversation. While events of a source are
        # missing, its figures have only sums of replies.
        stored_hashes: list[int] = []
        if figures.replies:
            stored = transaction.ask("figure_replies_of", key)
            stored_hashes = [as_unsigned(column) for (column,) in stored]
        transaction.write("forget_figure_replies", key)
        replies = {
            reply_hash: figures.replies[reply_hash]
            for reply_hash in stored_hashes
            if reply_hash in figures.replies
        }
        put_replies(transaction, conversation, data_key, keys, replies)
    counts = {(what, names.of(name)): value for what, name, value in _counts(figures)}
    parent = parent_in(figures.overview.attributes or {})
    # A fork of a sub-agent is not a sub-agent, also after it was copied without its parent.
    if parent and conversation.parent_version is None:
        # Ids are not encrypted, so SQL can follow them.
        counts["parent", as_text_column(parent)] = 1
    transaction.write_rows(
        "put_figure_calls", key, [_row_of(call, names) for call in figures.calls]
    )
    transaction.write_rows(
        "put_figure_counts", key, [(*pair, value) for pair, value in counts.items()]
    )
    texts = _encode(names.with_texts(figures))
    encoding = 0
    sealed_texts = texts
    if data_key is not None:
        encoding = SEALED
        sealed_texts = data_key.encrypt(texts, place_of_texts(key))
    columns = _encode(_columns_of(conversation, figures)).decode()
    transaction.write(
        "put_figures", key, conversation.id, encoding, sealed_texts, figures.hashes, columns
    )
    transaction.write("mark_figures", key)


def _encode(value: object) -> bytes:
    """Return a value as JSON."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair, or more than 64 bits
        return json.dumps(to_builtins(value)).encode()


def put_replies(
    transaction: Transaction,
    conversation: Conversation,
    data_key: DataKey | None,
    keys: KeyRing | None,
    replies: Mapping[int, CountedReply],
) -> None:
    """Store the usage and the tools of replies, by their hashes: see ``put_figures``."""
    names = _Names(conversation, data_key, keys)
    rows = [row for number, reply in replies.items() for row in _rows_of(number, reply, names)]
    transaction.write_rows("put_figure_replies", conversation.key, rows)


class _Names:
    """Makes the columns of names. In an encrypted conversation, a column has a digest, and the name
    is with the encrypted texts.
    """

    def __init__(
        self, conversation: Conversation, data_key: DataKey | None, keys: KeyRing | None
    ) -> None:
        self._key_id = conversation.key_id or ""
        self._keys = None if data_key is None else keys
        self._of_digests = dict[str, str]()

    def of(self, name: str) -> str:
        """Return the column for a name."""
        name = storable(name)
        if self._keys is None:
            return name
        digest = digest_of(self._keys, self._key_id, name)
        self._of_digests[digest] = name
        return digest

    def with_texts(self, figures: Figures) -> JsonObject:
        """Return the texts of figures, with the names of all digests so far."""
        overview = figures.overview
        texts = {
            "title": overview.title,
            "attributes": overview.attributes,
            "problem": overview.problem,
            "needs_key": overview.needs_key,
            "last": None if figures.counts.last_at else overview.last_event_at,
            "first_error": figures.counts.first_error,
            "first_error_at": figures.counts.first_error_at,
            "context": figures.context,
            "begun": figures.counts.begun,
            "findings": figures.counts.findings,
            "names": self._of_digests,
        }
        return {name: value for name, value in texts.items() if value}


def digest_of(keys: KeyRing, key_id: str, name: str) -> str:
    """Return the column that stands for a name under a key."""
    return DIGEST + keys.digest(key_id, name.encode(), _DIGEST_BYTES).hex()


def storable(name: str) -> str:
    """Return a name as a column has it: not too long, and without forbidden characters."""
    return as_text_column(name[:_NAME_MAX])


def as_text_column(name: str) -> str:
    """Replace the characters that a text column cannot contain: NUL, the mark of a digest, and
    halves of surrogate pairs.
    """
    name = name.replace("\0", "\ufffd").replace(DIGEST, "\ufffd")
    if name.isascii():
        return name
    return name.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _as_signed(reply_hash: int) -> int:
    """Return the column for a hash, because SQL has no unsigned numbers."""
    return reply_hash - (1 << 64) if reply_hash >> 63 else reply_hash


def as_unsigned(column: int) -> int:
    """Return the hash of a reply from its column."""
    return column % (1 << 64)


def _rows_of(reply_hash: int, reply: CountedReply, names: _Names) -> Iterator[tuple[Any, ...]]:
    """Yield the row of a reply's usage, and a row for each tool of its calls: see ``OF_A_TOOL``."""
    yield _as_signed(reply_hash), *_row_of(reply.usage, names)
    for tool, (calls, errors) in reply.tools.items():
        name = f"{reply_hash} {tool}".encode()
        tool_hash = int.from_bytes(blake2b(name, digest_size=HASH_BYTES).digest())
        counted = Calls("", tool, {"prompt_tokens": errors}, None, calls)
        row = _row_of(counted, names)
        yield _as_signed(tool_hash), *row[:3], OF_A_TOOL, *row[4:]


def _row_of(call: Calls, names: _Names) -> tuple[Any, ...]:
    """Return the columns of some calls of a model, in the order of the table."""
    tokens = [call.usage.get(name) for name in USAGE]
    return (
        call.day,
        names.of(call.model),
        call.above,
        int(call.by_condenser),
        min(call.calls, _COUNT_MAX),
        *(None if count is None else min(count, _COUNT_MAX) for count in tokens),
        call.cost,
    )


def _columns_of(conversation: Conversation, figures: Figures) -> FigureColumns:
    """Return the columns of a conversation in the table of figures."""
    overview = figures.overview
    counts = figures.counts
    saved = figures.saved()
    tokens = [call.tokens for call in figures.calls]
    last_prompt_tokens = figures.last_prompt_tokens
    local_times = 0
    if _is_local(counts.first_at):
        local_times |= FIRST_IS_LOCAL
    if _is_local(counts.last_at):
        local_times |= LAST_IS_LOCAL
    return FigureColumns(
        code=CODE,
        version=conversation.version,
        is_companion=int(bool(companion_of(conversation.id))),
        recorded_at=conversation.changed_at,
        local_times=local_times,
        first_at=None if counts.first_at is None else event_microseconds(counts.first_at),
        last_at=None if counts.last_at is None else event_microseconds(counts.last_at),
        longest_wait_s=counts.longest_wait_s,
        events=overview.events,
        errors=figures.errors,
        view_tokens=overview.tokens,
        sent_events=overview.sent_events,
        sent_summaries=overview.sent_summaries,
        last_prompt_tokens=(
            None if last_prompt_tokens is None else min(last_prompt_tokens, _COUNT_MAX)
        ),
        tokens=min(sum(tokens), _COUNT_MAX) if any(tokens) else None,
        condensations=saved.condensations if figures.is_sound else None,
        tokens_saved=saved.tokens_saved,
        format=None if overview.format is None else storable(overview.format),
        state=counts.state,
    )


def _is_local(time: EventTime | None) -> bool:
    return time is not None and time.tzinfo is None


def _counts(figures: Figures) -> Iterable[tuple[str, str, float | None]]:
    """Yield the counts by which lists and totals filter and group. A count has a kind, a name and a
    number, such as ``("tool", "bash", 12)``.
    """
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
        for item in value if isinstance(value, list | tuple) else [value]:
            if name not in ("title", INCOMPLETE) and isinstance(item, str | int):
                yield "attribute", name_of_attribute(name, item), 1


def name_of_attribute(name: str, value: object) -> str:
    """Return the name under which conversations with an attribute are counted, in the form in which
    users write the attribute: ``flag=true``.
    """
    text = str(value).lower() if isinstance(value, bool) else value
    return f"{name}={text}"


def _events_counted(counts: Counts) -> Iterable[tuple[str, str, float | None]]:
    """Yield the counts of events, tools and condensations: see ``_counts``."""
    for what, values in (("kind", counts.events), ("day", counts.days)):
        for name, value in values.items():
            yield what, name, value
    for name, tool in counts.tools.items():
        yield "tool", name, tool.calls
        yield "tool errors", name, None if counts.errors is None else tool.errors
    for name, condensations in counts.condensations.items():
        for field, value in zip(_CONDENSED, astuple(condensations), strict=True):
            yield f"condensations {field}", name, value


def place_of_texts(key: int) -> bytes:
    """Return the place to which the encrypted texts of a row are bound, so that they cannot be
    moved to another row.
    """
    return b"figures\0%d" % key
