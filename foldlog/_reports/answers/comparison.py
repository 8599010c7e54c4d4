"""The answer of ``foldlog compare``."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from foldlog._base.json_types import JsonObject
from foldlog._reports.answers.document import Document, OfVersion
from foldlog._reports.answers.figures import TaskDocument
from foldlog._reports.answers.views import DroppedDocument


class CallDocument(Document):
    """The View at a call of the agent's model. ``before`` is the id of the first event that was
    recorded after the call.

    ``hidden`` is the number of events that the condenser left out of the prompt. ``repeated`` is
    the number of tokens in which the prompt repeats the beginning of the previous prompt. A
    provider may read these tokens from its cache. ``tokens`` and ``repeated`` are null if tokens
    could not be counted.
    """

    event_id: int = msgspec.field(name="before")
    events: int
    hidden: int
    tokens: int | None
    repeated: int | None


class MissingDocument(Document):
    """A term that the agent wrote in the event ``used``, although the term was not in its prompt.

    ``occurred`` are up to three earlier events with the term, the newest first. ``named`` is true
    if the prompt names an event with the term by its id, so that the agent could recall it.
    """

    term: str
    used: int
    occurred: tuple[int, ...]
    named: bool


class RecallDocument(Document):
    """How many facts of a kind an agent needed again, and how many of them its prompts showed. The
    kind is ``names``, ``numbers`` or ``words``. ``age`` is the smallest age in the class, in
    events: 0, 4, 21 or 61.
    """

    kind: str
    age: int
    needed: int
    shown: int


class StrategyFiguresDocument(Document, kw_only=True):
    """The figures of a strategy in a replay of a history. Figures that could not be counted are
    null. A cost without a known price is null. The ``condenser`` condenses a View above
    ``events_max`` events or ``tokens_max`` tokens, and ``parameters`` are its options. For the
    recorded condensations, ``condenser`` and its limits are null, and ``parameters`` is empty.

    ``tokens_cached`` is the part of ``tokens_repeated`` that the provider's cache reads. For the
    summaries by a model, ``summary_tokens`` and ``summary_cost`` are the tokens and the cost of
    prompts with the forgotten events. ``continued_tokens`` and ``continued_cost`` belong to the
    agent's next prompts (``prompt = "continue"``), of which the cache reads ``continued_cached``.

    ``needed_shown`` is about names, and the figures that begin with ``old`` are about facts that
    stood more than 60 events before their use. ``recall`` has the counts.
    """

    strategy: str
    condenser: str | None = None
    events_max: int | None = None
    tokens_max: int | None = None
    parameters: JsonObject = msgspec.field(default_factory=dict)
    turns: int
    condensations: int
    declined: int
    view_events_peak: int
    view_events_last: int
    tokens_sent: int | None
    tokens_repeated: int | None
    tokens_cached: int | None
    tokens_new: int | None
    tokens_peak: int | None
    cost: float | None
    summary_tokens: int
    summary_cost: float
    continued_tokens: int
    continued_cached: int
    continued_cost: float
    condenser_tokens: int
    condenser_cost: float | None
    condenser_failures: int
    events_hidden_last: int
    events_summarized: int
    events_lost: int
    events_masked: int
    needed_shown: float | None
    needed_named: float | None
    facts_shown: float | None
    old_names_shown: float | None
    numbers_shown: float | None
    old_numbers_shown: float | None
    words_shown: float | None
    old_words_shown: float | None
    recall: tuple[RecallDocument, ...]
    condensations_per_100_calls: float
    needed_again: int
    missing: tuple[MissingDocument, ...]
    user_messages_lost: tuple[int, ...]
    lost: tuple[int, ...]
    condensed_before: tuple[int, ...]
    calls: tuple[CallDocument, ...]


class CurvePointDocument(Document):
    """A point of ``foldlog compare --curve``: a strategy with one size limit. ``tokens`` is the
    average number of tokens of its prompts. ``terms`` and ``facts`` are the percentages of needed
    terms and needed facts that the prompts contained. ``size`` is null for the recorded
    condensations.
    """

    strategy: str
    size: int | None
    tokens: int
    terms: float
    facts: float | None


class ComparisonDocument(OfVersion):
    """The output of ``foldlog compare``. If ``counted_as`` is null, tokens are estimated. ``price``
    has two prices per token in US dollars, for new and for repeated tokens. ``priced`` names the
    model to which the prices belong. ``dropped`` has an entry for each of the newest 50 recorded
    condensations. ``task`` is the conversation with its sub-agents, if it has any; the replays
    leave them out.
    """

    counted_as: str | None
    priced: str
    price: tuple[float, float]
    curve: tuple[CurvePointDocument, ...]
    verdict: tuple[str, ...]
    strategies: tuple[StrategyFiguresDocument, ...]
    dropped: tuple[DroppedDocument, ...]
    task: TaskDocument | UnsetType = UNSET
