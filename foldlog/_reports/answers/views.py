"""Answers about Views and condensations."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from foldlog._base.json_types import JsonObject
from foldlog._reports.answers.document import Document, OfConversation, OfVersion
from foldlog._reports.answers.events import UnreadEventDocument
from foldlog.projections.explain import Fate


class SummaryDocument(Document, kw_only=True):
    """A summary in a View. ``position`` is the index of the summary in the View."""

    event: int
    position: int | UnsetType = UNSET
    text: str


class RequestDocument(Document):
    """A request for a condensation."""

    event: int
    reason: str


class SummaryLineDocument(Document):
    """A line of a digest, and the event that it describes."""

    event: int
    line: str


class DroppedTermDocument(Document):
    """A term that a condensation dropped. ``event`` is the last dropped event with the term, and
    ``needed_in`` is the event in which the agent wrote the term again.
    """

    term: str
    event: int
    needed_in: int | None


class DroppedDocument(Document):
    """What a condensation took out of the View. ``events`` are ids, and ``tokens`` is an estimate.
    ``terms`` are the terms that no event in the View contains afterwards.
    """

    condensation: int
    events: tuple[int, ...]
    tokens: int
    terms: tuple[DroppedTermDocument, ...]


class NeededDocument(Document):
    """The dropped content that the agent needed again after a condensation. ``events`` and
    ``tokens`` count everything that left the View, and ``dropped`` is the number of dropped terms.
    ``terms`` are the dropped terms that the agent wrote again, in the order of writing.
    """

    condensation: int
    events: int
    tokens: int
    dropped: int
    terms: tuple[DroppedTermDocument, ...]


class NeededListDocument(OfConversation):
    """The answer of ``/api/dropped``: the terms that were needed again, for each of the newest 50
    condensations. The oldest condensation comes first.
    """

    condensations: tuple[NeededDocument, ...]


class FactDocument(Document):
    """Whether an agent knows some words, and from which events. See ``foldlog.Fact``."""

    words: str
    is_known: bool
    known_by: tuple[int, ...]
    events: tuple[int, ...]
    others: tuple[int, ...]
    unknown_from: int | None
    by: int | None
    reason: str


class WhyDocument(OfConversation):
    """The output of ``foldlog why``: the ``fate`` of an event in a View, and the event that hid it
    (``by``). ``dropped`` are the terms that were lost with the event. If the user asked about words
    and not about an event, ``fact`` says whether the agent knows the words, and ``event`` is an
    event that contains them. ``approvals`` are the events that say who was asked and who decided
    about a call. ``compacting`` is the time of a compaction that the program has not written to its
    file yet. Such a compaction does not change the other fields.
    """

    event: int
    version: int
    fate: Fate
    reason: str
    position: int | None
    sent: bool
    by: int | None
    requests: tuple[RequestDocument, ...]
    forgotten_at: int | None
    summary: SummaryDocument | None
    stands_in: SummaryDocument | None
    lines: tuple[SummaryLineDocument, ...]
    dropped: tuple[DroppedTermDocument, ...]
    approvals: tuple[int, ...] = ()
    fact: FactDocument | None = None
    compacting: str | None = None


class HandOverDocument(OfConversation):
    """An agent of a task: what the call that began the agent gave, and what came back.

    ``parent``        the conversation whose call began the agent; null for the asked conversation
    ``call``          the event of the call in ``parent``, or null if no record names it
    ``result``        the event of the result in ``parent``, or null if there is none
    ``reason``        the answer as a sentence for people

    About words:

    ``fact``          whether the agent knows the words; null if it has no event with the words
    ``first``         the first event of the agent with the words
    ``first_at``      the time of this event, or null if it has none
    ``came_from``     the conversation from which the agent has the words: its parent, a sub-agent,
                      or itself
    ``is_given``      whether the call, or a message before the agent's first reply, has the words
    ``is_returned``   whether the result has the words; null without a result
    ``is_concerned``  false if ``reason`` only says that no event has the words

    About a call:

    ``not_given``     the terms that the parent was shown, and that the agent was not given;
                      ``needed_in`` is the event in which the agent wrote the term
    ``not_returned``  the terms of the agent that the parent was not shown with the result;
                      ``needed_in`` is the event in which the parent wrote the term
    """

    parent: str | None = None
    call: int | None = None
    result: int | None = None
    reason: str = ""
    fact: FactDocument | None = None
    first: int | None = None
    first_at: str | None = None
    came_from: str | None = None
    is_given: bool | None = None
    is_returned: bool | None = None
    is_concerned: bool = True
    not_given: tuple[DroppedTermDocument, ...] = ()
    not_returned: tuple[DroppedTermDocument, ...] = ()


class HandOversDocument(OfConversation):
    """The output of ``foldlog why ID ABOUT --with-children`` and the answer of
    ``/api/hand-overs``: the agents of a task, asked ``about`` words or about a call.
    """

    about: str | int
    agents: tuple[HandOverDocument, ...]


class SummarizedDocument(Document):
    """Events that left a View, and the summary that a condensation put in their place."""

    condensation: int
    summary: SummaryDocument
    events: tuple[int, ...]


class DifferenceDocument(OfConversation):
    """The output of ``foldlog diff ID A B``: the events that entered a View and the events that
    left it. ``dropped`` has an entry for each of the newest 50 condensations between the two
    versions.
    """

    before: int
    after: int
    entered: tuple[int, ...]
    left: tuple[int, ...]
    summarized: tuple[SummarizedDocument, ...]
    dropped: tuple[DroppedDocument, ...]


class SpendingDocument(Document):
    """The calls of a condenser's model. ``cost`` is in US dollars, or null if no price is known."""

    models: tuple[str, ...]
    calls: int
    failed: int
    tokens: int
    cost: float | None
    latency_s: float


class SizesDocument(Document):
    """The size of a View before and after a condensation."""

    before: int
    after: int
    counted_as: str | UnsetType | None = UNSET


class CondensedDocument(OfConversation):
    """The output of ``foldlog condense``. If ``outcome`` is ``declined``, only ``problem`` and
    ``model`` are set.
    """

    dry_run: bool
    outcome: str
    model: SpendingDocument
    problem: str | UnsetType = UNSET
    event: int | UnsetType = UNSET
    condenser: Any = UNSET
    reason: Any = UNSET
    forgotten: tuple[tuple[int, int], ...] | UnsetType = UNSET
    forgotten_summaries: tuple[int, ...] | UnsetType = UNSET
    summary: SummaryDocument | UnsetType | None = UNSET
    events: SizesDocument | UnsetType = UNSET
    tokens: SizesDocument | UnsetType | None = UNSET
    metadata: JsonObject | UnsetType = UNSET


class ViewDocument(OfVersion, kw_only=True):
    """The output of ``foldlog view``: the ids of the View, and its events. Each event has the
    ``role`` of its message and a ``state``: "sent" (to the model in full), "masked", "shortened",
    "hidden", "unknown", "pending" or "unsent". ``sent_events`` and ``sent_summaries`` count the
    events and summaries that are sent to the model, and are null if this is unknown. The
    ``damaged`` events are not in the View.
    """

    ids: tuple[int, ...]
    unhandled_condensation_request: bool
    damaged: tuple[UnreadEventDocument, ...] = ()
    sent_events: int | None
    sent_summaries: int | None
    summaries: tuple[SummaryDocument, ...]
    events: tuple[JsonObject, ...]
