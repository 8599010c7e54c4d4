"""What the commands read, over HTTP: figures, exports, reports and comparisons of conversations."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import msgspec

from foldlog._app.page.report import write_report
from foldlog._app.server.notes import Notes
from foldlog._app.server.parameters import Count, Text
from foldlog._app.server.problems import Refusal
from foldlog._app.server.service.conversations import Where, attributes_in
from foldlog._app.server.service.exports import Export, ExportPlace
from foldlog._app.server.service.operations import operation
from foldlog._app.server.service.request import AdmittedRequest
from foldlog._app.server.service.tokens import Scope
from foldlog._base.json_types import JsonObject
from foldlog._reports.answers.document import Document, OfConversation
from foldlog._reports.answers.figures import StatsDocument
from foldlog._reports.answers.programs import SecretDocument, SecretsDocument
from foldlog._reports.answers.runs import (
    CheckedRequestDocument,
    DivergenceDocument,
    RunsDocument,
)
from foldlog._reports.answers.views import FactDocument, HandOversDocument
from foldlog._reports.divergence import common_past, find_divergence
from foldlog._reports.figures.documents import collect_stats
from foldlog._reports.hand_overs import fact_document
from foldlog._reports.runs import compared_runs
from foldlog._reports.search.recall_tool import TOKENS, TOKENS_LEAST
from foldlog._reports.search.secrets import kinds_in, secrets_in
from foldlog._testing.calls import recorded_calls
from foldlog.eventstore.errors import ConversationErased
from foldlog.eventstore.lists import tombstones
from foldlog.projections import Dialect

_PAGE_BYTES: Final = 8_000_000
"""A page of an export ends with the record that passes this number of bytes."""
_REPORT_BYTES_MAX: Final = 32 * 1024 * 1024
"""A larger report is refused: it is one file, which the server holds in memory."""
Limit = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
Tokens = Annotated[int, msgspec.Meta(ge=TOKENS_LEAST, le=100_000)]


@operation("GET", "/conversations/{conversation}/stats", is_long=True)
def read_stats(request: AdmittedRequest, *, with_children: bool = False) -> StatsDocument:
    """Return the figures of a conversation: events by kind and tool, errors, tokens and cost by
    model and day, condensations, and the sizes of its Views.

    ``with_children`` adds the figures of its sub-agents, in ``task``.
    """
    history = request.history
    if with_children:
        request.refuse_filter("the figures of sub-agents")
    stats = collect_stats(
        request.histories.store,
        [history.id],
        views=request.histories.views,
        prices=request.prices,
        has_task=with_children,
    )
    request.check_again(history)
    return stats.document(history.id)


@operation("GET", "/stats", is_long=True)
def read_store_stats(request: AdmittedRequest, *, where: Where = "") -> StatsDocument:
    """Return the sums of the figures of all conversations that the token may see.

    ``where`` are attributes as ``name=value``, as in a list of conversations: values are texts.
    """
    histories = request.histories
    asked = attributes_in(where)
    attributes = {**asked, **request.principal.where}
    collect = partial(
        collect_stats,
        histories.store,
        views=histories.views,
        prices=request.prices,
        waits_for="single",
    )
    if not asked.items() <= attributes.items():
        return collect([]).document()  # the token sees none of them
    if not attributes:
        return collect(None).document()
    while True:
        names = request.visible_ids(attributes)
        with suppress(ConversationErased):
            stats = collect(names)
            if {*names} <= {*request.visible_ids(attributes)}:
                return stats.document()
        # A conversation was erased meanwhile, and another one may have its id.


class Tombstone(Document, frozen=True):
    """An erased conversation. ``events`` is the number of events that it had."""

    id: str
    events: int
    erased_at: str
    reason: str


class Tombstones(Document, frozen=True):
    """The tombstones in the order of their ids. ``next`` is null at the end."""

    tombstones: list[Tombstone]
    next: str | None


@operation("GET", "/tombstones", is_long=True)
def list_tombstones(request: AdmittedRequest, *, limit: Limit = 100, after: str = "") -> Tombstones:
    """List the conversations that were erased, and why. Needs a token without a filter, because
    a tombstone has no attributes. ``after`` is ``next`` of the page before.
    """
    request.refuse_filter("tombstones")
    database = request.histories.store.database
    page = [
        Tombstone(
            id=tombstone.id,
            events=tombstone.events,
            erased_at=tombstone.erased_at.isoformat(),
            reason=tombstone.reason,
        )
        for tombstone in tombstones.list_tombstones(database, after, limit + 1)
    ]
    return Tombstones(
        tombstones=page[:limit], next=page[limit - 1].id if len(page) > limit else None
    )


class ExportedRecords(OfConversation, frozen=True):
    """Records in a ``format``. ``notes`` say what the format cannot express, and are complete in
    the last page. ``next`` is null at the end.
    """

    format: str
    records: list[Any]
    notes: list[str]
    next: int | None


@operation("GET", "/conversations/{conversation}/export", is_long=True)
def export(
    request: AdmittedRequest,
    *,
    format: Text | None = None,
    view: bool = False,
    after: Count = 0,
) -> ExportedRecords:
    """Return the conversation as records of a format, with forgotten events and without retracted
    events.

    ``format`` is a format of ``docs/FORMATS.md``, by default the format of the source. ``view``
    asks for the messages of the next prompt, by default as openai-chat. A page ends at about 8 MB;
    ``after`` is ``next`` of the page before. The server holds the newest four exports for a minute,
    and the next page then goes on with the export of this page. Other pages cost an export of their
    own.
    """
    history = request.history
    # The records of a View are all in memory, so they are not held for the next page.
    place = ExportPlace(request.principal.name, history.id, format, after)
    exported = None if view else request.exports.take(place)
    if exported is None or not exported.is_of(history):
        exported = Export(history, format, view=view)
        exported.skip(after)
    records, has_more = exported.read_page(_PAGE_BYTES)
    following = after + len(records) if has_more else None
    if following is not None and not view:
        request.exports.hold(place._replace(after=following), exported)
    return ExportedRecords(
        conversation=history.id,
        format=exported.format,
        records=records,
        notes=[*exported.notes],
        next=following,
    )


@operation("GET", "/conversations/{conversation}/report", media_type="text/html", is_long=True)
def report(request: AdmittedRequest) -> bytes:
    """Return the conversation as a page in one HTML file, which needs no network: what the model
    was shown at every version, what was forgotten, and why.
    """
    history = request.history
    store = request.histories.store
    notes = Notes(store).of(history.id).notes
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        size = write_report(store, history.id, path, prices=request.prices, notes=notes)
        request.check_again(history)
        if size > _REPORT_BYTES_MAX:
            raise Refusal(
                422,
                f"the report has {size:,} bytes, and the service sends at most"
                f" {_REPORT_BYTES_MAX:,}; write it at the server with 'foldlog report ID'",
            )
        return path.read_bytes()


@operation("GET", "/conversations/{conversation}/secrets", is_long=True)
def find_secrets(request: AdmittedRequest) -> SecretsDocument:
    """Return the events with keys and tokens of known shapes, and their kinds, never their
    values.
    """
    history = request.history
    kinds_in("")  # raises the error for a missing extra before the work
    unread: list[str] = []
    found = [
        SecretDocument(conversation=history.id, event=event.id, kinds=kinds)
        for event, kinds in secrets_in(request.histories.store, history.id, unread)
    ]
    request.check_again(history)
    if not request.principal.sees_all:
        # A problem may name a conversation whose events this one shares.
        unread = [f"{history.id}: an event could not be read" for _ in unread]
    return SecretsDocument(secrets=tuple(found), unread=tuple(unread))


class CheckedRequests(OfConversation, frozen=True):
    """``next`` is ``after`` of the next page, or null at the end."""

    requests: list[CheckedRequestDocument]
    next: int | None


@operation("GET", "/conversations/{conversation}/replay", is_long=True)
def replay(request: AdmittedRequest, *, after: Count = 0, limit: Limit = 100) -> CheckedRequests:
    """Make the recorded requests to the agent's model again from the log, and say whether each has
    the same bytes. No model is called. ``after`` is the number of the last call that was checked.
    """
    history = request.history
    calls = recorded_calls(history)
    checked = []
    for call in calls[after : after + limit]:
        made = history.sent_request(call.reply[0].id)
        checked.append(CheckedRequestDocument.of(made, call=call.number, event=made.event_id))
    following = after + len(checked)
    return CheckedRequests(
        conversation=history.id,
        requests=checked,
        next=following if following < len(calls) else None,
    )


@operation("GET", "/conversations/{conversation}/fact", is_long=True)
def read_fact(request: AdmittedRequest, *, words: Text, at: Count | None = None) -> FactDocument:
    """Say whether the agent knows some words, now or at a version, and from which events. The words
    are searched as in ``/v1/search``.
    """
    return fact_document(request.history.fact(words, at))


@operation("GET", "/conversations/{conversation}/hand-overs", is_long=True)
def read_hand_overs(
    request: AdmittedRequest, *, words: Text | None = None, call: Count | None = None
) -> HandOversDocument:
    """Say what the calls that began sub-agents gave, and what came back.

    With ``words``, the answer is about the words and all sub-agents, with ``call`` about the
    sub-agents that this call began. Needs a token that may see all conversations.
    """
    request.refuse_filter("sub-agents")
    if (words is None) == (call is None):
        raise Refusal(422, "send either 'words' or 'call'")
    history = request.history
    about = words if call is None else call
    assert about is not None
    return HandOversDocument(conversation=history.id, about=about, agents=history.hand_overs(about))


class ComparedConversations(Document, frozen=True):
    """``divergence`` if the conversations share events, as forks do, otherwise ``runs``."""

    divergence: DivergenceDocument | None
    runs: RunsDocument | None


@operation("GET", "/conversations/{conversation}/compared", is_long=True)
def compare_conversations(request: AdmittedRequest, *, other: Text) -> ComparedConversations:
    """Compare a conversation with another one: the first difference, and the calls, tokens, cost
    and last answers of both.
    """
    store = request.histories.store
    history = request.history
    request.principal.check_conversation(other)
    other_history = request.histories[other]
    request.check_visible(other_history)
    shared = common_past(store, history.id, other)
    divergence: DivergenceDocument | None = None
    runs: RunsDocument | None = None
    if shared is None:
        runs = compared_runs(store, history.id, other, request.prices)
    else:
        divergence = find_divergence(store, history.id, other, shared, request.prices)
    request.check_again(history, other_history)
    return ComparedConversations(divergence=divergence, runs=runs)


class RecalledText(Document, frozen=True):
    """What to answer to a model that called the tool ``recall``."""

    text: str


@operation("POST", "/conversations/{conversation}/recall", Scope.READ, status=200)
def recall(
    request: AdmittedRequest, *, arguments: JsonObject | str, max_tokens: Tokens = TOKENS
) -> RecalledText:
    """Run the tool ``recall`` for a model: read earlier events of the conversation that its View
    does not show any more. Nothing is written.

    ``arguments`` are the arguments of the model's call, as a text or an object: one of ``query``
    (words), ``ids`` (of events) and ``path`` (of a file). If they cannot be used, the text tells
    the model what is wrong.
    """
    return RecalledText(text=request.history.recall_tool(max_tokens=max_tokens)(arguments))


class ToolDefinition(Document, frozen=True):
    """``tool`` is for the tools of a request, and ``hint`` a line for the system prompt."""

    tool: JsonObject
    hint: str


@operation("GET", "/conversations/{conversation}/recall")
def read_recall_tool(request: AdmittedRequest, *, dialect: Dialect = "openai") -> ToolDefinition:
    """Return the definition of the tool ``recall``, to offer it to a model."""
    tool = request.history.recall_tool()
    return ToolDefinition(tool=tool.schema(dialect), hint=tool.hint)
