"""Decoders that remember the open calls and the shown events of a history. ``RecordEvents``
collects the events of one record.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Literal

from msgspec.structs import force_setattr, replace

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
from foldlog.eventstore.usage import COPIED, PLACED_FROM
from foldlog.formats.blocks import content_of_parts as content_of_parts, is_blank
from foldlog.formats.event_places import number
from foldlog.formats.format import Format, Options, RecordDecoder
from foldlog.formats.json_text import key_of
from foldlog.formats.open_calls import NewestCalls, OpenCalls, describe_supplied
from foldlog.formats.prompt_changes import Cause, change_of_prompt
from foldlog.formats.record import (
    Fields,
    NotAnEvent,
    TimeAndId,
    name_of_type,
    refuse,
    text_or_empty,
    time_and_id_of,
    usage_meta,
)
from foldlog.formats.repeated_records import REPEATED, Repeats
from foldlog.formats.resuming import (
    CallsInWindow,
    DecoderState,
    Facts,
    Past,
    UnknownMembers,
    checksum,
)
from foldlog.formats.unread_fields import unread_fields
from foldlog.formats.view_members import MemberLink, Members

_AGAIN = (
    "ends a series that repeats all earlier records, so a View shows them twice; if a program wrote"
    " the source twice, remove one copy and import again"
)
_UNREAD = (
    "has a text in the field {!r}, which foldlog does not read in this format; the stored record"
    " has the text, but no View shows it"
)
COMMENTARY = "commentary"
"""A model's text in this ``phase`` comes before the calls of the same reply (OpenAI's Responses
API).
"""
_UNKNOWN = "(before the window)"
"""The response to which the next call belongs, until a decoder that continues has read it."""


def _response_after(event: Event, response: Any) -> Any:
    """Return the response to which the next call belongs. ``response`` is the present response.
    Return None if ``event`` ended the response.
    """
    if type(event) is Action:
        return event.response_id
    if "reply" in event.meta:
        return event.meta["reply"]
    # a condensation of foldlog itself may come between the calls of a response
    if type(event) in (CondensationAction, Retraction):
        return response if event.origin is None else None
    ends_response = type(event) in (Observation, SystemMessage) or (
        type(event) is Message and event.source != "agent"
    )
    return None if ends_response else response


def time_if_without_id(time_and_id: TimeAndId) -> datetime | None:
    """Return the argument ``at`` of ``Repeats`` for a record: its time, or None if it has an id."""
    (timestamp, _), source_id = time_and_id
    return timestamp if source_id is None else None


class FollowingDecoder(RecordDecoder):
    """A decoder that remembers the open ``calls``, and the events that a View shows (``shown``).

    A subclass adds the events of a record in ``read``. Each shown event gets a ``tag``, such as the
    id of its record. A compaction of the format selects the events to forget by their tags.
    ``format`` is the format of the records.
    """

    keeps_shown: ClassVar[bool] = True
    """Whether ``shown`` is filled. A format that does not use ``shown`` saves memory."""
    repeat: ClassVar[Literal["records", "logs", "events"]] = "records"
    """Which repetitions the decoder leaves out:

    ``records``  a repeated record that has an id, and a repetition of the whole log
    ``logs``     only a repetition of the whole log
    ``events``   no repetition, so an equal record makes its events again
    """

    repeated: ClassVar[tuple[str, ...]] = ()
    """See ``repeated_fields``."""
    has_own_ids: ClassVar[bool] = False
    """Whether equal records with an id are repetitions even in a source without times."""
    continues: ClassVar[bool] = False
    """Whether the decoder can continue from a state: see ``facts``."""
    ids_return: ClassVar[bool] = False
    """Whether a record often has the id of an earlier record, which it replaces."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        assert options.format is not None
        self.format = options.format
        self.options = options
        self.calls = OpenCalls()
        self.shown = Members[Any]()
        self.past = Past(is_kept=self.continues)
        self._repeats = Repeats(self.past)
        self._response: Any = None
        self._reported_fields = set[int]()
        self._facts: Facts = {}
        self.adopted = 0
        """The number of members of the View that came from another program."""
        self.handed_over_at = 0
        """The version at which the history went on in this format's program, or 0."""
        self.set_up()

    def set_up(self) -> None:
        """Prepare the state that only this format needs. Called once, before the first record."""

    def facts(self) -> Facts | None:
        """Return what this format must know about earlier records, as numbers, hashes and flags.
        Return None if the decoder cannot continue after the present record.
        """
        return {}

    def restore(self, facts: Facts) -> None:
        """Continue from ``facts``, before the window is read again."""

    def restore_after(self, facts: Facts) -> None:
        """Continue from ``facts``, after the window was read again."""

    def state(self) -> DecoderState | None:
        """Return the state after the last record, or None if the decoder cannot continue here."""
        facts = self.facts() if self.continues else None
        return None if facts is None else self._repeats.state(self._reported_fields, facts)

    def continue_from(self, state: DecoderState) -> None:
        """Continue from ``state``. The next records are the records of the window. Call
        ``end_window`` after them.
        """
        self.past = Past(state)
        self._repeats = Repeats(self.past, state)
        self._response = _UNKNOWN
        self._reported_fields = {*state.reported}
        self.calls = CallsInWindow(self.past)
        self.shown = UnknownMembers(self.past)
        self._facts = state.facts
        self.restore(state.facts)

    def end_window(self) -> None:
        """End the window. Raises ``NeedsAll`` if its records do not stand alone."""
        self.past.end_window()
        self.restore_after(self._facts)
        self.options.findings.clear()

    def follow(self, event: Event) -> None:
        """Update the open calls, the current response, and what ``past`` knows."""
        if type(event) is Action:
            self.calls.open(event)
        self._response = _response_after(event, self._response)
        self._remember_in_past(event)

    def read_redacted(self, collected: RecordEvents, record: Any) -> None:
        """Read a redacted record that has lost the form of the format, so that ``read`` cannot read
        it. Its events are ``collected.stored``. A format extends this method if it numbers its
        records, or if it remembers more of a record than ``follow_stored`` can tell from an event.
        """
        collected.take_stored()

    def follow_stored(self, event: Event) -> None:
        """Follow a stored event of a redacted record. A format that has its own state of the calls
        updates it here.
        """
        if isinstance(event, Observation) and self.calls.is_open(event.call_id):
            self.calls.close(event.call_id, event.cause)
        self.follow(event)

    def _remember_in_past(self, event: Event) -> None:
        """Note what an event means for a decoder that continues later: the id of a call, or a
        change of earlier events.
        """
        if type(event) is Action and event.call_id is not None:
            self.past.add_new(f"call {event.call_id}", may_return=self.ids_return)
        elif type(event) is CondensationAction:
            self.past.break_off()
        elif type(event) is Retraction:
            # A program whose ids return replaces its newest records all the time. Such a step back
            # inside the window needs nothing from the records before the window.
            stays_in_window = self.ids_return and event.version > self.past.start
            if not stays_in_window:
                self.past.break_off()

    def response(self, version: int) -> str:
        """Return the response of a call whose record does not name a response. The call belongs to
        the response of the calls before it. A result, a message that is not from the model, and a
        compaction end a response.
        """
        if self._response is _UNKNOWN:
            self.past.needs_all()
        return self._response or f"response-{version}"

    def tag(self, event: Event, collected: RecordEvents) -> Any:
        """Return the tag of a shown event."""
        return collected.tag

    def events(self, record: Any) -> list[Event]:
        """Return the events of the next record. A repeated record becomes one hidden event."""
        return self.events_of_redacted(record, ())

    def events_of_redacted(self, record: Any, stored: Sequence[Event]) -> list[Event]:
        try:
            self.check(record)
        except NotAnEvent:
            self.past.next_record(self.next_id)
            if not stored:
                raise
            source_id = self.format.source_id(record) if type(record) is dict else None
            origin = Origin(format=self.format.name, id=source_id)
            redacted = RecordEvents(self, origin, None, stored)
            self.read_redacted(redacted, record)
            self.next_id += len(redacted.events)
            return redacted.events
        time_and_id = time_and_id_of(record, self.format.time, self.format.source_id)
        at = time_if_without_id(time_and_id)
        collected = self.begin_record(record, time_and_id)
        collected.stored = stored
        self.past.next_record(self.next_id, time_and_id[1], id_may_return=self.ids_return)
        key = 0 if self.repeat == "events" else key_of(record)
        if key and self._repeats.has(key, at):
            self.past.break_off()
            collected.meta = {}
            collected.shown = False
            collected.close(REPEATED, None)
        else:
            self.read(collected, record)
            collected.take_stored()
            self._report_unread(record, collected)
        self.end_record(collected)
        self.next_id += len(collected.events)
        if key:
            self.remember(key, time_and_id)
        return collected.events

    def _report_unread(self, record: Any, collected: RecordEvents) -> None:
        """Report each field whose text is in no event, once for a field of this name."""
        if self.past.is_in_window:  # the decoder that read the window first has reported its fields
            return
        for field in unread_fields(record, collected.events, self.repeated_fields(record)):
            if (number := checksum(field)) not in self._reported_fields:
                self._reported_fields.add(number)
                self.report(_UNREAD.format(field))

    def report(self, problem: str) -> None:
        """Add a finding about the present record."""
        self.options.findings.append(problem)

    def supply_results(self, collected: RecordEvents, calls: NewestCalls, result: str) -> None:
        """Add the result that a program sends its model for each call without a result, and report
        these calls.
        """
        if calls.began_before_window:
            self.past.needs_all()
        supplied = [(call.call_id, call.tool) for call in calls.open.values()]
        with collected.placed(None):
            for call_id, _ in supplied:
                collected.answer(call_id, result, is_error=True)
        if supplied:
            self.report(describe_supplied(supplied, result))

    def repeated_fields(self, record: Any) -> Collection[str]:
        """Return the paths of the fields whose texts need not be in the events of ``record``: the
        texts stand in other fields or records too, or no model gets them.
        """
        return self.repeated

    def remember(self, key: int, time_and_id: TimeAndId) -> None:
        """Remember a record by its ``key``, so that a repetition of it is recognized. If the record
        ends a log that was written twice, report that.
        """
        time, source_id = time_and_id
        is_timed = time != (None, None)
        has_own_id = (
            self.repeat == "records" and (is_timed or self.has_own_ids) and source_id is not None
        )
        if self._repeats.add(
            key, time_if_without_id(time_and_id), has_own_id=has_own_id, is_timed=is_timed
        ):
            self.report(_AGAIN)

    def end_record(self, collected: RecordEvents) -> None:
        """Handle the end of a record. A subclass may override ``end_record``."""

    def adopt(self, record: Any, event_ids: Sequence[int]) -> None:
        """Read a record that was made from events and summaries of the history, when the history
        went on in the format's program. ``event_ids`` are their ids.
        """
        before = self.shown.newest
        findings = len(self.options.findings)
        with suppress(NotAnEvent):  # a redaction may have left too little of the record
            self.events(record)
        del self.options.findings[findings:]  # nobody can mend a record that foldlog made
        tags = list[Any]()
        link = self.shown.newest
        while link is not None and link is not before:
            tags.append(link.member[1])
            link = link.before
        time_and_id = time_and_id_of(record, self.format.time, self.format.source_id)
        collected = self.begin_record(record, time_and_id)
        other = self.tag(Message(content="", source="agent"), collected)
        self.shown.newest = before
        for place, event_id in enumerate(event_ids):
            tag = tags[-1 - place] if place < len(tags) else other
            self.shown.newest = MemberLink(self.shown.newest, (event_id, tag))
        self.adopted += len(event_ids)

    def end_adoption(self, version: int) -> None:
        """Call this method after the last record that was handed over. ``version`` is the version
        of the history after the hand-over.
        """
        self.handed_over_at = version
        self.next_id = version
        # A retraction would show events that the program never got.
        self.shown.condensed_at = version - 1

    def return_to(self, collected: RecordEvents, version: int) -> None:
        """Return to the View at a version. A version up to the hand-over is the number of members
        that the View had after an adopted record.
        """
        if version > self.handed_over_at:
            collected.add(Retraction, version=version)
            return
        if collected.version > self.handed_over_at:
            collected.add(Retraction, version=self.handed_over_at)
        if self.handed_over_at:
            collected.change(self.shown.ids()[:version], "return")

    def check(self, record: Any) -> None:
        """Raise ``NotAnEvent`` if a record does not have the form of the format."""
        if not self.format.accepts(record):
            raise refuse(self.format.expected, record)

    def begin_record(self, record: Fields, time_and_id: TimeAndId) -> RecordEvents:
        """Return the collector for the events of a record."""
        (timestamp, time), source_id = time_and_id
        return RecordEvents(
            self, Origin(format=self.format.name, id=source_id, time=time), timestamp
        )

    @abstractmethod
    def read(self, collected: RecordEvents, record: Any) -> None:
        """Add the events of a record, at least one event."""


def events_of(
    decoder: RecordDecoder, format: Format, record: Any, stored: Sequence[Event] = ()
) -> list[Event]:
    """Return the events of the next record. ``stored`` are the events of a record that was
    redacted. Raises ``NotAnEvent`` for a value that is not a record of the format.
    """
    events = decoder.events_of_redacted(record, stored) if stored else decoder.events(record)
    if len(events) != 1 or events[0].origin is None:  # most records make one event
        number(events, format.name)
    if format.time is None:
        # an empty time means: at an unknown time before the import
        for event in events:
            assert event.origin is not None
            force_setattr(event.origin, "time", event.origin.time or "")
    return events


class RecordEvents:
    """Collects the events of a record while it is read, and the text and thinking for the next
    event.

    ``events``    the events so far
    ``meta``      the ``meta`` of the next event
    ``shown``     whether the next events are shown
    ``tag``       the tag of the next events: see ``FollowingDecoder``
    ``response``  the model's response to which the next calls belong
    ``parts``     the parts of text for the next call or message
    ``thinking``  the thinking for the next call or message
    ``stored``    the stored events of a redacted record. They take the place of all events that are
                  added
    """

    def __init__(
        self,
        decoder: FollowingDecoder,
        origin: Origin,
        timestamp: datetime | None,
        stored: Sequence[Event] = (),
    ) -> None:
        self.events: list[Event] = []
        self.stored = stored
        self.parts: list[Fields] = []
        self.thinking: list[Fields] = []
        self.meta: Fields = {}
        self.shown = True
        self.is_copy = False
        """Whether the events are copies from another history. Figures do not count the calls and
        requests of copies.
        """
        self.tag: Any = None
        self.response: str | None = (
            origin.id if type(origin.id) is str else f"message-{decoder.next_id}"
        )
        self._decoder = decoder
        self.begin(origin, timestamp)

    def begin(self, origin: Origin, timestamp: datetime | None) -> None:
        """Begin a record, or a part of a record that has its own id."""
        self.origin = origin
        self.timestamp = timestamp
        self.is_empty = True

    @property
    def version(self) -> int:
        """The id of the next event."""
        self.take_stored()
        return self._decoder.next_id + len(self.events)

    def take_stored(self) -> None:
        """Add the stored events of a redacted record, unless they were added."""
        if not self.stored or self.events:
            return
        self.is_empty = False
        self.events += self.stored
        for event in self.stored:
            self._decoder.follow_stored(event)
            self._show(event)

    def shows_since(self, place: int) -> bool:
        """Return whether an event is shown, of the events from ``place`` on. Of a redacted record,
        all events count.
        """
        self.take_stored()
        events = self.stored or self.events[place:]
        return any(event.shown for event in events)

    def _show(self, event: Event) -> None:
        if (event.shown or event.structural) and self._decoder.keeps_shown:
            self._decoder.shown.follow(event, self._decoder.tag(event, self))

    def _stored_for(self, event: Event) -> Event:
        """Return the stored event that stands for an event, or the event if there is none."""
        call_id = getattr(event, "call_id", None)
        return next(
            (
                stored
                for stored in self.stored
                if type(stored) is type(event) and getattr(stored, "call_id", None) == call_id
            ),
            event,
        )

    def add(self, kind: Any, **fields: Any) -> Any:
        """Add an event, and return the event. The first event of a record gets the id of the
        record. A retraction gets no id, because it is a step to another branch.
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
            fields["meta"] = self.meta
            self.meta = {}
        fields.setdefault("timestamp", self.timestamp)
        if kind is Annotation:
            fields["name"] = name_of_type(fields["name"])
        event = kind(id=self.version, origin=origin, **fields)
        if self.stored:
            return self._stored_for(event)
        self.events.append(event)
        self._decoder.follow(event)
        self._show(event)
        return event

    @contextmanager
    def placed(self, first_id: int | None) -> Iterator[None]:
        """Add results that the record does not have: see ``PLACED_FROM``. They get neither the id
        nor the ``meta`` of the record.
        """
        is_empty = self.is_empty
        meta = self.meta
        self.is_empty = False
        self.meta = {PLACED_FROM: first_id}
        yield
        self.is_empty = is_empty
        self.meta = meta

    def take(self, event: Event, phase: Any = None) -> None:
        """Add an event that was read from a single message. A result without an id answers a call
        of the newest reply. A call without a response belongs to the current response. A text in
        the phase ``COMMENTARY`` belongs to the current response too.
        """
        if isinstance(event, Observation):
            call_id = self._decoder.calls.of_result(event.call_id, event.tool)
            extras: Fields = {"extras": event.extras} if event.extras else {}
            self.answer(call_id, event.content, is_error=event.is_error, tool=event.tool, **extras)
        else:
            self.meta |= event.meta
            if phase == COMMENTARY:
                self.meta["reply"] = self._decoder.response(self.version)
            fields = {}
            if isinstance(event, Action) and event.response_id is None:
                fields["response_id"] = self._decoder.response(self.version)
            self.add(partial(replace, event), **fields)

    def tell(self, model: Any, cost: Any, counts: Any, **names: str | Sequence[str]) -> None:
        """Store the model, cost and tokens of a response in the ``meta`` of the next event.
        ``names`` maps foldlog's names of counts to the names in ``counts``. Without ``names``,
        ``counts`` must use the names of the providers' APIs.
        """
        if type(model) is str:
            self.meta["model"] = model
        self.meta |= usage_meta(counts, names or None, model=model, cost=cost)

    def call(self, tool: Any, arguments: Any, call_id: Any, thought: Content | None = None) -> Any:
        """Add a call with the collected text and thinking. If ``thought`` is not None, ``thought``
        replaces the text.
        """
        text = content_of_parts(self.parts)
        thinking = tuple(self.thinking)
        self.parts = []
        self.thinking = []
        return self.add(
            Action,
            tool=text_or_empty(tool),
            arguments=arguments if type(arguments) in (dict, str) else None,
            call_id=call_id if type(call_id) is str else None,
            response_id=self.response,
            thought=text if thought is None else thought,
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
        """Add the result of a call. ``cause`` is the event id of the call, if the source names the
        call. If the call is unknown, the result gets ``tool`` as the name of its tool.
        """
        result_id, cause, called_tool = self._decoder.calls.close(call_id, cause)
        names = {"tool": called_tool or text_or_empty(tool), "call_id": result_id, "cause": cause}
        return self.add(Observation, content=content, is_error=is_error, **names, **fields)

    def say(self, source: Source, *, as_text: bool = True, **fields: Any) -> None:
        """Add a message with the collected ``parts``. If a call took the parts as its thought, add
        nothing. If ``as_text`` is true, a single text part becomes a text.
        """
        if self.parts:
            content = content_of_parts(self.parts) if as_text else tuple(self.parts)
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
        """Call ``stays`` with the tag of each shown event, and forget the event if the answer is
        false. The ``summary`` comes after the first ``offset`` events that stay. By default the
        summary comes last.
        """
        after: list[int | str] = [
            event_id for event_id, tag in self._decoder.shown.all() if stays(tag)
        ]
        if summary:
            after.insert(len(after) if offset is None else offset, summary)
        self.change(after, "compaction", metadata)

    def change(
        self, after: Sequence[int | str], because: Cause | None = None, metadata: Any = None
    ) -> None:
        """Add an event that changes the prompt to ``after``. In ``after``, a number is the id of an
        event, and a text is a new summary.
        """
        shown = self._decoder.shown
        before = shown.ids()
        self.put(
            change_of_prompt(
                before, after, because, condensed_at=shown.condensed_at, metadata=metadata
            )
        )

    def put(self, change: CondensationAction | Retraction | None) -> None:
        """Add a change of the prompt, which has no id yet. Do nothing for None."""
        if isinstance(change, Retraction):
            self.add(Retraction, version=change.version, reason=change.reason)
        elif change is not None:
            self.add(partial(replace, change))

    def close(self, name: str, data: Any) -> None:
        """If the record has no event yet, add an annotation, so that each record has one."""
        self.take_stored()
        if self.is_empty:
            self.add(Annotation, name=name, data=data)
