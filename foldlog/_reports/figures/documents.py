"""This module makes the documents and totals that commands, pages and Python show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from foldlog._base.json_types import JsonObject
from foldlog._reports.answers.conversations import ConversationDocument
from foldlog._reports.answers.figures import ModelDocument, TaskDocument
from foldlog._reports.figures.agent_trees import Trees
from foldlog._reports.figures.context_limit import ContextLimit, limit_of_models
from foldlog._reports.figures.of_store import FiguresOfStore
from foldlog._reports.figures.overview import is_another, parent_in
from foldlog._reports.figures.prices import Prices
from foldlog._reports.figures.spending import price_calls, spent_by, sum_up
from foldlog._reports.figures.stats import Stats
from foldlog._reports.figures.tables import StoredFigures, Where
from foldlog._reports.words.gist import unreached_words
from foldlog.eventstore import (
    ConversationErased,
    ConversationNotFound,
    ConversationRow,
    EventStoreError,
    Store,
)

if TYPE_CHECKING:
    from foldlog.projections import Views

WaitsFor: TypeAlias = Literal["all", "named", "single"]


def document_of(
    row: ConversationRow,
    figures: StoredFigures,
    prices: Prices,
    task: TaskDocument | UnsetType = UNSET,
) -> ConversationDocument:
    """Return the document of a conversation in a list. An erased conversation has no figures."""
    fields: JsonObject = {
        **figures.overview._asdict(),
        "errors": None,
        "condensations": None,
        "spent": None,
    }
    if row.erased_at is None:
        first_at = figures.first_at
        columns = figures.columns
        fields |= {
            "errors": columns.errors,
            "last_prompt_tokens": columns.last_prompt_tokens,
            "longest_wait_s": columns.longest_wait_s,
            "tokens_saved": columns.tokens_saved,
            "state": figures.state,
            "first_error": figures.first_error,
            "first_event_at": None if first_at is None else first_at.isoformat(),
            "context": figures.texts.context,
            "task": task,
        }
        if figures.is_sound:
            fields["condensations"] = columns.condensations
            fields["spent"] = spent_by(figures.calls, prices)
    return ConversationDocument.of_row(row, **fields)


def models_of(store: Store, conversation: str, prices: Prices) -> tuple[ModelDocument, ...]:
    """Return the usage and cost of a conversation by model, the model with the most tokens of
    prompts first. Return nothing if an event could not be read. Raises ``ConversationErased``.
    """
    row = store.conversation(conversation, as_stored=True).check_not_erased()
    ((_, figures),) = FiguresOfStore(store).of([row])
    if not figures.is_sound:
        return ()
    by_model: dict[str, ModelDocument] = {}
    for calls in price_calls(figures.calls, prices).values():
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
    has_task: bool = False,
    waits_for: WaitsFor = "named",
) -> Stats:
    """Count what has changed, and return the totals of ``conversations``, or of all conversations
    if the argument is None. For a single conversation, the function also computes the sizes of its
    Views: see ``ViewMeasuring``.

    ``on_events``  is called with the number of events that were counted together
    ``views``      make the Views of a single conversation
    ``prices``     are for calls of models that recorded no cost
    ``has_task``   also add up a single conversation and its sub-agents, in ``Stats.task``
    ``waits_for``  which figures are always complete: the figures of ``"all"`` conversations, of the
                   ``"named"`` conversations, or of a ``"single"`` one. ``Stats.behind`` says what
                   the other figures lack

    Raises ``ConversationNotFound``, ``ConversationErased`` or ``KeyUnavailable``. Cost: see
    ``FiguresOfStore``; with ``has_task``, the figures of the whole store are brought up to date
    too.
    """
    figures = FiguresOfStore(
        store,
        views,
        prices,
        on_events=on_events,
        is_quick=_is_quick(waits_for, conversations),
    )
    rows = None
    if conversations is not None:
        rows = [_existing(store, conversation) for conversation in conversations]
    _check_keys(store, conversations)
    where = Where(only=conversations)
    figures.bring_up_to_date(where)
    stats = figures.totals(where)
    if rows is None or len(rows) != 1:
        figures.add_sub_agents(stats, where)
        return stats
    ((_, of_one),) = figures.of(rows)
    _add_sizes(stats, store, views, rows[0], of_one)
    if has_task:
        # A conversation names its parent, so sub-agents that are not counted are not found.
        of_task = FiguresOfStore(store, views, prices, is_quick=waits_for != "all")
        of_task.refresh()
        stats.task = of_task.tasks([of_one], has_agents=True).get(of_one.id)
        stats.behind = of_task.behind()
    return stats


def _is_quick(waits_for: WaitsFor, conversations: Sequence[str] | None) -> bool:
    """Return whether the totals of ``conversations`` may lack some figures."""
    match waits_for:
        case "all":
            return False
        case "named":
            return conversations is None
        case "single":
            return conversations is None or len(conversations) != 1


def trees_of(store: Store, *, is_complete: bool = True) -> Trees:
    """Return which conversation began which. Cost: if ``is_complete`` is set, the function counts
    all conversations that have changed. Otherwise the trees lack sub-agents that were never
    counted.
    """
    figures = FiguresOfStore(store)
    if is_complete:
        figures.refresh()
    return figures.trees


def tasks_of(store: Store, conversations: Iterable[str]) -> dict[str, str]:
    """Return, for the sub-agents among ``conversations``, the conversations at the tops of their
    tasks. Cost: a row of figures for each agent above, or some of its events if it is not counted.
    """
    figures = FiguresOfStore(store)
    tasks = dict[str, str]()
    for name in dict.fromkeys(conversations):
        above = [name]
        while (parent := _parent_of(store, figures, above[-1])) not in {"", *above}:
            tasks[name] = parent
            above.append(parent)
    return tasks


def _parent_of(store: Store, figures: FiguresOfStore, name: str) -> str:
    """Return the conversation that began another, or an empty text if the store has none."""
    row = store.conversation(name, as_stored=True)
    ((_, of_row),) = figures.of([row], whole=False)
    parent = parent_in(of_row.overview.attributes or {})
    with suppress(ConversationNotFound, ConversationErased):
        above = _existing(store, parent) if parent else None
        if above is not None and not is_another(above, row):
            return above.id
    return ""


def with_sub_agents(store: Store, conversations: Iterable[str]) -> list[str]:
    """Return ``conversations``, and all sub-agents below them. Cost: counting all conversations
    that have changed.
    """
    trees = trees_of(store)
    names = dict.fromkeys(conversations)
    return [*dict.fromkeys([*names, *(name for top in names for name, _ in trees.below(top))])]


def unreached_agents(store: Store, conversations: Iterable[str]) -> list[str]:
    """Return a finding for each conversation whose sub-agents were erased."""
    figures = FiguresOfStore(store)
    figures.refresh()
    rows = [_existing(store, conversation) for conversation in conversations]
    tasks = figures.tasks([of_row for _, of_row in figures.of(rows)])
    return [
        f"conversation {name!r}: {words}; the sums do not include them"
        for name, task in tasks.items()
        if (words := unreached_words(task))
    ]


def _add_sizes(
    stats: Stats, store: Store, views: Views, row: ConversationRow, figures: StoredFigures
) -> None:
    """Add the sizes of Views and prompts to the figures of a single conversation."""
    models = sorted({call.model for call in figures.calls if not call.by_condenser})
    peak = max(figures.texts.context, default=0)
    stats.peak_prompt_tokens = peak or None
    _set_limit(stats, limit_of_models(models, peak))
    if row.unmade:
        return
    from foldlog._reports.figures.view_tokens import ViewMeasuring

    measuring = ViewMeasuring(store, row)
    largest = measuring.use.largest()
    if largest is not None:
        stats.peak_prompt_version, stats.peak_prompt_tokens = largest
    _set_limit(stats, measuring.use.limit())
    try:
        stats.view_tokens = measuring.sizes(views)
    except EventStoreError as error:
        problem = f"conversation {row.id!r}: the sizes of its View are not counted: {error}"
        if problem not in stats.findings:
            stats.findings.append(problem)


def _set_limit(stats: Stats, limit: ContextLimit | None) -> None:
    if limit is not None:
        stats.max_input_tokens, stats.window_of = limit


def _check_keys(store: Store, conversations: Sequence[str] | None) -> None:
    """Raise ``KeyUnavailable`` if the key of one of the conversations is missing. Cost: a row of
    each conversation, but only if the store has used a key that is missing here.
    """
    database = store.database
    keys = database.settings.keys
    given_ids = set(keys.names) if keys else set()
    if set(database.recorder.value("key_ids").split()) <= given_ids:
        return
    names = (
        [row.id for row in store.iter_conversations()] if conversations is None else conversations
    )
    for name in names:
        conversation_row = database.recorder.query(
            partial(database.find, conversation=name, as_stored=True)
        )
        if conversation_row is not None and conversation_row.erasure is None:
            # This call raises ``KeyUnavailable`` if the key is missing.
            database.codec_of(conversation_row)


def _existing(store: Store, conversation: str) -> ConversationRow:
    """Return the row of a conversation. Raises ``ConversationErased`` if it was erased."""
    row = store.conversation(conversation, as_stored=True)
    if row.erased_at is not None:
        store.version(conversation)  # raises ``ConversationErased``
    return row
