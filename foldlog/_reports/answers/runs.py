"""Answers about the comparison of two runs."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from foldlog._base.json_types import JsonObject
from foldlog._reports.answers.document import Document, OfConversation, OfVersion
from foldlog._reports.answers.figures import SpentDocument, TaskDocument


class DivergenceDocument(OfVersion):
    """The output of ``foldlog diff ID OTHER``: where two conversations with shared events diverge.
    ``runs`` include the shared events.
    """

    other: str
    other_version: int
    common_past: int
    first_divergent_event: int | None
    event: JsonObject | None
    other_event: JsonObject | None
    runs: tuple[RunDocument, RunDocument]


class LineDocument(Document):
    """An event as a single line."""

    event: int
    kind: str
    gist: str


class RunDocument(OfVersion):
    """A run in a comparison of two runs. The numbers of a fork do not count the events that it
    shares with its parent. ``replies`` is the number of the model's replies.
    ``calls`` is the number of tool calls, and ``tools`` maps each tool to its number of calls.
    ``answer`` is the answer to the last request, or null if it has no answer. ``task`` is the run
    with its sub-agents, if it has any.
    """

    requests: int
    replies: int
    calls: int
    errors: int | None
    tools: dict[str, int]
    answer: LineDocument | None
    spent: SpentDocument | None
    task: TaskDocument | UnsetType = UNSET


class KnewDocument(Document):
    """What the model of one run was shown at ``version``. ``events`` and ``summaries`` are numbers,
    and ``tokens`` is an estimate. ``alone`` lists the events that the model of this run saw, and
    the model of the other run did not.
    """

    version: int
    events: int
    summaries: int
    tokens: int
    alone: tuple[LineDocument, ...]


class StepDocument(Document):
    """A request or a call, and its events in two conversations. An event is null if the
    conversation does not have the request or call.
    """

    event: int | None
    other_event: int | None
    kind: str
    gist: str


class PassageDocument(Document):
    """A passage in which two texts differ: the differing words of each text, and the equal words
    before and after them.
    """

    before: str
    words: str
    other_words: str
    after: str


class DifferingDocument(Document):
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


class RunsDocument(Document):
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


class CheckedRequestDocument(Document):
    """A request to the agent's model that was made again from the log. ``event`` is the first event
    of the reply. ``same`` says whether the request has the same bytes as then, and is null if that
    was not recorded. ``changes`` say what has changed since.
    """

    call: int
    event: int
    same: bool | None
    changes: tuple[str, ...]


class ReplayedDocument(OfConversation):
    """The output of ``foldlog replay``. ``requests`` are set if no new run was made. Otherwise
    ``fork`` is the new run, ``version`` its number of events, and ``ended`` the reason of its end.
    """

    requests: tuple[CheckedRequestDocument, ...] = ()
    fork: str = ""
    version: int = 0
    ended: str = ""
