"""The JSON documents that the command prints for ``--json``, and that the server sends below
``/api``.

A field with the same meaning has the same name in all documents, such as ``conversation``,
``version`` and ``event``. Times are texts in ISO 8601. A time has no zone if its source names no
zone. ``scripts/json-schema`` writes ``docs/json-schema.json`` from these classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import UNSET, UnsetType

if TYPE_CHECKING:
    from foldlog.eventstore import ConversationRow


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON document, or a part of a document. Unset fields are left out."""

    @classmethod
    def of(cls, source: object, **others: Any) -> Self:
        """Return a document whose fields come from ``others``, or else from the attributes of
        ``source``.
        """
        if isinstance(source, tuple | msgspec.Struct):
            names = _shared_names(cls, type(source))
        else:
            names = _names_in(cls, source)
        values = {name: getattr(source, name) for name in names if name not in others}
        return cls(**values, **others)


def _names_in(document: type[Document], source: object) -> Sequence[str]:
    return [name for name in document.__struct_fields__ if hasattr(source, name)]


# A list makes a document of each row. Every struct and named tuple of a class has the same names.
_shared_names = cache(_names_in)


class OfConversation(Document, frozen=True, kw_only=True):
    """The base class of a document about a conversation."""

    conversation: str


class OfVersion(OfConversation, frozen=True, kw_only=True):
    """The base class of a document about all events of a conversation. ``version`` is the number of
    events.
    """

    version: int


class ConversationDocument(OfVersion, frozen=True, kw_only=True):
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
                            ``open_call`` (a call has no result yet), ``answer`` (the agent wrote)
                            or ``request`` (a user wrote)
    ``first_error``         the beginning of the text of the first error
    ``context``             the tokens of the agent's prompts, in order; if there are many, each
                            number is the largest of several consecutive prompts
    ``errors``              the number of errors; null if the source does not mark errors
    ``tokens``              the tokens of the View
    ``last_prompt_tokens``  the tokens of the prompt of the last call
    ``longest_wait_s``      the longest time in seconds that a model or a tool took
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
        """Return the document of a conversation. ``more`` are the fields that are computed from the
        conversation's events.
        """
        from foldlog._written_files import may_hold  # Few documents need the store.

        fields = {
            "conversation": row.id,
            "created_at": row.created_at.isoformat(),
            "last_recorded_at": row.updated_at.isoformat(),
            "erased_at": None if row.erased_at is None else row.erased_at.isoformat(),
            "unconfirmed": tuple(name for name in row.unconfirmed if may_hold(name, {row.id})),
        }
        return cls.of(row, **fields | more)


class ListDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog list``."""

    db: str
    conversations: tuple[ConversationDocument, ...]


class AttentionDocument(Document, frozen=True, kw_only=True):
    """A problem that needs attention, and the command that describes or repairs it."""

    problem: str
    command: str | None = None


class HomeDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog`` without a command. ``db`` is null if this folder has no store.
    ``recent`` are the conversations that were active last. ``uncounted`` is the number of
    conversations that are not in the sums yet.
    """

    db: str | None
    conversations: int = 0
    uncounted: int = 0
    events: int = 0
    errors: int | None = None
    recent: tuple[ConversationDocument, ...] = ()
    attention: tuple[AttentionDocument, ...] = ()


class ServedPageDocument(Document, frozen=True, kw_only=True):
    """The answer of ``/api/conversations``: a page of the list. The conversation with the newest
    event comes first. ``total`` is the number of conversations, and ``counted`` is the number of
    conversations with figures.
    """

    conversations: tuple[ConversationDocument, ...]
    total: int
    counted: int


class SavingsDocument(Document, frozen=True, kw_only=True):
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


class ReasonDocument(SavingsDocument, frozen=True, kw_only=True):
    """The condensations that have the same reason."""

    reason: str


class FleetDocument(SavingsDocument, frozen=True, kw_only=True):
    """The answer of ``/api/fleet``: the figures of all conversations. ``counted`` is the number of
    conversations with up-to-date figures. ``needs_key`` is the number of conversations without
    figures, because their keys are missing. ``StatsDocument`` describes ``without_usage`` and
    ``without_cost``.
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
    """A value by which the list can be filtered: a state, a program, a tool, a model or an
    attribute. ``conversations`` is the number of chosen conversations with the value. ``number``
    counts the occurrences of the value: for a tool, its calls.
    """

    what: str
    name: str
    conversations: int
    number: int


class DayDocument(Document, frozen=True):
    """The number of chosen conversations whose last activity was on ``day``."""

    day: str
    conversations: int
    errors: int
    ended_with_error: int


class ChosenDocument(Document, frozen=True, kw_only=True):
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


class OverviewDocument(Document, frozen=True, kw_only=True):
    """The answer of ``/api/overview``: the conversations that the search line ``q`` chooses among
    all ``conversations``. ``counted`` is the number of chosen conversations with figures. ``spent``
    is the usage and cost of all model calls in all conversations.
    """

    conversations: int
    counted: int
    spent: SpentDocument
    chosen: ChosenDocument
    facets: tuple[FacetDocument, ...]
    days: tuple[DayDocument, ...]
    import_command: str


class RefusedDocument(Document, frozen=True, kw_only=True):
    """The reason why a request to the server failed. In ``/api/follow``, the document says why the
    stream ends.
    """

    error: str
    status: int | UnsetType = UNSET


class FollowedDocument(Document, frozen=True, kw_only=True):
    """The answer of ``/api/follow``: a value that changes whenever the page of a conversation must
    be loaded again. For a whole store, only ``version`` is set.
    """

    version: int
    redactions: int | UnsetType = UNSET
    borders: int | UnsetType = UNSET


class FoundDocument(Document, frozen=True, kw_only=True):
    """An event that contains all searched words, and the text around these words."""

    event: int
    snippet: str


class FindDocument(Document, frozen=True, kw_only=True):
    """The answer of ``/api/find``."""

    hits: tuple[FoundDocument, ...]


class HitDocument(OfConversation, frozen=True, kw_only=True):
    """An event that a search found. ``timestamp`` is the time when the event happened, or null if
    it is unknown. If the source names no time zone, ``timestamp`` has none.
    """

    event: int
    kind: str
    recorded_at: str
    timestamp: str | None
    snippet: str
    highlights: tuple[tuple[int, int], ...]


class HitsDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog search`` and the answer of ``/api/search``. ``more`` is true if
    further events contain the words. ``read`` is the number of searched conversations, and
    ``conversations`` is the number of all conversations. A search ends early if it has found
    enough, or if it runs out of time. ``unread`` are the problems of conversations that could not
    be read.
    """

    words: str
    hits: tuple[HitDocument, ...]
    more: bool
    read: int
    conversations: int
    unread: tuple[str, ...]


class HeadDocument(OfVersion, frozen=True, kw_only=True):
    """A head to publish. ``generation`` is the number of erased conversations that had the same id
    before.
    """

    head: str
    generation: int | UnsetType = UNSET


class HeadsDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog store verify --print-heads``. ``store`` is the uuid of the store."""

    store: str
    heads: tuple[HeadDocument, ...]


class AttributesDocument(OfConversation, frozen=True, kw_only=True):
    """The output of ``foldlog attributes``."""

    attributes: dict[str, Any]


class DocumentsDocument(OfVersion, frozen=True, kw_only=True):
    """The output of ``foldlog show --documents``."""

    documents: dict[str, Any]


class ReportDocument(OfVersion, frozen=True, kw_only=True):
    """The output of ``foldlog report``: the file that was written."""

    file: str
    bytes: int


class AppendedDocument(OfVersion, frozen=True, kw_only=True):
    """The output of ``foldlog append``: the ids of the new events, and the version after the
    append.
    """

    events: tuple[int, ...]


class RetractedDocument(OfConversation, frozen=True, kw_only=True):
    """The output of ``foldlog retract``. ``event`` is the id of the retraction. ``shown`` is the
    number of events in the View after the retraction.
    """

    event: int
    to: int
    taken_back: int
    shown: int


class ProblemDocument(Document, frozen=True, kw_only=True):
    """A finding in a conversation, or in the database if ``conversation`` is null."""

    conversation: str | None
    problem: str


class BackedUpDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog store backup``. ``records`` is the number of source records whose
    events are not made yet.
    """

    file: str
    bytes: int
    conversations: int
    events: int
    records: int
    findings: tuple[ProblemDocument, ...]


class CopiedDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog store copy``. ``grown_since`` lists the conversations to which events
    were appended while the copy was made. ``records`` is the number of records whose events are not
    made yet.
    """

    conversations: int
    already_there: int
    events: int
    tombstones: int
    records: int
    grown_since: tuple[str, ...]
    findings: tuple[ProblemDocument, ...]


class VacuumDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog store vacuum``."""

    imports_discarded: int
    bytes_before: int | None
    bytes_after: int | None
    bytes_pending: bool
    space_returned: bool


class StoreInfoDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog store info``.

    ``database``            ``sqlite``, ``postgresql`` or ``memory``
    ``schema``, ``made_by``  the number of the stored form, and the version of foldlog that made the
                            store
    ``bytes``               the size on disk; null if it is unknown
    ``forks``, ``archived``  how many of the ``conversations`` are forks or archived
    ``erased``              tombstones, which ``conversations`` does not contain
    ``events``, ``archived_events``  the events in the store, and the events in archives
    ``records``, ``records_pending``  the records of the ``sources`` (imported histories), and the
                            records that have no events yet
    ``refused``             records and sources that imports refuse after a redaction or erasure
    ``keys``                the encryption keys in use, with the numbers of their conversations
    ``bytes_pending``       whether erased bytes may still be in the files
    ``unfinished``          the names of interrupted operations, with their numbers
    """

    db: str
    database: str
    schema: int
    made_by: str
    uuid: str
    bytes: int | None
    conversations: int
    forks: int
    erased: int
    archived: int
    archived_events: int
    events: int
    document_changes: int
    sources: int
    records: int
    records_pending: int
    attachments: int
    refused: int
    keys: dict[str, int]
    bytes_pending: bool
    unfinished: dict[str, int]


class SummaryDocument(Document, frozen=True, kw_only=True):
    """A summary in a View. ``position`` is the index of the summary in the View."""

    event: int
    position: int | UnsetType = UNSET
    text: str


class RequestDocument(Document, frozen=True, kw_only=True):
    """A request for a condensation."""

    event: int
    reason: str


class SummaryLineDocument(Document, frozen=True):
    """A line of a digest, and the event that it describes."""

    event: int
    line: str


class DroppedTermDocument(Document, frozen=True):
    """A term that a condensation dropped. ``event`` is the last dropped event with the term, and
    ``needed_in`` is the event in which the agent wrote the term again.
    """

    term: str
    event: int
    needed_in: int | None


class DroppedDocument(Document, frozen=True, kw_only=True):
    """What a condensation took out of the View. ``events`` are ids, and ``tokens`` is an estimate.
    ``terms`` are the terms that no event in the View contains afterwards.
    """

    condensation: int
    events: tuple[int, ...]
    tokens: int
    terms: tuple[DroppedTermDocument, ...]


class NeededDocument(Document, frozen=True, kw_only=True):
    """The dropped content that the agent needed again after a condensation. ``events`` and
    ``tokens`` count everything that left the View, and ``dropped`` is the number of dropped terms.
    ``terms`` are the dropped terms that the agent wrote again, in the order of writing.
    """

    condensation: int
    events: int
    tokens: int
    dropped: int
    terms: tuple[DroppedTermDocument, ...]


class NeededListDocument(OfConversation, frozen=True, kw_only=True):
    """The answer of ``/api/dropped``: the terms that were needed again, for each of the newest 50
    condensations. The oldest condensation comes first.
    """

    condensations: tuple[NeededDocument, ...]


class NoteDocument(Document, frozen=True, kw_only=True):
    """A note that a user of the page wrote about an event. If ``event`` is null, the note is about
    the conversation. A note without a text is a bookmark.
    """

    event: int | None
    text: str
    at: str


class NotesDocument(OfConversation, frozen=True, kw_only=True):
    """The answer of ``/api/notes``: the notes of a conversation in the order of events."""

    notes: tuple[NoteDocument, ...]


class EventsDocument(OfConversation, frozen=True, kw_only=True):
    """The answer of ``/api/events``: full events from ``start`` on. If the events are long, the
    document has fewer events than requested.
    """

    start: int
    events: tuple[dict[str, Any], ...]


class ProgressDocument(OfConversation, frozen=True, kw_only=True):
    """The answer of ``/api/progress``: ``done`` of the ``total`` events are ready. In the step
    "made", events are made from the records of the source. In the step "read", events are read for
    the page.
    """

    step: str
    done: int
    total: int


class FactDocument(Document, frozen=True, kw_only=True):
    """Whether an agent knows some words, and from which events. See ``foldlog.Fact``."""

    words: str
    is_known: bool
    known_by: tuple[int, ...]
    events: tuple[int, ...]
    others: tuple[int, ...]
    unknown_from: int | None
    by: int | None
    reason: str


class WhyDocument(OfConversation, frozen=True, kw_only=True):
    """The output of ``foldlog why``: the ``fate`` of an event in a View, and the event that hid it
    (``by``). The fate is "shown", "forgotten", "taken back" or "never shown". ``dropped`` are the
    terms that were lost with the event. If the user asked about words and not about an event,
    ``fact`` says whether the agent knows the words, and ``event`` is an event that contains them.
    ``compacting`` is the time of a compaction that the program has not written to its file yet.
    Such a compaction does not change the other fields.
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
    """A coding agent that ``foldlog doctor`` finds. ``not_here`` are the transcripts that are new
    or have changed since their last import. ``soon`` is the number of transcripts that the program
    deletes within a week. ``days_kept`` is the number of days after which the program deletes a
    transcript, or null if it deletes none. ``is_set_up`` says whether ``foldlog setup`` has written
    the hooks. ``problem`` is the reason why the settings of the
    program cannot be read.
    """

    program: str
    format: str
    problem: str | None
    is_set_up: bool
    hook_event: str | None
    hook_fired_at: str | None
    transcripts: int
    not_here: tuple[str, ...]
    days_kept: float | None
    soon: int


class DoctorDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog doctor``: the coding agents with settings on this machine."""

    programs: tuple[ProgramDocument, ...]


class SecretDocument(OfConversation, frozen=True, kw_only=True):
    """An event that contains secrets, and the kinds of these secrets."""

    event: int
    kinds: tuple[str, ...]


class SecretsDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog secrets``. ``unread`` are the problems of conversations that could
    not be read.
    """

    secrets: tuple[SecretDocument, ...]
    unread: tuple[str, ...]


class SummarizedDocument(Document, frozen=True, kw_only=True):
    """Events that left a View, and the summary that a condensation put in their place."""

    condensation: int
    summary: SummaryDocument
    events: tuple[int, ...]


class DifferenceDocument(OfConversation, frozen=True, kw_only=True):
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


class DivergenceDocument(OfVersion, frozen=True, kw_only=True):
    """The output of ``foldlog diff ID OTHER``: where two conversations with shared events diverge.
    ``runs`` include the shared events.
    """

    other: str
    other_version: int
    common_past: int
    first_divergent_event: int | None
    event: dict[str, Any] | None
    other_event: dict[str, Any] | None
    runs: tuple[RunDocument, RunDocument]


class LineDocument(Document, frozen=True, kw_only=True):
    """An event as a single line."""

    event: int
    kind: str
    gist: str


class RunDocument(OfVersion, frozen=True, kw_only=True):
    """A run in a comparison of two runs. The numbers of a fork do not count the events that it
    shares with its parent. ``replies`` is the number of the model's replies.
    ``calls`` is the number of tool calls, and ``tools`` maps each tool to its number of calls.
    ``answer`` is the answer to the last request, or null if it has no answer.
    """

    requests: int
    replies: int
    calls: int
    errors: int | None
    tools: dict[str, int]
    answer: LineDocument | None
    spent: SpentDocument | None


class KnewDocument(Document, frozen=True, kw_only=True):
    """What the model of one run was shown at ``version``. ``events`` and ``summaries`` are numbers,
    and ``tokens`` is an estimate. ``alone`` lists the events that the model of this run saw, and
    the model of the other run did not.
    """

    version: int
    events: int
    summaries: int
    tokens: int
    alone: tuple[LineDocument, ...]


class StepDocument(Document, frozen=True, kw_only=True):
    """A request or a call, and its events in two conversations. An event is null if the
    conversation does not have the request or call.
    """

    event: int | None
    other_event: int | None
    kind: str
    gist: str


class PassageDocument(Document, frozen=True, kw_only=True):
    """A passage in which two texts differ: the differing words of each text, and the equal words
    before and after them.
    """

    before: str
    words: str
    other_words: str
    after: str


class DifferingDocument(Document, frozen=True, kw_only=True):
    """A pair of events, one from each run, with different texts. An event is null if its run has no
    such event. ``passages`` are the first differences, and ``more`` is the number of further
    differences. ``lines`` is the number of lines of each text, and ``lines_apart`` is the number of
    lines of each text that the other text does not have.
    """

    events: tuple[LineDocument | None, LineDocument | None]
    passages: tuple[PassageDocument, ...] = ()
    more: int = 0
    lines: tuple[int, int] = (0, 0)
    lines_apart: tuple[int, int] = (0, 0)


class RunsDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog diff ID OTHER`` and the answer of ``/api/compare``: two conversations
    without a common past. ``system_prompts`` is null if the first system prompts are equal. A step
    is a request or a call. If a run has no calls, the messages of the agents are steps too.
    ``same_first`` is the number of equal steps at the beginning, and ``same`` is the number of
    equal steps in any order. ``redacted_first`` is the number of steps at the beginning that are
    redacted, and so cannot be compared. ``knew`` describes what each agent was shown at the first
    step that differs, or at the end if all steps are equal.
    """

    runs: tuple[RunDocument, RunDocument]
    same_first: int
    redacted_first: int
    same: int
    system_prompts: DifferingDocument | None
    first_difference: DifferingDocument | None
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
    """The output of ``foldlog export --to``: the number of rows that were added to each table.
    ``rebuilt`` is true if the file was emptied first, because the store had been restored.
    """

    events: int
    condensations: int
    conversations: int
    damaged: tuple[DamagedDocument, ...] = ()
    rebuilt: bool = False


class SpendingDocument(Document, frozen=True, kw_only=True):
    """The calls of a condenser's model. ``cost`` is in US dollars, or null if no price is known."""

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
    metadata: dict[str, Any] | UnsetType = UNSET


class CallDocument(Document, frozen=True):
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


class MissingDocument(Document, frozen=True):
    """A term that the agent wrote in the event ``used``, although the term was not in its prompt.

    ``occurred`` are up to three earlier events with the term, the newest first. ``named`` is true
    if a digest in the prompt names one of these events, so that the agent could recall it.
    """

    term: str
    used: int
    occurred: tuple[int, ...]
    named: bool


class StrategyFiguresDocument(Document, frozen=True, kw_only=True):
    """The figures of a strategy in a replay of a history. Figures that could not be counted are
    null. A cost without a known price is null. The ``condenser`` condenses a View above
    ``events_max`` events or ``tokens_max`` tokens, and ``parameters`` are its options. For the
    recorded condensations, ``condenser`` and its limits are null, and ``parameters`` is empty.

    ``tokens_cached`` is the part of ``tokens_repeated`` that the provider's cache reads. For the
    summaries by a model, ``summary_tokens`` and ``summary_cost`` are the tokens and the cost of
    prompts with the forgotten events. ``continued_tokens`` and ``continued_cost`` belong to the
    agent's next prompts (``prompt = "continue"``), of which the cache reads ``continued_cached``.
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
    condensations_per_100_calls: float
    needed_again: int
    missing: tuple[MissingDocument, ...]
    user_messages_lost: tuple[int, ...]
    lost: tuple[int, ...]
    condensed_before: tuple[int, ...]
    calls: tuple[CallDocument, ...]


class CurvePointDocument(Document, frozen=True, kw_only=True):
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


class ComparisonDocument(OfVersion, frozen=True, kw_only=True):
    """The output of ``foldlog compare``. If ``counted_as`` is null, tokens are estimated. ``price``
    has two prices per token in US dollars, for new and for repeated tokens. ``priced`` names the
    model to which the prices belong. ``dropped`` has an entry for each of the newest 50 recorded
    condensations.
    """

    counted_as: str | None
    priced: str
    price: tuple[float, float]
    curve: tuple[CurvePointDocument, ...]
    verdict: tuple[str, ...]
    strategies: tuple[StrategyFiguresDocument, ...]
    dropped: tuple[DroppedDocument, ...]


class RestoredDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog store restore``. ``kept`` is the new path of the file that the
    restore replaced, or null if there was no file. Events that were erased or redacted after the
    backup exist again. The fields ``erased_since`` and ``redacted_since`` name the conversations of
    these events.
    """

    file: str
    kept: str | None
    conversations: int
    events: int
    records: int
    erased_since: tuple[str, ...]
    redacted_since: tuple[str, ...]


class ExportedDocument(OfConversation, frozen=True, kw_only=True):
    """The output of ``foldlog export --output``. ``notes`` describe events that the format cannot
    represent.
    """

    format: str
    file: str
    records: int
    notes: tuple[str, ...] | UnsetType = UNSET


class ImportedDocument(Document, frozen=True, kw_only=True):
    """The outcome of importing a source. ``records`` is the number of records in the source, and
    ``added`` is the number of records that were new. If the import made a fork, ``forked_at`` is
    the first record of the source that differs from the stored records. ``older`` is true if the
    store has more records than the source, so that nothing is added. ``waits`` is true if the last
    line of the source is incomplete. If ``refused`` is true, a finding contains the reason.
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
    """The output of ``foldlog import``. ``findings`` are problems outside of any history, such as a
    file that cannot be read.
    """

    db: str
    imported: tuple[ImportedDocument, ...]
    findings: tuple[str, ...]


class BorderDocument(Document, frozen=True, kw_only=True):
    """The version at which a fork begins. The fork shares all earlier events with its parent."""

    parent: str
    parent_version: int


class ColumnsDocument(Document, frozen=True, kw_only=True):
    """The events of a page as columns, with one value for each event in every column.
    ``docs/PAGE.md`` explains the values.
    """

    kind: list[int]
    tokens: list[int]
    time: list[int | None]
    left: list[int]
    by: list[int]
    sent: list[int]
    answers: list[int]


class ToldDocument(Document, frozen=True, kw_only=True):
    """The metadata of a condensation, which the page shows in a table. Each field may have a value
    of any type.
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
    """A condensation, a request or a retraction: its ``id``, its ``kind`` and its fields."""

    id: int
    kind: str
    reason: str
    version: int | UnsetType = UNSET
    requests: tuple[int, ...] | UnsetType = UNSET
    summary: int | UnsetType | None = UNSET
    tokens_saved: int | UnsetType | None = UNSET


class MaskDocument(Document, frozen=True, kw_only=True):
    """A rule by which a condenser masks events. ``at`` is the id of the event that recorded the
    rule.
    """

    at: int
    by: Any
    rule: dict[str, Any]


class LivedDocument(Document, frozen=True, kw_only=True):
    """The versions at which a View shows a summary."""

    id: int
    tokens: int
    spans: list[Any]


class HistoryDocument(SavingsDocument, frozen=True, kw_only=True):
    """The answer of ``/api/history``, and the content of the page that ``foldlog report`` writes.
    ``events_counted`` has the meaning of ``events`` in ``ConversationDocument``. ``limit`` is the
    limit of ``--agent-model``, or the limit that the last condensation recorded. ``window`` is the
    context window that the source recorded. If the source recorded none, ``window`` is the context
    window of the model ``window_of``.
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
    window_of: str | None
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
    """The answer of ``/api/models``: the calls of each model. The model with the most tokens comes
    first.
    """

    models: tuple[ModelDocument, ...]


class ShownDocument(OfConversation, frozen=True, kw_only=True):
    """The output of ``foldlog show`` and the answer of ``/api/event``: a stored event.
    ``/api/event`` leaves out the source record.
    """

    event: dict[str, Any]


class LogDocument(OfVersion, frozen=True, kw_only=True):
    """The output of ``foldlog log``: stored events, and the problems of events that cannot be read.
    ``--kind`` chooses events by their ``label``.
    """

    borders: tuple[BorderDocument, ...] | UnsetType = UNSET
    events: tuple[dict[str, Any], ...]
    findings: tuple[str, ...] = ()


class UnreadEventDocument(Document, frozen=True, kw_only=True):
    """An event that cannot be read, and the problem."""

    event: int
    problem: str


class ViewDocument(OfVersion, frozen=True, kw_only=True):
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
    events: tuple[dict[str, Any], ...]


class RecordsDocument(OfConversation, frozen=True, kw_only=True):
    """The output of ``foldlog export``: the records in the format of their source."""

    format: str
    records: tuple[Any, ...]
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] | UnsetType = UNSET


class HolderDocument(Document, frozen=True, kw_only=True):
    """The open transaction that delays the followers of a store on a PostgreSQL server."""

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
    """The output of ``foldlog list --followers``. Positions are texts, because they may be too
    large for a JSON number.
    """

    horizon: str
    horizon_age: int
    last_position: str
    held_back: int
    held_by: HolderDocument | None
    synchronous_commit: str
    synchronous_standby_names: str
    followers: tuple[FollowerDocument, ...]


class UnfinishedDocument(Document, frozen=True, kw_only=True):
    """An operation that a command began and did not finish. Run the command again."""

    outcome: str
    problem: str


class LossDocument(Document, frozen=True, kw_only=True):
    """Events that are lost or wrong, from the event ``first`` to ``last``."""

    first: int
    last: int
    problem: str


class VerdictDocument(Document, frozen=True, kw_only=True):
    """A conversation that was verified. ``status`` is "sound", "damaged", "unchecked" (the key is
    missing) or "erased". ``views`` is set with ``--views``. ``redacted`` has the events that were
    redacted since the checkpoint of ``--against``.
    """

    conversation: str | None
    version: int
    head: str | None
    status: str
    findings: tuple[LossDocument, ...]
    generation: int | UnsetType = UNSET
    erased_at: str | UnsetType = UNSET
    erased_reason: str | UnsetType | None = UNSET
    redacted: tuple[int, ...] | UnsetType = UNSET
    views: ViewsDocument | UnsetType = UNSET


class CheckpointDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog store checkpoint``. ``note`` is the text to keep, with signatures."""

    origin: str
    leaves: int
    root: str
    note: str


class CheckedDocument(Document, frozen=True, kw_only=True):
    """How much was verified."""

    conversations: int
    events: int
    erased: int


class VerifiedDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog store verify``. ``database`` are the findings about the database and
    not about a conversation.
    """

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
    """The output of ``foldlog store erase``: the tombstones of the erased conversations, and the
    conversations that were not erased, with the reasons. With ``--dry-run``, the document lists the
    conversations that would be erased. ``holders`` are the files and read models that may still
    contain the content.
    """

    conversations: tuple[ConversationDocument, ...]
    events: int
    stay: tuple[ProblemDocument, ...]
    holders: tuple[str, ...]


class ArchivedConversationDocument(OfConversation, frozen=True, kw_only=True):
    """A conversation that was archived as one object. ``events`` is the number of events in the
    object, and ``bytes`` is its size.
    """

    events: int
    bytes: int


class ArchivedDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog store archive``: the archived conversations, and the conversations
    that were not archived, with the reasons.
    """

    conversations: tuple[ArchivedConversationDocument, ...]
    stay: tuple[ProblemDocument, ...]


class MatchDocument(OfConversation, frozen=True, kw_only=True):
    """The events of a conversation that ``foldlog store redact`` found. With ``--with-summaries``,
    the events include the condensations that are redacted too.
    """

    event_ids: tuple[int, ...]


class RedactionsDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog store redact``: the events that were found, and the receipts.
    ``beside`` are the conversations whose sources contain the text outside of their records.
    ``stay`` are the places that still contain the text, with the reasons.

    ``holders`` are the files and read models that may still contain the content. ``searched`` names
    the places that were searched, and ``not_searched`` names the other places.
    """

    found: tuple[MatchDocument, ...]
    beside: tuple[str, ...]
    receipts: tuple[RedactedDocument, ...]
    stay: tuple[ProblemDocument, ...]
    holders: tuple[str, ...]
    searched: str
    not_searched: str


class RedactedDocument(OfConversation, frozen=True, kw_only=True):
    """The receipt of a redaction. ``documents_lost`` are the documents whose newest values were
    redacted, including ``attributes``.
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
    """A conversation that was rekeyed. ``key`` is true if the data key of the conversation changed.
    ``rows`` is the number of changed rows. ``damaged`` are the rows that could not be changed,
    because they are damaged.
    """

    key: bool
    rows: int
    damaged: tuple[int, ...]
    problem: str | None


class RekeyDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog store rekey``."""

    db: str
    conversations: tuple[RekeyedDocument, ...]
    bytes_pending: bool


class ToolDocument(Document, frozen=True, kw_only=True):
    """The number of calls of a tool, and the number of calls whose results are errors. ``errors``
    is null if no source marks errors.
    """

    calls: int = 0
    errors: int | None = 0


class SpentDocument(Document, frozen=True, kw_only=True):
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


class ModelDocument(SpentDocument, frozen=True, kw_only=True):
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


class CondensationsDocument(Document, frozen=True, kw_only=True):
    """The condensations by a strategy. Forgotten summaries are not counted as events. ``failed`` is
    the number of steps that forgot nothing because a model failed. The numbers of forgotten events
    and summaries are null if they are unknown, for example before the events of an import are made.

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


class StatsDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog stats``, for a single ``conversation`` or for several conversations.
    ``events`` maps each kind of event to the number of these events, and ``total`` to the number of
    all events. Sums leave out unknown figures. ``unmarked`` is the number of conversations whose
    sources do not mark errors. ``without_usage`` is the number of conversations without recorded
    tokens. ``unpriced`` are the models whose prices are unknown, and ``without_cost`` is the number
    of conversations that call such a model. For a single conversation, ``peak_prompt_tokens`` are
    the tokens of the largest prompt, and ``peak_prompt_version`` is the version of the View in this
    prompt. This version is null before the events of an import are made. ``max_input_tokens`` is
    the limit that the source or a condensation recorded. If no limit is recorded,
    ``max_input_tokens`` is the context window of the model ``window_of``.
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


class GroupedDocument(Document, frozen=True, kw_only=True):
    """The output of ``foldlog stats --by``: the calls of models by ``day`` or by ``model``, or the
    calls of tools. ``StatsDocument`` describes all other fields.
    """

    by: str
    conversations: int
    without_usage: int
    without_cost: int
    models: tuple[ModelDocument, ...] = ()
    tools: dict[str, ToolDocument] = {}


def stream(items: Iterable[Any]) -> Any:
    """Return ``items`` as the value of a list field, so that ``terminal.emit_list`` writes them one
    by one.
    """
    return iter(items)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of all documents. Each document has the name of its class."""
    kinds = [kind for name, kind in globals().items() if name.endswith("Document")]
    _, components = msgspec.json.schema_components(kinds[1:], ref_template="#/$defs/{name}")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": components}
