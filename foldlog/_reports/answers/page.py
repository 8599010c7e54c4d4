"""Answers that only the page reads."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from foldlog._base.json_types import JsonObject
from foldlog._reports.answers.document import Document, OfConversation
from foldlog._reports.answers.events import BorderDocument
from foldlog._reports.answers.figures import ModelDocument, SavingsDocument


class RefusedDocument(Document):
    """The reason why a request to the server failed. In ``/api/follow``, the document says why the
    stream ends.
    """

    error: str
    status: int | UnsetType = UNSET


class FollowedDocument(Document):
    """The answer of ``/api/follow``: a value that changes whenever the page of a conversation must
    be loaded again. For a whole store, only ``version`` is set.
    """

    version: int
    redactions: int | UnsetType = UNSET
    borders: int | UnsetType = UNSET


class ProgressDocument(OfConversation):
    """The answer of ``/api/progress``: ``done`` of the ``total`` events are ready. In the step
    "made", events are made from the records of the source. In the step "read", events are read for
    the page.
    """

    step: str
    done: int
    total: int


class ColumnsDocument(Document):
    """The events of a page as columns, with one value for each event in every column. An event
    enters the View at the version ``id + 1``; ``spans`` describes the events that need more than
    the columns, for example an event that a retraction brought back.

    ``kind``     an index into ``kinds``
    ``tokens``   the tokens of the event
    ``time``     milliseconds since the previous event; of the first event, since 1970; null if
                 unknown
    ``left``     the version at which the event left the View; 0 if the View still shows it; -1 if
                 the View never showed it
    ``by``       the id of the condensation or retraction that removed the event, or -1
    ``sent``     the first version at which the event is sent to a model, or 0
    ``answers``  of an observation, the id of its action; otherwise -1
    """

    kind: list[int]
    tokens: list[int]
    time: list[int | None]
    left: list[int]
    by: list[int]
    sent: list[int]
    answers: list[int]


class ToldDocument(Document):
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


class ChangeDocument(ToldDocument, kw_only=True):
    """A condensation, a request or a retraction: its ``id``, its ``kind`` and its fields."""

    id: int
    kind: str
    reason: str
    version: int | UnsetType = UNSET
    requests: tuple[int, ...] | UnsetType = UNSET
    summary: int | UnsetType | None = UNSET
    tokens_saved: int | UnsetType | None = UNSET


class MaskDocument(Document):
    """A rule by which a condenser masks events. ``at`` is the id of the event that recorded the
    rule.
    """

    at: int
    by: Any
    rule: JsonObject


class LivedDocument(Document):
    """The versions at which a View shows a summary."""

    id: int
    tokens: int
    spans: list[Any]


class HistoryDocument(SavingsDocument, kw_only=True):
    """The answer of ``/api/history``, and the content of the page that ``foldlog report`` writes.
    ``events_counted`` has the meaning of ``events`` in ``ConversationDocument``. ``limit`` is the
    limit of ``--agent-model``, or the limit that the last condensation recorded. ``window`` is the
    context window that the source recorded. If the source recorded none, ``window`` is the context
    window of the model ``window_of``.
    """

    conversation: str
    title: str | None
    attributes: JsonObject
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
