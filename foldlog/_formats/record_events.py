"""The events of one record, in an order of its own, and what a history knows while its records are
read.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Literal

from msgspec.structs import replace

from foldlog._formats.blocks import is_blank, said
from foldlog._formats.calls import OpenCalls
from foldlog._formats.format import Format, Options, RecordDecoder
from foldlog._formats.members import Members
from foldlog._formats.record import SourceTime, refused, text_or_empty, usage_told
from foldlog._formats.repeats import REPEATED, Repeats, key_of
from foldlog._prompt_changes import Cause, change_of_prompt
from foldlog._usage import COPIED
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    Content,
    Event,
    Message,
    Observation,
    Origin,
    Retraction,
    Source,
    SystemMessage,
)

_AGAIN = (
    "is the last of records that say all that the ones before them say, and a model is shown both;"
    " if the source was written twice, import it once"
)
COMMENTARY = "commentary"
"""The ``phase`` of what a model says before calls in the same reply, in items of OpenAI's
Responses.
"""


def _response_after(event: Event, response: Any) -> Any:
    """Return the response that goes on after an event, of which ``response`` went on before it."""
    if type(event) is Action:
        return event.response_id
    if "reply" in event.meta:
        return event.meta["reply"]
    # one of ours may come between the calls of a response
    if type(event) in (CondensationAction, Retraction):
        return response if event.origin is None else None
    ends = type(event) in (Observation, SystemMessage) or (
        type(event) is Message and event.source != "agent"
    )
    return None if ends else response


Told = tuple[SourceTime, Any]


def told_by(rules: Format, record: Any) -> Told:
    """Return when a record happened, and its own id, as far as it tells them."""
    return (None, None) if rules.time is None else rules.time(record), rules.source_id(record)


def happened_at(told: Told) -> datetime | None:
    """Return when a record without an id happened: written after what happened later, an equal one
    is it again.
    """
    return told[0][0] if told[1] is None else None


class FollowingDecoder(RecordDecoder):
    """A decoder that knows what it made: the ``calls`` that wait for results, and what a View shows
    (``shown``).

    A subclass says what a record ``read``s as, and of each event that is shown what its compactions
    ask for. ``rules`` is the format.
    """

    keeps_shown: ClassVar[bool] = True
    """Whether ``shown`` is kept: where no record asks for it, a decoder of a long history needs no
    memory for it.
    """
    repeat: ClassVar[Literal["records", "logs", "events"]] = "records"
    """What tells nothing where it comes again: a record with an id of its own, or only a whole log;
    else its events are told again.
    """

    has_own_ids: ClassVar[bool] = False
    """Whether the ids of records are their own where the source tells no time, too."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        assert options.format is not None
        self.rules = options.format
        self.options = options
        self.calls = OpenCalls()
        self.shown = Members[Any]()
        self._repeats = Repeats()
        self._response: Any = None

    def follow(self, event: Event) -> None:
        """Take notice of the next event."""
        if type(event) is Action:
            self.calls.open(event)
        self._response = _response_after(event, self._response)

    def response(self, version: int) -> str:
        """Return the response of a call whose record does not tell it: that of the calls before it,
        unless a result, the words of others or a compaction came since.
        """
        return self._response or f"response-{version}"

    def known(self, event: Event, read: RecordEvents) -> Any:
        """Return what the format knows of an event of this record."""
        return read.known

    def events(self, record: Any) -> list[Event]:
        self.check(record)
        told = told_by(self.rules, record)
        read = self.begun(record, told)
        key = 0 if self.repeat == "events" else key_of(record)
        if key and self._repeats.has(key, happened_at(told)):
            read.meta = {}
            read.shown = False
            read.close(REPEATED, None)
        else:
            self.read(read, record)
        self.ended(read)
        self.next_id += len(read.events)
        if key:
            self.remember(key, told)
        return read.events

    def remember(self, key: int, told: Told) -> None:
        """Take notice of a record that may come again, and of its key."""
        is_timed = told[0] != (None, None)
        is_own = self.repeat == "records" and (is_timed or self.has_own_ids) and told[1] is not None
        if self._repeats.add(key, happened_at(told), is_own=is_own, is_timed=is_timed):
            self.options.findings.append(_AGAIN)

    def ended(self, read: RecordEvents) -> None:
        """Take notice of the end of a record."""

    def check(self, record: Any) -> None:
        """Raise ``NotAnEvent`` for a value that is not a record."""
        if not self.rules.accepts(record):
            raise refused(self.rules.expected, record)

    def begun(self, record: dict[str, Any], told: Told) -> RecordEvents:
        """Return the record before it is read: its id and its time."""
        (timestamp, time), source_id = told
        return RecordEvents(
            self, Origin(format=self.rules.name, id=source_id, time=time), timestamp
        )

    @abstractmethod
    def read(self, read: RecordEvents, record: Any) -> None:
        """Add the events of a record, at least one."""


class RecordEvents:
    """A record while it is read: its events so far, and what was said and thought since the last of
    them.

    ``shown`` is whether its events are, and ``known`` what the format knows of each. ``response``
    is the model's response to which its calls belong.
    """

    def __init__(
        self, decoder: FollowingDecoder, origin: Origin, timestamp: datetime | None
    ) -> None:
        self.events: list[Event] = []
        self.parts: list[dict[str, Any]] = []
        self.thinking: list[dict[str, Any]] = []
        self.meta: dict[str, Any] = {}
        """The ``meta`` of the next event."""
        self.shown = True
        self.is_copy = False
        """Whether its events happened in another history, if at all: no figure counts their calls
        and requests.
        """
        self.known: Any = None
        self.response: str | None = (
            origin.id if type(origin.id) is str else f"message-{decoder.next_id}"
        )
        self._decoder = decoder
        self.begin(origin, timestamp)

    def begin(self, origin: Origin, timestamp: datetime | None) -> None:
        """Begin the record, or a part of it that has an id of its own."""
        self.origin = origin
        self.timestamp = timestamp
        self.is_empty = True
        """Whether no event stands for it yet."""

    @property
    def version(self) -> int:
        """The version of the history after the events so far."""
        return self._decoder.next_id + len(self.events)

    def add(self, kind: Any, **fields: Any) -> Any:
        """Add an event, and return it. The first one has the id of the record; a step to another
        branch has none.
        """
        if not self.shown:
            fields["shown"] = False
        if kind is Retraction or not self.is_empty:
            origin = Origin(format=self.origin.format)
        else:
            origin = self.origin
            self.is_empty = False
        if self.is_copy:
            self.meta[COPIED] = True
        if self.meta and kind is not Retraction:
            fields["meta"], self.meta = self.meta, {}
        fields.setdefault("timestamp", self.timestamp)
        event = kind(id=self.version, origin=origin, **fields)
        self.events.append(event)
        self._decoder.follow(event)
        if (event.shown or event.structural) and self._decoder.keeps_shown:
            self._decoder.shown.follow(event, self._decoder.known(event, self))
        return event

    def take(self, event: Event, phase: Any = None) -> None:
        """Add an event that was read of a message alone. A result without an id is of the newest
        reply, and a call without a response of the one that goes on, as words in the ``phase``
        before calls are.
        """
        if isinstance(event, Observation):
            call_id = self._decoder.calls.of_result(event.call_id, event.tool)
            extras: dict[str, Any] = {"extras": event.extras} if event.extras else {}
            self.answer(call_id, event.content, is_error=event.is_error, tool=event.tool, **extras)
        else:
            self.meta |= event.meta
            if phase == COMMENTARY:
                self.meta["reply"] = self._decoder.response(self.version)
            is_alone = isinstance(event, Action) and event.response_id is None
            if is_alone:
                fields = {"response_id": self._decoder.response(self.version)}
            else:
                fields = {}
            self.add(partial(replace, event), **fields)

    def tell(self, model: Any, cost: Any, counts: Any, **names: str | Sequence[str]) -> None:
        """Keep the model of a response, its cost, and its tokens by the ``names`` that ``counts``
        has for them: without any, those of servers.
        """
        self.meta |= {"model": model} if type(model) is str else {}
        self.meta |= usage_told(counts, names or None, model=model, cost=cost)

    def call(self, tool: Any, arguments: Any, call_id: Any, thought: Content | None = None) -> Any:
        """Add a call, with what was said and thought before it; ``thought`` is what was said, in
        another form.
        """
        before = said(self.parts)
        thinking = tuple(self.thinking)
        self.parts = []
        self.thinking = []
        return self.add(
            Action,
            tool=text_or_empty(tool),
            arguments=arguments if type(arguments) in (dict, str) else None,
            call_id=call_id if type(call_id) is str else None,
            response_id=self.response,
            thought=before if thought is None else thought,
            thinking=thinking,
        )

    def answer(
        self,
        call_id: Any,
        content: Any,
        *,
        is_error: bool = False,
        tool: Any = "",
        cause: int | None = None,
        **fields: Any,
    ) -> Any:
        """Add the result of a call. ``tool`` is the name of one that is not known, ``cause`` what
        the source says.
        """
        known, cause, called = self._decoder.calls.close(call_id, cause)
        named = {"tool": called or text_or_empty(tool), "call_id": known, "cause": cause}
        return self.add(Observation, content=content, is_error=is_error, **named, **fields)

    def say(self, source: Source, *, as_text: bool = False, **fields: Any) -> None:
        """Add a message of the parts that no call took, if there are any; a single text as a text
        on request.
        """
        if self.parts:
            content = said(self.parts) if as_text else tuple(self.parts)
            thinking = tuple(self.thinking)
            self.parts = []
            self.thinking = []
            if is_blank(content):
                fields["shown"] = False
            self.add(Message, content=content, source=source, thinking=thinking, **fields)

    def condense(
        self,
        stays: Callable[[Any], object],
        summary: str = "",
        metadata: Any = None,
        *,
        offset: int | None = None,
    ) -> None:
        """Forget of what is shown all but what ``stays``, as far as the format knows; the
        ``summary`` comes after ``offset`` events of that, by default after all.
        """
        after: list[int | str] = [
            event_id for event_id, known in self._decoder.shown.all() if stays(known)
        ]
        if summary:
            after.insert(len(after) if offset is None else offset, summary)
        self.change(after, "compaction", metadata)

    def change(
        self, after: Sequence[int | str], because: Cause | None = None, metadata: Any = None
    ) -> None:
        """Report that the prompt is made of these ids, and of the text of a new summary, from now
        on.
        """
        shown = self._decoder.shown
        before = [event_id for event_id, _ in shown.all()]
        self.put(
            change_of_prompt(
                before, after, because, condensed_at=shown.condensed_at, metadata=metadata
            )
        )

    def put(self, change: CondensationAction | Retraction | None) -> None:
        """Add a change of the prompt, if there is one."""
        if isinstance(change, Retraction):
            self.add(Retraction, version=change.version, reason=change.reason)
        elif change is not None:
            self.add(partial(replace, change))

    def close(self, name: str, data: Any) -> None:
        """Add an annotation where there is no event."""
        if self.is_empty:
            self.add(Annotation, name=name, data=data)
