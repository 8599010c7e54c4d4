"""Answers about usage, cost and condensations."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from foldlog._reports.answers.document import Document, OfConversation


class SavingsDocument(Document):
    """The savings and the cost of condensations. Declined condensations add to the cost, but are
    not counted.

    ``condensations``   the number of condensations, including those that were taken back later
    ``tokens_saved``    the tokens of the Views before the condensations minus the tokens of the
                        Views after them; null if no condensation has known tokens
    ``cost``            the sum of the recorded costs; null if no condensation recorded a cost
    """

    condensations: int = 0
    tokens_saved: int | None = None
    cost: float | None = None


class ReasonDocument(SavingsDocument, kw_only=True):
    """The condensations that have the same reason."""

    reason: str


class BehindDocument(Document):
    """What figures lack, because nobody waits until all changes are counted. ``conversations`` is
    how many conversations have changes that are not in the figures, at most. All changes before
    ``as_of`` are in the figures; ``as_of`` is null if this time is unknown.
    """

    conversations: int
    as_of: str | None


class FleetDocument(SavingsDocument, kw_only=True):
    """The answer of ``/api/fleet``: the figures of all conversations. ``counted`` is the number of
    conversations with up-to-date figures. ``needs_key`` is the number of conversations without
    figures, because their keys are missing. ``StatsDocument`` describes ``sub_agents``,
    ``spent_alone``, ``without_usage``, ``without_cost`` and ``behind``.
    """

    conversations: int
    counted: int
    needs_key: int
    events: int
    bytes: int | None
    view_tokens: int
    reasons: tuple[ReasonDocument, ...]
    spent: SpentDocument
    sub_agents: int
    spent_alone: SpentDocument
    without_usage: int
    without_cost: int
    import_command: str
    behind: BehindDocument | UnsetType = UNSET


class ModelsDocument(OfConversation):
    """The answer of ``/api/models``: the calls of each model. The model with the most tokens of
    prompts comes first.
    """

    models: tuple[ModelDocument, ...]


class ToolDocument(Document):
    """The number of calls of a tool, and the number of calls whose results are errors. ``errors``
    is null if no source marks errors.
    """

    calls: int = 0
    errors: int | None = 0


class SpentDocument(Document):
    """The usage and cost of model calls. Unknown tokens and an unknown cost are null.
    ``condenser_calls`` is the number of calls made by condensers. The agent made all other calls.
    ``costs_estimated`` is the number of calls whose cost was not recorded, and is computed from a
    table of prices.
    """

    calls: int = 0
    condenser_calls: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None
    costs_estimated: int = 0

    @property
    def tokens(self) -> int | None:
        counts = [
            tokens for tokens in (self.prompt_tokens, self.completion_tokens) if tokens is not None
        ]
        return sum(counts) if counts else None


class ModelDocument(SpentDocument, kw_only=True):
    """The calls of a model on a ``day``, in UTC. ``day`` is empty for the calls of all days.
    ``cached_tokens`` and ``cache_write_tokens`` are part of ``prompt_tokens``.
    ``cache_write_1h_tokens`` is part of ``cache_write_tokens``, and ``reasoning_tokens`` is part of
    ``completion_tokens``. ``cost_without_cache`` is the cost if no token were read from a cache or
    written to a cache. It is null without cached tokens, and if the model has no price.
    """

    day: str
    model: str
    cost_without_cache: float | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    reasoning_tokens: int | None = None


class CondensationsDocument(Document):
    """The condensations by a strategy. Forgotten summaries are not counted as events. ``failed`` is
    the number of failed calls of its model, also if a digest then condensed in its place. The
    numbers of forgotten events and summaries are null if they are unknown, for example before the
    events of an import are made.

    ``tokens_saved`` is the tokens of the Views before the condensations minus the tokens after
    them. The tokens of a View are the sum of an estimate for each event. ``tokens_saved`` is null
    if no condensation has known tokens. ``cost`` is null if no condensation recorded a cost.
    """

    made: int = 0
    declined: int = 0
    failed: int = 0
    events_forgotten: int | None = 0
    summaries_forgotten: int | None = 0
    tokens_saved: int | None = None
    cost: float | None = None


class StatsDocument(Document, kw_only=True):
    """The output of ``foldlog stats``, for a single ``conversation`` or for several conversations.
    ``events`` maps each kind of event to the number of these events, and ``total`` to the number of
    all events. Sums leave out unknown figures. ``unmarked`` is the number of conversations whose
    sources do not mark errors. ``without_usage`` is the number of conversations without recorded
    tokens. ``unpriced`` are the models whose prices are unknown, and ``without_cost`` is the number
    of conversations that call such a model. For a single conversation, ``peak_prompt_tokens`` are
    the tokens of the largest prompt, and ``peak_prompt_version`` is the version of the View in this
    prompt. This version is null before the events of an import are made. ``max_input_tokens`` is
    the limit that the source or a condensation recorded. If no limit is recorded,
    ``max_input_tokens`` is the context window of the model ``window_of``. ``task`` is a single
    conversation with its sub-agents. ``sub_agents`` is the number of conversations that another
    conversation began, and ``spent_alone`` is what the others spent. ``behind`` says what the
    figures lack, and is left out if they lack nothing.
    """

    conversation: str | UnsetType = UNSET
    conversations: int
    events: dict[str, int]
    errors: int | None
    unmarked: int
    without_usage: int
    without_cost: int
    unpriced: tuple[str, ...]
    first_at: str | None
    last_at: str | None
    longest_wait_s: float | None
    tools: dict[str, ToolDocument]
    models: tuple[ModelDocument, ...]
    spent: SpentDocument
    condensations: dict[str, CondensationsDocument]
    days: dict[str, int]
    view_tokens: tuple[int, ...]
    peak_prompt_tokens: int | None
    peak_prompt_version: int | None
    max_input_tokens: int | None
    window_of: str | None
    findings: tuple[str, ...]
    task: TaskDocument | UnsetType = UNSET
    sub_agents: int | UnsetType = UNSET
    spent_alone: SpentDocument | UnsetType = UNSET
    behind: BehindDocument | UnsetType = UNSET


class ReceiptDocument(Document):
    """Who redacted which events, and why."""

    event_ids: tuple[int, ...]
    by: str
    reason: str


class ErasedAgentDocument(OfConversation):
    """A sub-agent that was erased. ``call_event`` is the event of the call that began it, in the
    conversation ``parent``.
    """

    parent: str
    call_event: int
    at: str
    reason: str


class AgentDocument(OfConversation, kw_only=True):
    """An agent of a task. ``depth`` is the number of agents above it. ``parent`` and ``call`` name
    the conversation and its call that began the agent; ``call`` is null if no record names it. The
    answer of ``/api/task`` also has ``call_event``, the event of this call in the asked
    conversation, ``redactions``, the number of redacted events, and for the first 20 agents with
    redacted events, the ``receipts``. ``models`` are the models that the agent called.
    ``ConversationDocument`` describes the other fields.
    """

    depth: int
    parent: str | None
    call: str | None
    call_event: int | UnsetType = UNSET
    redactions: int | UnsetType = UNSET
    receipts: tuple[ReceiptDocument, ...] | UnsetType = UNSET
    title: str | None
    state: str | None
    events: int | None
    errors: int | None
    first_error: str | None
    first_event_at: str | None
    last_event_at: str | None
    longest_wait_s: float | None
    models: tuple[str, ...]
    spent: SpentDocument | None


class TaskDocument(Document, kw_only=True):
    """A conversation with the conversations of its sub-agents. The figures are sums over all of
    them, and a reply that several recorded counts once. ``sub_agents`` is their number. The sums do
    not include ``sub_agents_erased``, the number of erased sub-agents that a conversation recorded,
    and ``sub_agents_unreached``, the number of sub-agents below these. From
    ``first_event_at`` to ``last_event_at`` is the time that passed, and ``seconds`` is the sum of
    the agents' times. ``first_error`` is the first error of any agent, and ``first_error_in`` is
    the conversation of this agent. ``agents`` begins with the conversation itself; lists leave it
    out. In the answer of ``/api/task``, ``erased`` has the erased sub-agents of the asked
    conversation and of the agents above it. No sum includes them.
    """

    sub_agents: int
    sub_agents_erased: int = 0
    sub_agents_unreached: int = 0
    errors: int | None
    first_error: str | None
    first_error_in: str | None
    first_event_at: str | None
    last_event_at: str | None
    seconds: float
    longest_wait_s: float | None
    spent: SpentDocument
    agents: tuple[AgentDocument, ...] | UnsetType = UNSET
    erased: tuple[ErasedAgentDocument, ...] | UnsetType = UNSET


class GroupedDocument(Document):
    """The output of ``foldlog stats --by``: the calls of models by ``day`` or by ``model``, the
    calls of tools, or the agents of a task. ``StatsDocument`` describes all other fields.
    """

    by: str
    conversations: int
    without_usage: int
    without_cost: int
    models: tuple[ModelDocument, ...] = ()
    tools: dict[str, ToolDocument] = msgspec.field(default_factory=dict)
    agents: tuple[AgentDocument, ...] = ()
    behind: BehindDocument | UnsetType = UNSET
