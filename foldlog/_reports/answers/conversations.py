"""Answers about lists of conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from msgspec import UNSET, UnsetType

from foldlog._base.json_types import JsonObject
from foldlog._reports.answers.document import Document, OfVersion
from foldlog._reports.answers.figures import (
    BehindDocument,
    ModelDocument,
    SpentDocument,
    TaskDocument,
)

if TYPE_CHECKING:
    from foldlog.eventstore import ConversationRow


class ConversationDocument(OfVersion):
    """A conversation in a list. For ``foldlog fork``, the document is about the new conversation.

    An erased conversation is a tombstone, and its ``version`` is the number of erased events. The
    field ``attributes`` and all fields after it are computed from the events of the conversation.
    The server leaves these fields out until the events are counted. A short list leaves out the
    figures about the View and about calls. An unknown figure is null. The figures of a fork count
    only the fork's own events.

    ``events``              the number of events, without events that an import took back
    ``archived``            the number of events that are in an archive
    ``last_recorded_at``    the time when the last event was recorded
    ``first_event_at``, ``last_event_at``  the times when the first and the last event happened;
                            null if an imported event has no time
    ``state``               what happened last: ``error`` or ``result`` (a call failed or returned),
                            ``refused`` (a person refused a call), ``open_call`` (a call has no
                            result yet), ``answer`` (the agent wrote) or ``request`` (a user wrote)
    ``first_error``         the beginning of the text of the first error
    ``context``             the tokens of the agent's prompts, in order; if there are many, each
                            number is the largest of several consecutive prompts
    ``errors``              the number of errors; null if the source does not mark errors
    ``tokens``              the tokens of the View
    ``last_prompt_tokens``  the tokens of the prompt of the last call
    ``longest_wait_s``      the longest time in seconds that a model or a tool took
    ``task``                the conversation with its sub-agents, if it has any
    """

    created_at: str
    last_recorded_at: str
    head: str | None = None
    erased_at: str | None = None
    erased_reason: str | None = None
    bytes_pending: bool = False
    archived: int = 0
    unconfirmed: tuple[str, ...] = ()
    parent: str | None = None
    parent_version: int | None = None
    attributes: JsonObject | UnsetType | None = UNSET
    title: str | UnsetType | None = UNSET
    format: str | UnsetType | None = UNSET
    events: int | UnsetType | None = UNSET
    sent_events: int | UnsetType | None = UNSET
    sent_summaries: int | UnsetType | None = UNSET
    tokens: int | UnsetType | None = UNSET
    condensations: int | UnsetType | None = UNSET
    last_event_at: str | UnsetType | None = UNSET
    problem: str | UnsetType | None = UNSET
    needs_key: bool | UnsetType = UNSET
    errors: int | UnsetType | None = UNSET
    last_prompt_tokens: int | UnsetType | None = UNSET
    longest_wait_s: float | UnsetType | None = UNSET
    tokens_saved: int | UnsetType | None = UNSET
    state: str | UnsetType | None = UNSET
    first_error: str | UnsetType | None = UNSET
    first_event_at: str | UnsetType | None = UNSET
    context: tuple[int, ...] | UnsetType = UNSET
    spent: SpentDocument | UnsetType | None = UNSET
    task: TaskDocument | UnsetType = UNSET

    @classmethod
    def of_row(cls, row: ConversationRow, **more: Any) -> Self:
        """Return the document of a conversation. ``more`` are the fields that are computed from the
        conversation's events.
        """
        unconfirmed = row.unconfirmed
        if unconfirmed:
            from foldlog.eventstore.files.written_files import (
                may_hold,  # Few documents need the store.
            )

            unconfirmed = tuple(name for name in unconfirmed if may_hold(name, {row.id}))
        # A list makes a document of each conversation, so each field is set here by its name.
        return cls(
            conversation=row.id,
            version=row.version,
            created_at=row.created_at.isoformat(),
            last_recorded_at=row.updated_at.isoformat(),
            head=row.head,
            erased_at=None if row.erased_at is None else row.erased_at.isoformat(),
            erased_reason=row.erased_reason,
            bytes_pending=row.bytes_pending,
            archived=row.archived,
            unconfirmed=unconfirmed,
            parent=row.parent,
            parent_version=row.parent_version,
            **more,
        )


class ListDocument(Document):
    """The output of ``foldlog list``. ``behind`` says what the figures of the list lack, and is
    left out if they lack nothing.
    """

    db: str
    conversations: tuple[ConversationDocument, ...]
    behind: BehindDocument | UnsetType = UNSET


class AttentionDocument(Document):
    """A problem that needs attention, and the command that describes or repairs it."""

    problem: str
    command: str | None = None


class HomeDocument(Document):
    """The output of ``foldlog`` without a command. ``db`` is null if there is no store.
    ``recent`` are the conversations that were active last. ``uncounted`` is the number of
    conversations that are not in the sums yet. ``behind`` says what the sums lack, and is left out
    if they lack nothing.
    """

    db: str | None
    conversations: int = 0
    uncounted: int = 0
    events: int = 0
    errors: int | None = None
    recent: tuple[ConversationDocument, ...] = ()
    attention: tuple[AttentionDocument, ...] = ()
    behind: BehindDocument | UnsetType = UNSET


class ServedPageDocument(Document):
    """The answer of ``/api/conversations``: a page of the list. The conversation with the newest
    event comes first. ``total`` is the number of conversations, and ``counted`` is the number of
    conversations with figures. ``behind`` says what the figures lack, and is left out if they lack
    nothing. ``is_partial`` is true if the search for words did not read all conversations, and is
    left out otherwise.
    """

    conversations: tuple[ConversationDocument, ...]
    total: int
    counted: int
    behind: BehindDocument | UnsetType = UNSET
    is_partial: bool | UnsetType = UNSET


class FacetDocument(Document):
    """A value by which the list can be filtered: a state, a program, a tool, a model or an
    attribute. ``conversations`` is the number of chosen conversations with the value. ``number``
    counts the occurrences of the value: for a tool, its calls.
    """

    what: str
    name: str
    conversations: int
    number: int


class DayDocument(Document):
    """The number of chosen conversations whose last activity was on ``day``."""

    day: str
    conversations: int
    errors: int
    ended_with_error: int


class ChosenDocument(Document):
    """The sums over the chosen conversations. ``unmarked`` is the number of conversations whose
    sources do not mark errors. ``models`` has an entry for each model, with an empty ``day``.
    ``days`` has an entry for each day, with an empty ``model``. ``StatsDocument`` describes
    ``without_usage`` and ``without_cost``.
    """

    conversations: int
    unmarked: int
    ended_with_error: int
    with_errors: int
    with_notes: int
    spent: SpentDocument
    models: tuple[ModelDocument, ...]
    days: tuple[ModelDocument, ...]
    without_usage: int
    without_cost: int


class OverviewDocument(Document):
    """The answer of ``/api/overview``: the conversations that the search line ``q`` chooses among
    all ``conversations``. ``counted`` is the number of chosen conversations with figures. ``spent``
    is the usage and cost of all model calls in all conversations. ``behind`` says what the figures
    lack, and is left out if they lack nothing. ``is_partial`` is true if the search for words did
    not read all conversations, and is left out otherwise.
    """

    conversations: int
    counted: int
    spent: SpentDocument
    chosen: ChosenDocument
    facets: tuple[FacetDocument, ...]
    days: tuple[DayDocument, ...]
    import_command: str
    behind: BehindDocument | UnsetType = UNSET
    is_partial: bool | UnsetType = UNSET


class ContinuationDocument(OfVersion):
    """The output of ``foldlog continue``. The fork of ``conversation`` at ``version`` has the id
    ``session``, and so has the session in ``file``. ``command`` resumes the session. ``left_out``
    counts the content that was left out, by its kind. ``tokens`` is an estimate.
    """

    session: str
    program: str
    file: str
    command: str
    records: int
    tokens: int
    left_out: dict[str, int]
    warnings: tuple[str, ...] = ()
