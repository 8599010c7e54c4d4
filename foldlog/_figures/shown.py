"""Figures of conversations as commands, pages and Python show them: documents and totals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from foldlog._documents import ConversationDocument, ModelDocument
from foldlog._figures.prices import Prices
from foldlog._figures.sizes import event_tokens
from foldlog._figures.spending import priced, spent_by, sum_up
from foldlog._figures.stats import Stats
from foldlog._figures.stored import FiguresOfStore
from foldlog._figures.tables import StoredFigures, Where
from foldlog.condensers.models.limits import window_of
from foldlog.eventstore import ConversationRow, EventStoreError, Store
from foldlog.projections import Views


def document_of(
    row: ConversationRow, figures: StoredFigures, prices: Prices
) -> ConversationDocument:
    """Return a conversation with its figures. Of an erased one they are None, and unknown ones
    too.
    """
    fields: dict[str, Any] = {
        **figures.overview._asdict(),
        "errors": None,
        "condensations": None,
        "spent": None,
    }
    if row.erased_at is None:
        for name in (
            "errors",
            "last_prompt_tokens",
            "longest_wait_s",
            "tokens_saved",
            "state",
            "first_error",
        ):
            fields[name] = getattr(figures, name)
        fields["first_event_at"] = (
            None if figures.first_at is None else figures.first_at.isoformat()
        )
        fields["context"] = tuple(figures.context)
        if figures.is_sound:
            fields["condensations"] = figures.condensations
            fields["spent"] = spent_by(figures.calls, prices)
    return ConversationDocument.of_row(row, **fields)


def models_of(store: Store, conversation: str, prices: Prices) -> tuple[ModelDocument, ...]:
    """Return the calls of one conversation by model, those of most tokens first; nothing where an
    event cannot be read. Cost: see ``FiguresOfStore.of``.
    """
    ((_, figures),) = FiguresOfStore(store).of([store.conversation(conversation, pending=True)])
    by_model: dict[str, ModelDocument] = {}
    for calls in priced(figures.calls, prices).values() if figures.is_sound else ():
        sum_up(by_model, {calls.model: replace(calls, day="")})
    return tuple(
        sorted(by_model.values(), key=lambda calls: (-(calls.prompt_tokens or 0), calls.model))
    )


def collect_stats(
    store: Store,
    conversations: Sequence[str] | None,
    on_events: Callable[[int], object] = lambda count: None,
    *,
    views: Views,
    prices: Prices | None = None,
) -> Stats:
    """Return the figures of conversations, None for all. A fork counts what it did itself. An event
    that cannot be read is a finding, and the rest is counted.

    Calls that tell no cost are counted at ``prices``, else at those of a table that is installed.
    Raises ``ConversationNotFound``, ``ConversationErased``, ``KeyUnavailable``. Cost: see
    ``FiguresOfStore``; of one conversation alone also the sizes of its Views, every event once.
    """
    figures = FiguresOfStore(store, views, prices, on_events=on_events)
    if conversations is None:
        rows = None
    else:
        rows = [_existing(store, each) for each in conversations]
    _check_keys(store, conversations)
    where = Where(only=conversations)
    figures.bring_up_to_date(where)
    stats = figures.totals(where)
    if rows is not None and len(rows) == 1:
        ((_, counted),) = figures.of(rows)
        stats.peak_prompt_tokens = max(counted.context, default=None)
        stats.max_input_tokens = _limit_of(counted)
    if rows is not None and len(rows) == 1 and not rows[0].pending:
        try:
            stats.view_tokens = views.lifetimes(rows[0].id, event_tokens).sizes
        except EventStoreError as error:
            problem = f"conversation {rows[0].id!r}: the sizes of its View are not counted: {error}"
            stats.findings += [problem] if problem not in stats.findings else []
    return stats


def _limit_of(figures: StoredFigures) -> int | None:
    """Return how many tokens the models of the agent take; None where that is not known of one of
    them, where they differ, and where a prompt had more.
    """
    models = {call.model for call in figures.calls if not call.by_condenser}
    windows = [window_of(model) for model in models]
    limits = {None if window is None else window.max_input_tokens for window in windows}
    limit = limits.pop() if len(limits) == 1 else None
    return limit if limit and limit >= max(figures.context, default=0) else None


def _check_keys(store: Store, conversations: Sequence[str] | None) -> None:
    """Raise ``KeyUnavailable`` where one of these conversations is encrypted, and its key is not
    given.
    """
    database = store.database
    keys = store.database.settings.keys
    if {*database.recorder.value("key_ids").split()} <= {*(keys.names if keys else ())}:
        return
    names = (
        [row.id for row in store.iter_conversations()] if conversations is None else conversations
    )
    for name in names:
        found = database.recorder.query(partial(database.find, conversation=name, pending=True))
        if found is not None and found.erasure is None:
            database.codec_of(found)


def _existing(store: Store, conversation: str) -> ConversationRow:
    row = store.conversation(conversation, pending=True)
    if row.erased_at is not None:
        store.version(conversation)  # raises: of an erased one nothing is counted
    return row
