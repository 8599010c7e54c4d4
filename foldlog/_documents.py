"""The JSON documents that the command prints for ``--json`` and the server sends below ``/api``.

One word stands for one thing: a conversation is ``conversation``, a length ``version``, an event
``event``. Times are texts in ISO 8601, without a zone where their source names none.
``docs/json-schema.json`` is made of these classes by ``scripts/json-schema``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import UNSET, UnsetType

if TYPE_CHECKING:
    from foldlog.eventstore import ConversationRow


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON document, or a part of one. A field that is unset is left out."""

    @classmethod
    def of(cls, told: object, **others: Any) -> Self:
        """Return the document with its fields of an object, and ``others``."""
        names = (
            name for name in cls.__struct_fields__ if name not in others and hasattr(told, name)
        )
        return cls(**{name: getattr(told, name) for name in names}, **others)


class OfConversation(Document, frozen=True, kw_only=True):
    """What a document of one conversation starts with."""

    conversation: str


class OfVersion(OfConversation, frozen=True, kw_only=True):
    """What a document that tells of all its events starts with: ``version`` is how many they
    are.
    """

    version: int


class ConversationDocument(OfVersion, frozen=True, kw_only=True):
    """A conversation in a list; ``foldlog fork``: the new one. An erased one is a tombstone, whose
    ``version`` is how many events were erased. Fields from ``attributes`` on need its events: the
    list of the server leaves out those that are not counted yet, a short list the figures of the
    View and of calls. ``events`` are those that figures count, without those that an import took
    back. A figure that is not known is null. A fork's are of what it did itself.

    ``archived`` is how many of its events are in an object of an archive.
    ``last_recorded_at`` is when its last event was recorded, ``first_event_at`` and
    ``last_event_at`` when the first and the last one happened, None where an imported event does
    not say. ``state`` is what it ends with: ``error`` or ``result`` of a call, ``open_call``
    without one, ``answer`` of the agent, ``request`` of a user. ``first_error`` is the beginning of
    its text, ``context`` the tokens of the prompts of the agent's calls, of many the highest of
    several each. ``errors`` is None where its source marks none. ``tokens`` are those of the View;
    ``last_prompt_tokens`` those of the prompt of the last call; ``longest_wait_s`` is the longest
    time from one event to the next that a model or a tool made.
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
    attributes: dict[str, Any] | UnsetType | None = UNSET
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

    @classmethod
    def of_row(cls, row: ConversationRow, **more: Any) -> Self:
        """Return the document of a conversation, with fields that need its events, or that stand
        for those without.
        """
        from foldlog._written_files import may_hold  # few documents need the store

        fields = {
            "conversation": row.id,
            "created_at": row.created_at.isoformat(),
            "last_recorded_at": row.updated_at.isoformat(),
            "erased_at": None if row.erased_at is None else row.erased_at.isoformat(),
            "unconfirmed": tuple(name for name in row.unconfirmed if may_hold(name, {row.id})),
        }
        return cls.of(row, **fields | more)


class ListDocument(Document, frozen=True, kw_only=True):
    """``foldlog list``."""

    db: str
    conversations: tuple[ConversationDocument, ...]


class AttentionDocument(Document, frozen=True, kw_only=True):
    """What needs attention, and the command that says more or repairs it."""

    problem: str
    command: str | None = None


class HomeDocument(Document, frozen=True, kw_only=True):
    """``foldlog`` without a command: the store that is here, None without one. ``recent`` are the
    conversations that were active last; ``uncounted`` ones are not in the sums yet.
    """

    db: str | None
    conversations: int = 0
    uncounted: int = 0
    events: int = 0
    errors: int | None = None
    recent: tuple[ConversationDocument, ...] = ()
    attention: tuple[AttentionDocument, ...] = ()


class ServedPageDocument(Document, frozen=True, kw_only=True):
    """``/api/conversations``: a page of the list, the last recorded first. ``counted`` of ``total``
    have figures.
    """

    conversations: tuple[ConversationDocument, ...]
    total: int
    counted: int


class SavingsDocument(Document, frozen=True, kw_only=True):
    """What condensations saved and cost. A declined one is not counted and saves nothing, but may
    cost.

    ``condensations``   how many were made, whether or not they were taken back later
    ``tokens_saved``    the tokens of the Views before them, less those after them; None if they are
                        not known of any
    ``cost``            the sum of the recorded costs; None if no condensation recorded one
    """

    condensations: int = 0
    tokens_saved: int | None = None
    cost: float | None = None


class ReasonDocument(SavingsDocument, frozen=True, kw_only=True):
    """The condensations for one reason."""

    reason: str


class FleetDocument(SavingsDocument, frozen=True, kw_only=True):
    """``/api/fleet``: the figures over all conversations, of which ``counted`` are counted up to
    their last event, but for ``needs_key``, whose keys are not given: no figure has these.
    ``without_usage`` and ``without_cost``: see ``StatsDocument``.
    """

    conversations: int
    counted: int
    needs_key: int
    events: int
    bytes: int | None
    view_tokens: int
    reasons: tuple[ReasonDocument, ...]
    spent: SpentDocument
    without_usage: int
    without_cost: int
    import_command: str


class FacetDocument(Document, frozen=True):
    """How many of the chosen conversations have a name in their figures: a state, a program, a tool
    with errors, a model, or an attribute with its value. ``number`` is the sum of what is counted
    under it.
    """

    what: str
    name: str
    conversations: int
    number: int


class DayDocument(Document, frozen=True):
    """The chosen conversations whose last activity was on a day, their errors, and how many ended
    with one.
    """

    day: str
    conversations: int
    errors: int
    ended_with_error: int


class ChosenDocument(Document, frozen=True, kw_only=True):
    """Sums over the chosen conversations. ``unmarked`` of them are from sources that mark no
    errors. ``models`` are the calls of each model, with an empty ``day``, and ``days`` those of
    each day, with an empty ``model``. ``without_usage`` and ``without_cost``: see
    ``StatsDocument``.
    """

    conversations: int
    unmarked: int
    ended_with_error: int
    with_errors: int
    spent: SpentDocument
    models: tuple[ModelDocument, ...]
    days: tuple[ModelDocument, ...]
    without_usage: int
    without_cost: int


class OverviewDocument(Document, frozen=True, kw_only=True):
    """``/api/overview``: what the search line ``q`` chooses of ``conversations``, of which
    ``counted`` have figures. ``spent`` is by all calls of models, in all of them.
    """

    conversations: int
    counted: int
    spent: SpentDocument
    chosen: ChosenDocument
    facets: tuple[FacetDocument, ...]
    days: tuple[DayDocument, ...]
    import_command: str


class GistsDocument(Document, frozen=True, kw_only=True):
    """``/api/gists``: an event in a line, from the event ``start`` on."""

    start: int
    gists: tuple[str, ...]


class RefusedDocument(Document, frozen=True, kw_only=True):
    """Why a request to the server failed, or why the stream of ``/api/follow`` ends: then with the
    ``status``.
    """

    error: str
    status: int | UnsetType = UNSET


class FollowedDocument(Document, frozen=True, kw_only=True):
    """``/api/follow``: what differs whenever the page of a conversation has to change; of a store,
    its ``version``.
    """

    version: int
    redactions: int | UnsetType = UNSET
    borders: int | UnsetType = UNSET


class FoundDocument(Document, frozen=True, kw_only=True):
    """An event of one conversation that contains all words, with the text around them."""

    event: int
    snippet: str


class FindDocument(Document, frozen=True, kw_only=True):
    """``/api/find``."""

    hits: tuple[FoundDocument, ...]


class HitDocument(OfConversation, frozen=True, kw_only=True):
    """An event that a search found. ``timestamp`` is when it happened, without a zone where its
    source names none; None where the event does not say.
    """

    event: int
    kind: str
    recorded_at: str
    timestamp: str | None
    snippet: str
    highlights: tuple[tuple[int, int], ...]


class HitsDocument(Document, frozen=True, kw_only=True):
    """``foldlog search`` and ``/api/search``. ``more``: whether other events have the words too. Of
    the ``conversations``, ``read`` were read until there were enough hits, or the time was over;
    ``unread`` names those that could not be.
    """

    words: str
    hits: tuple[HitDocument, ...]
    more: bool
    read: int
    conversations: int
    unread: tuple[str, ...]


class HeadDocument(OfVersion, frozen=True, kw_only=True):
    """A head to publish. ``generation``: how many erased conversations had the id before."""

    head: str
    generation: int | UnsetType = UNSET


class HeadsDocument(Document, frozen=True, kw_only=True):
    """``foldlog store verify --print-heads``, of the store with this uuid."""

    store: str
    heads: tuple[HeadDocument, ...]


class AttributesDocument(OfConversation, frozen=True, kw_only=True):
    """``foldlog attributes``."""

    attributes: dict[str, Any]


class DocumentsDocument(OfVersion, frozen=True, kw_only=True):
    """``foldlog show --documents``."""

    documents: dict[str, Any]


class ReportDocument(OfVersion, frozen=True, kw_only=True):
    """``foldlog report``: the file that was written."""

    file: str
    bytes: int


class AppendedDocument(OfVersion, frozen=True, kw_only=True):
    """``foldlog append``: the ids of the new events, and the version with them."""

    events: tuple[int, ...]


class RetractedDocument(OfConversation, frozen=True, kw_only=True):
    """``foldlog retract``: ``event`` is the retraction, ``shown`` how many events the View has
    now.
    """

    event: int
    to: int
    taken_back: int
    shown: int


class ProblemDocument(Document, frozen=True, kw_only=True):
    """A finding in one conversation, or in the database where ``conversation`` is None."""

    conversation: str | None
    problem: str


class BackedUpDocument(Document, frozen=True, kw_only=True):
    """``foldlog store backup``. ``records`` counts those of sources that are no events yet."""

    file: str
    bytes: int
    conversations: int
    events: int
    records: int
    findings: tuple[ProblemDocument, ...]


class CopiedDocument(Document, frozen=True, kw_only=True):
    """``foldlog store copy``. ``grown_since`` names conversations with events that came while the
    copy was made; ``records`` are those that are no events yet.
    """

    conversations: int
    already_there: int
    events: int
    tombstones: int
    records: int
    grown_since: tuple[str, ...]
    findings: tuple[ProblemDocument, ...]


class VacuumDocument(Document, frozen=True, kw_only=True):
    """``foldlog store vacuum``."""

    imports_discarded: int
    bytes_before: int | None
    bytes_after: int | None
    bytes_pending: bool
    space_returned: bool


class SummaryDocument(Document, frozen=True, kw_only=True):
    """A summary in a View. ``position`` is its index there."""

    event: int
    position: int | UnsetType = UNSET
    text: str


class RequestDocument(Document, frozen=True, kw_only=True):
    """A request for a condensation."""

    event: int
    reason: str


class SummaryLineDocument(Document, frozen=True):
    """A line of a digest, and the event that says it."""

    event: int
    line: str


class DroppedTermDocument(Document, frozen=True):
    """A term that no shown event has after a condensation: the last of the dropped events that had
    it, and the first later event in which the agent wrote it again.
    """

    term: str
    event: int
    needed_in: int | None


class DroppedDocument(Document, frozen=True, kw_only=True):
    """What a condensation took out of the View: ``events`` by id, their estimated ``tokens``, and
    terms that no shown event has after it.
    """

    condensation: int
    events: tuple[int, ...]
    tokens: int
    terms: tuple[DroppedTermDocument, ...]


class NeededDocument(Document, frozen=True, kw_only=True):
    """What the agent needed again of what a condensation dropped: ``events`` with ``tokens`` left
    the View, and with them ``dropped`` terms that no shown event had then. ``terms`` are those that
    the agent wrote again, in that order.
    """

    condensation: int
    events: int
    tokens: int
    dropped: int
    terms: tuple[DroppedTermDocument, ...]


class NeededListDocument(OfConversation, frozen=True, kw_only=True):
    """``/api/dropped``: of each of the newest 50 condensations what was needed again, oldest
    first.
    """

    condensations: tuple[NeededDocument, ...]


class NoteDocument(Document, frozen=True, kw_only=True):
    """A note of a reader of the page, beside an event, or beside the conversation where ``event``
    is None. One without a text is a bookmark.
    """

    event: int | None
    text: str
    at: str


class NotesDocument(OfConversation, frozen=True, kw_only=True):
    """``/api/notes``: in the order of events."""

    notes: tuple[NoteDocument, ...]


class EventsDocument(OfConversation, frozen=True, kw_only=True):
    """``/api/events``: events in full from ``start`` on, fewer than were asked for where they are
    long.
    """

    start: int
    events: tuple[dict[str, Any], ...]


class ProgressDocument(OfConversation, frozen=True, kw_only=True):
    """``/api/progress``: how many events of a conversation are ``made`` from the records of its
    source, and once all are, how many are ``read`` for its page.
    """

    step: str
    done: int
    total: int


class FactDocument(Document, frozen=True, kw_only=True):
    """Whether words are known, that is in an event or a summary that a model is sent. See
    ``foldlog.Fact``.
    """

    words: str
    is_known: bool
    known_by: tuple[int, ...]
    events: tuple[int, ...]
    others: tuple[int, ...]
    unknown_from: int | None
    by: int | None
    reason: str


class WhyDocument(OfConversation, frozen=True, kw_only=True):
    """``foldlog why``: the ``fate`` of an event in a View ("shown", "forgotten", "taken back",
    "never shown"), and which event ``by`` hid it. ``dropped`` are its terms that no shown event had
    then. For words, ``fact`` says whether they are known, and the event is one that has them.
    ``compacting`` is when a compaction began that the program has not written yet: the answer is
    from before it.
    """

    event: int
    version: int
    fate: str
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
    fact: FactDocument | None = None
    compacting: str | None = None


class ProgramDocument(Document, frozen=True, kw_only=True):
    """A coding agent, as ``foldlog doctor`` finds it. ``not_here`` are the transcripts that are not
    in the store as they are now; ``soon`` is how many it deletes within a week; ``days_kept`` is
    None where it deletes none. ``problem`` says why its settings cannot be read.
    """

    program: str
    format: str
    problem: str | None
    hook_event: str | None
    hook_fired_at: str | None
    transcripts: int
    not_here: tuple[str, ...]
    days_kept: float | None
    soon: int


class DoctorDocument(Document, frozen=True, kw_only=True):
    """``foldlog doctor``: the coding agents with settings on this machine."""

    programs: tuple[ProgramDocument, ...]


class SecretDocument(OfConversation, frozen=True, kw_only=True):
    """An event that holds secrets, and the kinds of these."""

    event: int
    kinds: tuple[str, ...]


class SecretsDocument(Document, frozen=True, kw_only=True):
    """``foldlog secrets``. ``unread`` names what could not be read."""

    secrets: tuple[SecretDocument, ...]
    unread: tuple[str, ...]


class SummarizedDocument(Document, frozen=True, kw_only=True):
    """Events that left a View, and the summary that a condensation put in their place."""

    condensation: int
    summary: SummaryDocument
    events: tuple[int, ...]


class DifferenceDocument(OfConversation, frozen=True, kw_only=True):
    """``foldlog diff ID A B``: the events that entered a View and left it, and what the
    condensations between dropped.
    """

    before: int
    after: int
    entered: tuple[int, ...]
    left: tuple[int, ...]
    summarized: tuple[SummarizedDocument, ...]
    dropped: tuple[DroppedDocument, ...]


class DivergenceDocument(OfVersion, frozen=True, kw_only=True):
    """``foldlog diff ID OTHER``: where two conversations with a common past diverge. ``runs`` have
    that past too.
    """

    other: str
    other_version: int
    common_past: int
    first_divergent_event: int | None
    event: dict[str, Any] | None
    other_event: dict[str, Any] | None
    runs: tuple[RunDocument, RunDocument]


class LineDocument(Document, frozen=True, kw_only=True):
    """An event in one line."""

    event: int
    kind: str
    gist: str


class RunDocument(OfVersion, frozen=True, kw_only=True):
    """One of two conversations beside each other: ``replies`` of the model, which made these
    ``calls``, of ``tools`` as often as it says; and the last ``answer`` in words to its last
    request, None where it has none.
    """

    requests: int
    replies: int
    calls: int
    errors: int | None
    tools: dict[str, int]
    answer: LineDocument | None
    spent: SpentDocument | None


class KnewDocument(Document, frozen=True, kw_only=True):
    """What a model was shown at this version: events and estimated tokens; ``alone``: what the
    other one was not.
    """

    version: int
    events: int
    summaries: int
    tokens: int
    alone: tuple[LineDocument, ...]


class StepDocument(Document, frozen=True, kw_only=True):
    """A request or a call: its event in each of two conversations, None where it has none."""

    event: int | None
    other_event: int | None
    kind: str
    gist: str


class RunsDocument(Document, frozen=True, kw_only=True):
    """``foldlog diff ID OTHER`` and ``/api/compare``: two conversations that share no past. The
    first ``same_first`` requests and calls say the same, and ``same`` of all, in any order. Of
    ``redacted_first`` of the first ones nothing is known, since they are redacted. ``knew`` is what
    each was shown at the first difference, or at its end where no request and no call differs.
    """

    runs: tuple[RunDocument, RunDocument]
    same_first: int
    redacted_first: int
    same: int
    first_difference: tuple[LineDocument | None, LineDocument | None] | None
    knew: tuple[KnewDocument, KnewDocument]
    steps: tuple[StepDocument, ...]


class RevisionDocument(Document, frozen=True, kw_only=True):
    """A stored revision that differs from the log."""

    version: int
    problem: str


class ViewsDocument(Document, frozen=True, kw_only=True):
    """The stored revisions of a conversation's Views, compared with its log."""

    revisions: int
    missing: int
    findings: tuple[RevisionDocument, ...]


class DamagedDocument(OfConversation, frozen=True, kw_only=True):
    """An event that cannot be read."""

    event: int
    problem: str


class AddedDocument(Document, frozen=True, kw_only=True):
    """``foldlog export --to``: what was added. ``rebuilt``: it was emptied first, since the store
    was restored.
    """

    events: int
    condensations: int
    conversations: int
    damaged: tuple[DamagedDocument, ...] = ()
    rebuilt: bool = False


class SpendingDocument(Document, frozen=True, kw_only=True):
    """The calls of a condenser's model. ``cost`` is in US dollars, None where no price is known."""

    models: tuple[str, ...]
    calls: int
    failed: int
    tokens: int
    cost: float | None
    latency_s: float


class SizesDocument(Document, frozen=True, kw_only=True):
    """The size of a View before and after a condensation."""

    before: int
    after: int
    counted_as: str | UnsetType | None = UNSET


class CondensedDocument(OfConversation, frozen=True, kw_only=True):
    """``foldlog condense``. Where ``outcome`` is ``declined``, only ``problem`` and ``model``
    follow.
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
    metadata: dict[str, Any] | UnsetType = UNSET


class CallDocument(Document, frozen=True):
    """The View at a call of the agent's model, ``before`` this event.

    ``hidden`` counts events of the View that the condenser left out this time. ``repeated`` counts
    the tokens with which the prompt before began as well, so that a provider may have cached them.
    Tokens are None if they could not be counted.
    """

    event_id: int = msgspec.field(name="before")
    events: int
    hidden: int
    tokens: int | None
    repeated: int | None


class MissingDocument(Document, frozen=True):
    """A term in the agent's reply with event ``used`` that its prompt did not show.

    ``occurred`` has the last events in which the term stood before, the newest first, at most
    three. ``named`` says whether a line of a digest in the prompt ends with the id of an event that
    has it, so that it could be recalled.
    """

    term: str
    used: int
    occurred: tuple[int, ...]
    named: bool


class StrategyFiguresDocument(Document, frozen=True, kw_only=True):
    """A strategy over a history. Figures that could not be counted are None, as is a cost without a
    known price. ``events_max`` and ``tokens_max``: above them the ``condenser`` condenses a View;
    ``parameters`` as they were given. What was recorded has none of these.
    """

    strategy: str
    condenser: str | None = None
    events_max: int | None = None
    tokens_max: int | None = None
    parameters: dict[str, Any] = {}
    turns: int
    condensations: int
    declined: int
    view_events_peak: int
    view_events_last: int
    tokens_sent: int | None
    tokens_repeated: int | None
    tokens_new: int | None
    tokens_peak: int | None
    cost: float | None
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
    condensations_per_100_calls: float
    needed_again: int
    missing: tuple[MissingDocument, ...]
    user_messages_lost: tuple[int, ...]
    lost: tuple[int, ...]
    condensed_before: tuple[int, ...]
    calls: tuple[CallDocument, ...]


class CurvePointDocument(Document, frozen=True, kw_only=True):
    """A point of ``foldlog compare --curve``: a strategy of a size, the tokens of its prompts on
    average, and the percentages of the terms and of the facts needed again that these show.
    Recorded condensations have no size.
    """

    strategy: str
    size: int | None
    tokens: int
    terms: float
    facts: float | None


class ComparisonDocument(OfVersion, frozen=True, kw_only=True):
    """``foldlog compare``. Without ``counted_as`` tokens are estimated. ``price``: US dollars for a
    token that is new, and for a repeated one, of ``priced``. ``dropped`` is what the recorded
    condensations dropped.
    """

    counted_as: str | None
    priced: str
    price: tuple[float, float]
    curve: tuple[CurvePointDocument, ...]
    verdict: tuple[str, ...]
    strategies: tuple[StrategyFiguresDocument, ...]
    dropped: tuple[DroppedDocument, ...]


class RestoredDocument(Document, frozen=True, kw_only=True):
    """``foldlog store restore``. ``kept`` is the former file; what was erased or redacted since the
    backup exists again.
    """

    file: str
    kept: str | None
    conversations: int
    events: int
    records: int
    erased_since: tuple[str, ...]
    redacted_since: tuple[str, ...]


class ExportedDocument(OfConversation, frozen=True, kw_only=True):
    """``foldlog export --output``. ``notes`` say what the format has no place for."""

    format: str
    file: str
    records: int
    notes: tuple[str, ...] | UnsetType = UNSET


class ImportedDocument(Document, frozen=True, kw_only=True):
    """The outcome of one source: of its ``records``, ``added`` are new. ``forked_at`` is the first
    record that differs from what was imported before, where the source became a fork now; one that
    is ``older`` adds nothing. Where it ``waits``, its last line is not whole yet. One that was
    ``refused`` has a finding that says why.
    """

    path: str
    conversation: str
    format: str
    added: int
    records: int
    forked_at: int | None
    older: bool
    waits: bool
    refused: bool
    findings: tuple[str, ...]
    findings_count: int
    note: str


class ImportDocument(Document, frozen=True, kw_only=True):
    """``foldlog import``. ``findings`` are the problems that belong to no history."""

    db: str
    imported: tuple[ImportedDocument, ...]
    findings: tuple[str, ...]


class BorderDocument(Document, frozen=True, kw_only=True):
    """Where a fork left its parent: earlier events are shared."""

    parent: str
    parent_version: int


class ColumnsDocument(Document, frozen=True, kw_only=True):
    """The events of a page, a column each: ``docs/PAGE.md`` says what their numbers mean."""

    kind: list[int]
    tokens: list[int]
    time: list[int | None]
    left: list[int]
    by: list[int]
    sent: list[int]
    answers: list[int]


class ToldDocument(Document, frozen=True, kw_only=True):
    """What the metadata of a condensation say, for the table of its page. They may hold
    anything.
    """

    condenser: Any = UNSET
    outcome: Any = UNSET
    model: Any = UNSET
    cost: Any = UNSET
    latency_s: Any = UNSET
    prompt_hash: Any = UNSET
    events_before: Any = UNSET
    events_after: Any = UNSET
    tokens_before: Any = UNSET
    tokens_after: Any = UNSET
    tokens_estimated: Any = UNSET
    events_max: Any = UNSET
    tokens_max: Any = UNSET
    usage: Any = UNSET


class ChangeDocument(ToldDocument, frozen=True, kw_only=True):
    """A condensation, a request or a retraction: ``id`` and ``kind`` of the event, and what it
    says.
    """

    id: int
    kind: str
    reason: str
    version: int | UnsetType = UNSET
    requests: tuple[int, ...] | UnsetType = UNSET
    summary: int | UnsetType | None = UNSET
    tokens_saved: int | UnsetType | None = UNSET


class MaskDocument(Document, frozen=True, kw_only=True):
    """The rule of a mask that a condenser reported ``at`` an event."""

    at: int
    by: Any
    rule: dict[str, Any]


class LivedDocument(Document, frozen=True, kw_only=True):
    """The life of a summary."""

    id: int
    tokens: int
    gist: str
    spans: list[Any]


class HistoryDocument(SavingsDocument, frozen=True, kw_only=True):
    """``/api/history``, and the page that ``foldlog report`` writes. ``events_counted`` are a
    list's ``events``.
    """

    conversation: str
    title: str | None
    attributes: dict[str, Any]
    format: str | None
    version: int
    events_counted: int | None
    since: int
    borders: tuple[BorderDocument, ...]
    redactions: int
    tokens_are: str
    counted_as: str | None
    tokens_estimated: tuple[int, ...]
    limit: int | None
    window: int | None
    prompts: list[tuple[int, int]]
    zone: str
    kinds: tuple[str, ...]
    events: ColumnsDocument
    spans: list[Any]
    summaries: tuple[LivedDocument, ...]
    order: tuple[Any, ...]
    changes: tuple[ChangeDocument, ...]
    masks: tuple[MaskDocument, ...]
    models: tuple[ModelDocument, ...] = ()


class ModelsDocument(OfConversation, frozen=True, kw_only=True):
    """``/api/models``: what was called of each model, those of most tokens first."""

    models: tuple[ModelDocument, ...]


class OpeningDocument(OfConversation, frozen=True, kw_only=True):
    """``/api/opening``: what is shown of a conversation while its page is made. ``row`` has its
    figures as they were counted last; ``newest`` the last events in full, and ``history`` their
    columns. Their ids begin at 0.
    """

    row: ConversationDocument | None
    history: HistoryDocument
    newest: tuple[dict[str, Any], ...]


class ShownDocument(OfConversation, frozen=True, kw_only=True):
    """``foldlog show`` and ``/api/event``: an event as it is stored; for a page without its
    source's record.
    """

    event: dict[str, Any]


class LogDocument(OfVersion, frozen=True, kw_only=True):
    """``foldlog log``: events as they are stored, each with the ``label`` that ``--kind`` chooses
    by, and what of them cannot be read.
    """

    borders: tuple[BorderDocument, ...] | UnsetType = UNSET
    events: tuple[dict[str, Any], ...]
    findings: tuple[str, ...] = ()


class UnreadEventDocument(Document, frozen=True, kw_only=True):
    """An event that cannot be read, and why."""

    event: int
    problem: str


class ViewDocument(OfVersion, frozen=True, kw_only=True):
    """``foldlog view``: the ids of the View, and its events, each with the ``role`` of its message,
    and its ``state``: "sent" to the model whole, "masked", "shortened", "hidden", "unknown",
    "pending" or "unsent". ``sent_events`` and ``sent_summaries`` are those of a list; null where
    what is sent is not known. The View is made without the ``damaged`` events.
    """

    ids: tuple[int, ...]
    unhandled_condensation_request: bool
    damaged: tuple[UnreadEventDocument, ...] = ()
    sent_events: int | None
    sent_summaries: int | None
    summaries: tuple[SummaryDocument, ...]
    events: tuple[dict[str, Any], ...]


class RecordsDocument(OfConversation, frozen=True, kw_only=True):
    """``foldlog export``: the records, as their source wrote them."""

    format: str
    records: tuple[Any, ...]
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] | UnsetType = UNSET


class HolderDocument(Document, frozen=True, kw_only=True):
    """The transaction of a PostgreSQL server that holds followers back."""

    pid: int | None
    application: str | None
    state: str
    age_s: float


class FollowerDocument(Document, frozen=True, kw_only=True):
    """How far a follower is behind."""

    follower: str
    position: str
    events: int
    seconds: float


class FollowersDocument(Document, frozen=True, kw_only=True):
    """``foldlog list --followers``. Positions are texts: they go beyond what a double holds."""

    horizon: str
    horizon_age: int
    last_position: str
    held_back: int
    held_by: HolderDocument | None
    synchronous_commit: str
    synchronous_standby_names: str
    followers: tuple[FollowerDocument, ...]


class UnfinishedDocument(Document, frozen=True, kw_only=True):
    """A command that began an operation and did not finish it: run it again."""

    outcome: str
    problem: str


class LossDocument(Document, frozen=True, kw_only=True):
    """Events that are lost or wrong, from the event ``first`` to ``last``."""

    first: int
    last: int
    problem: str


class VerdictDocument(Document, frozen=True, kw_only=True):
    """A conversation that was verified. ``status`` is sound, damaged, unchecked (a key is not
    given) or erased. ``views`` is there with ``--views``.
    """

    conversation: str | None
    version: int
    head: str | None
    status: str
    findings: tuple[LossDocument, ...]
    generation: int | UnsetType = UNSET
    erased_at: str | UnsetType = UNSET
    erased_reason: str | UnsetType | None = UNSET
    views: ViewsDocument | UnsetType = UNSET


class CheckedDocument(Document, frozen=True, kw_only=True):
    """How much was verified."""

    conversations: int
    events: int
    erased: int


class VerifiedDocument(Document, frozen=True, kw_only=True):
    """``foldlog store verify``. ``database`` are the findings that belong to no conversation."""

    db: str
    conversations: tuple[VerdictDocument, ...]
    checked: CheckedDocument
    unchecked: int
    database: tuple[str, ...]
    sound: bool


class QuoteDocument(OfConversation, frozen=True, kw_only=True):
    """A condensation whose summary may quote a redacted event."""

    event: int
    redacted: bool


class ErasedDocument(Document, frozen=True, kw_only=True):
    """``foldlog store erase``: the tombstones, or with ``--dry-run`` what would be erased; and what
    stays, and why.

    ``holders`` names what may still hold the content, as far as the store knows.
    """

    conversations: tuple[ConversationDocument, ...]
    events: int
    stay: tuple[ProblemDocument, ...]
    holders: tuple[str, ...]


class ArchivedConversationDocument(OfConversation, frozen=True, kw_only=True):
    """A conversation that was archived: how many of its events are in an object of how many
    bytes.
    """

    events: int
    bytes: int


class ArchivedDocument(Document, frozen=True, kw_only=True):
    """``foldlog store archive``: what was archived, and what stays, and why."""

    conversations: tuple[ArchivedConversationDocument, ...]
    stay: tuple[ProblemDocument, ...]


class MatchDocument(OfConversation, frozen=True, kw_only=True):
    """Events of a conversation that ``foldlog store redact`` found, and, if asked for, the
    summaries that go too.
    """

    event_ids: tuple[int, ...]


class RedactionsDocument(Document, frozen=True, kw_only=True):
    """``foldlog store redact``: the events that were found, the conversations whose sources hold
    the text ``beside`` their records, the receipts, and what stays, and why.

    ``holders`` names what may still hold the content, as far as the store knows; ``searched`` and
    ``not_searched`` say what a text was searched in, and what it was not searched in.
    """

    found: tuple[MatchDocument, ...]
    beside: tuple[str, ...]
    receipts: tuple[RedactedDocument, ...]
    stay: tuple[ProblemDocument, ...]
    holders: tuple[str, ...]
    searched: str
    not_searched: str


class RedactedDocument(OfConversation, frozen=True, kw_only=True):
    """The receipt of a redaction. ``documents_lost``: those whose newest values went;
    ``attributes`` is one.
    """

    event_ids: tuple[int, ...]
    hashes: tuple[str, ...]
    at: str
    by: str
    reason: str
    position: int | None
    documents_lost: tuple[str, ...]
    quotes: tuple[QuoteDocument, ...]
    forks: tuple[str, ...]
    unconfirmed: tuple[str, ...]
    bytes_pending: bool


class RekeyedDocument(OfConversation, frozen=True, kw_only=True):
    """One conversation: whether its data key changed, how many rows did, and which were damaged and
    left.
    """

    key: bool
    rows: int
    damaged: tuple[int, ...]
    problem: str | None


class RekeyDocument(Document, frozen=True, kw_only=True):
    """``foldlog store rekey``."""

    db: str
    conversations: tuple[RekeyedDocument, ...]
    bytes_pending: bool


class ToolDocument(Document, frozen=True, kw_only=True):
    """Calls of one tool, and how many observations of it are errors; None where no source says
    which are.
    """

    calls: int = 0
    errors: int | None = 0


class SpentDocument(Document, frozen=True, kw_only=True):
    """What calls of models used and cost. Tokens that no call tells are None, and a cost that is
    not known. ``condenser_calls`` of the calls are those of condensers, the others the agent's.
    ``costs_estimated`` of them told their tokens only, and a table has the prices.
    """

    calls: int = 0
    condenser_calls: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None
    costs_estimated: int = 0

    @property
    def tokens(self) -> int | None:
        known = [
            tokens for tokens in (self.prompt_tokens, self.completion_tokens) if tokens is not None
        ]
        return sum(known) if known else None


class ModelDocument(SpentDocument, frozen=True, kw_only=True):
    """Calls of one model on one ``day``, in UTC; on a page of all days, with ``day`` empty.
    ``cached_tokens`` and ``cache_write_tokens`` are part of ``prompt_tokens``,
    ``cache_write_1h_tokens`` of ``cache_write_tokens``, ``reasoning_tokens`` of
    ``completion_tokens``.
    """

    day: str
    model: str
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    reasoning_tokens: int | None = None


class CondensationsDocument(Document, frozen=True, kw_only=True):
    """Condensations by one strategy. Summaries that were forgotten are not counted as events. At
    ``failed`` steps a model failed, and nothing was forgotten. What was forgotten is None if it is
    not known of any, as of imports that were not used yet.

    ``tokens_saved``: the tokens of the View before each of them less those after it, estimated
    event by event; None if they are not known of any. ``cost`` is None if no condensation recorded
    one.
    """

    made: int = 0
    declined: int = 0
    failed: int = 0
    events_forgotten: int | None = 0
    summaries_forgotten: int | None = 0
    tokens_saved: int | None = None
    cost: float | None = None


class StatsDocument(Document, frozen=True, kw_only=True):
    """``foldlog stats``, of one ``conversation`` or of several. ``events`` by kind, and their
    ``total``. A total is the sum of what is known: of the ``conversations``, ``unmarked`` mark no
    errors, ``without_usage`` have no call with its tokens, and ``without_cost`` calls of models
    without a price, the ``unpriced``. Of one conversation, ``peak_prompt_tokens`` are those of the
    largest prompt, and ``max_input_tokens`` what its model takes.
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
    max_input_tokens: int | None
    findings: tuple[str, ...]


class GroupedDocument(Document, frozen=True, kw_only=True):
    """``foldlog stats --by``: calls of models with an empty ``day`` or ``model``, or the calls of
    tools. The other fields: see ``StatsDocument``.
    """

    by: str
    conversations: int
    without_usage: int
    without_cost: int
    models: tuple[ModelDocument, ...] = ()
    tools: dict[str, ToolDocument] = {}


def streamed(items: Iterable[Any]) -> Any:
    """Return the value of a field of any length, for ``terminal.emit_list``."""
    return iter(items)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of all documents, by the names of their classes."""
    kinds = [kind for name, kind in globals().items() if name.endswith("Document")]
    _, components = msgspec.json.schema_components(kinds[1:], ref_template="#/$defs/{name}")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": components}
