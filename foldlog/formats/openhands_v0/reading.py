"""Make events of V0 records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Content,
    Event,
    Message,
    Observation,
    Origin,
    Source,
    SystemMessage,
)
from foldlog.eventstore.usage import usage_of
from foldlog.formats.event_fields import image_at, text_part
from foldlog.formats.open_calls import Recent
from foldlog.formats.openhands_v0.memory import (
    Recollection,
    call_of,
    final_words,
    text_of_observation,
    text_of_user_action,
)
from foldlog.formats.record import (
    Fields,
    NotAnEvent,
    dict_or_empty,
    omit,
    read_time,
    refuse,
    text_or_empty,
    text_or_none,
    usage_meta,
    within,
)
from foldlog.formats.record_events import FollowingDecoder, RecordEvents

NAME = "openhands-v0"

_SOURCES: dict[str, Source] = {"user": "user", "agent": "agent", "environment": "environment"}
_OBSERVED_BOOKKEEPING = frozenset({"null", "agent_state_changed"})
_BOOKKEEPING = _OBSERVED_BOOKKEEPING | {"change_agent_state"}
_STRUCTURAL = frozenset({"condensation", "condensation_request"})
_OWN = frozenset({"recall", "loop_recovery"})
"""Actions of V0 itself that no model requested."""
_SAID_BY_ITSELF = frozenset({"error", "user_rejected"})
"""Observations that V0 sends to the model even if they answer no action."""

_DELEGATING = frozenset({"delegate", "delegate_to_browsing_agent"})
"""Tools of a delegation: V0's action, and the function that a model calls."""

_CAUSES_MAX = 10_000
"""The largest distance between an action and its result, in events."""

_ENVELOPE = frozenset(
    (
        "id",
        "timestamp",
        "source",
        "cause",
        "message",
        "action",
        "observation",
        "args",
        "extras",
        "tool_call_metadata",
        "llm_metrics",
        "timeout",
    )
)
"""Keys of a record that belong to every event. In a record without ``args`` or ``extras``, all
other keys are arguments or extras.
"""
_OBSERVED = _ENVELOPE | {"content", "success"}
"""The same keys of an observation."""


class OpenHandsV0Decoder(FollowingDecoder):
    """Makes the events of a stream of V0, or of the agent's history."""

    keeps_shown = False
    minds_others = True
    repeat = "events"

    def repeated_fields(self, record: Any) -> Collection[str]:
        fields = ("tool_call_metadata", "message", "args.final_thought")
        return (*fields, "content") if within(record, "observation") == "recall" else fields

    def set_up(self) -> None:
        self._open = 0
        """The number of delegations without a result."""
        self._event_ids: Recent[int | str, int] = Recent(_CAUSES_MAX)
        self._by_user: Recent[int, bool] = Recent(_CAUSES_MAX)
        self._recollection = Recollection()
        self._last_action: int | None = None

    def check(self, record: Any) -> None:
        if record == []:
            raise NotAnEvent(
                "expected an event object or an array of event objects, found an empty array"
            )
        for member in members_of(record):
            if type(member) is not dict:
                raise refuse("an event object", member)
            if all(type(member.get(key)) is not str for key in ("action", "observation")):
                raise NotAnEvent(
                    "an event has a text under 'action' or 'observation', but this object has"
                    " neither"
                )

    def read(self, collected: RecordEvents, record: Any) -> None:
        outside = self._is_outside(record)
        for member in members_of(record):
            self._read(collected, member, outside)

    def _read(self, collected: RecordEvents, record: Fields, outside: bool) -> None:
        """Add the event of an action or an observation."""
        is_action = type(record.get("action")) is str
        source = record.get("source")
        source_id = record.get("id")
        timestamp, time = read_time(record.get("timestamp"))
        collected.begin(Origin(format=NAME, id=source_id, time=time), timestamp)
        collected.meta = _usage_in(record)
        fields: Fields = {"cause": self._cause(collected, record, is_action)}
        if type(source) is str and source in _SOURCES:
            fields["source"] = _SOURCES[source]
        add = self._action if is_action else self._observation
        event = add(collected, record, fields, outside)
        if is_action and isinstance(event, Action):
            self._note_user(event)
        if type(source_id) is int or type(source_id) is str:
            self._event_ids[source_id] = event.id
        self._last_action = event.id if is_action else None

    def skip_to(self, next_id: int) -> None:
        if next_id != self.next_id:
            # other events came in between, so the next observation does not answer the last action
            self._last_action = None
        super().skip_to(next_id)

    def follow_stored(self, event: Event) -> None:
        super().follow_stored(event)
        is_action = isinstance(event, Action)
        if isinstance(event, Action):
            self._note_user(event)
        source_id = None if event.origin is None else event.origin.id
        if type(source_id) is int or type(source_id) is str:
            self._event_ids[source_id] = event.id
        self._last_action = event.id if is_action else None

    def read_redacted(self, collected: RecordEvents, record: Any) -> None:
        super().read_redacted(collected, record)
        for event in collected.stored:
            if isinstance(event, Action) and event.tool in _DELEGATING:
                self._open += 1
            elif isinstance(event, Observation) and event.tool == "delegate":
                self._open = max(0, self._open - 1)

    def _note_user(self, action: Action) -> None:
        """Note an action that the agent did not take, because its result says who took it."""
        if action.source != "agent":
            self._by_user[action.id] = True

    def _is_outside(self, record: Any) -> bool:
        """Return whether the next record belongs to a delegate. All records between a delegation
        and its result belong to the delegate. The records of a delegate are in the stream of the
        delegating agent, but not in its history.
        """
        for member in members_of(record):
            is_observation = type(member.get("action")) is not str
            if is_observation and member.get("observation") == "delegate" and self._open:
                self._open -= 1
        outside = self._open > 0
        self._open += _delegations(record)
        return outside

    def _cause(self, collected: RecordEvents, record: Fields, is_action: bool) -> int | None:
        """Return the event that a record answers. Without ids, an observation answers the action
        before it.
        """
        cause = record.get("cause")
        if type(cause) is int or type(cause) is str:
            return self._event_ids.get(cause)
        if is_action or "cause" in record or "id" in record:
            return None
        return self._last_action

    def _action(
        self, collected: RecordEvents, record: Fields, fields: Fields, outside: bool
    ) -> Any:
        """Add the event of an action, and return it. ``outside`` says that a delegate acted."""
        name = record["action"]
        args = _payload(record, "args", _ENVELOPE)
        is_hidden = outside or name in _BOOKKEEPING or args.get("hidden") is True
        fields["shown"] = name not in _STRUCTURAL and (self.options.as_history or not is_hidden)
        if name == "message":
            return collected.add(Message, **_message(args, fields))
        if name == "finish":
            final_text = final_words(args, record.get("tool_call_metadata"))
            return collected.add(Message, content=final_text, **{"source": "agent", **fields})
        if name == "system":
            tools = args.get("tools")
            prompt_tools = tuple(tools) if type(tools) is list else ()
            return collected.add(
                SystemMessage,
                content=text_or_empty(args, "content"),
                tools=prompt_tools,
                **fields,
            )
        forgets = _forgets(args) if name == "condensation" else {}
        if name in _BOOKKEEPING or (name in _STRUCTURAL and (outside or forgets is None)):
            return collected.add(Annotation, **_annotation_fields(record, "action"), **fields)
        if name == "condensation_request":
            return collected.add(CondensationRequest, **fields)
        if name == "condensation":
            condensation = collected.add(CondensationAction, **(forgets or {}), **fields)
            self._recollection.forget(condensation.forgotten)
            return condensation
        return collected.add(Action, **_action_fields(name, args, record, fields))

    def _observation(
        self, collected: RecordEvents, record: Fields, fields: Fields, outside: bool
    ) -> Any:
        """Add the event of an observation, and return it. ``outside`` says that a delegate made
        it.
        """
        name = record["observation"]
        extras = _payload(record, "extras", _OBSERVED)
        is_hidden = outside or name in _BOOKKEEPING or extras.get("hidden") is True
        fields["shown"] = self.options.as_history or not is_hidden
        if name in _OBSERVED_BOOKKEEPING and not self.options.as_history:
            return collected.add(Annotation, **_annotation_fields(record, "observation"), **fields)
        content = text_or_empty(record, "content")
        if name == "condense":
            return collected.add(CondensationSummary, content=content, **fields)
        call_id, _ = _call(record.get("tool_call_metadata"))
        result_text: Content = content
        if name == "recall":
            result_text, extras = self._recollection.tell(extras, record.get("id"))
        else:
            by_user = fields["cause"] is not None and self._by_user.get(fields["cause"]) is not None
            result_text = text_of_observation(name, content, extras, by_user=by_user)
            if (
                name in _SAID_BY_ITSELF
                and call_id is None
                and fields["cause"] is None
                and collected.version
            ):
                return collected.add(
                    Message, content=result_text, **{**fields, "source": "environment"}
                )
            images = extras.get("image_urls") if name == "run_ipython" else None
            if images and _is_texts(images):
                result_text = _with_images(result_text, images)
                extras = omit(extras, "image_urls")
        answer = {
            "tool": name,
            "content": result_text,
            "call_id": call_id,
            "is_error": name == "error",
        }
        return collected.add(Observation, **answer, extras=extras, **fields)


def _action_fields(name: str, args: Fields, record: Fields, fields: Fields) -> Fields:
    """Return the fields of an Action. If the record has the call that the model wrote, the fields
    are from this call, and otherwise from the name and the arguments of the record.
    """
    metadata = record.get("tool_call_metadata")
    call_id, response_id = _call(metadata)
    fields = {**fields, "call_id": call_id, "response_id": response_id}
    call = call_of(metadata)
    if call is not None:
        return {"tool": call.tool, "arguments": call.arguments, "thought": call.text, **fields}
    # A record has its arguments in "args", or, in old files, beside its other fields. An action
    # without any, or with "args" that are no object, has no arguments.
    arguments: Fields | None = args
    if "args" in record:
        arguments = args if type(record["args"]) is dict else None
    elif not args:
        arguments = None
    if call_id is None and name in _OWN and fields.get("source", "agent") == "agent":
        fields["source"] = "environment"
    if call_id is None and fields.get("source", "agent") != "agent":
        user_text = text_of_user_action(name, args) if fields["source"] == "user" else ""
        return {"tool": name, "arguments": arguments, "thought": user_text, **fields}
    thought = text_or_empty(args, "thought")
    if thought:
        arguments = omit(args, "thought")
    tool = text_or_empty(metadata, "function_name") or name
    return {"tool": tool, "arguments": arguments, "thought": thought, **fields}


def _usage_in(record: Fields) -> Fields:
    """Return the model of the call in a record, and the tokens and cost of all calls up to this
    record.
    """
    metadata = dict_or_empty(record, "tool_call_metadata")
    metrics = dict_or_empty(record, "llm_metrics")
    response = dict_or_empty(metadata, "model_response")
    usage = metrics.get("accumulated_token_usage")
    call_fields: Fields = {"model": response["model"]} if type(response.get("model")) is str else {}
    if type(usage) is dict:
        call_fields["accumulated"] = {**usage_of(usage), "cost": metrics.get("accumulated_cost")}
        call_fields |= usage_meta(response.get("usage"))
    return call_fields


def _payload(record: Fields, key: str, envelope: frozenset[str]) -> Fields:
    """Return the arguments or extras of a record, which the oldest files have in the record
    itself.
    """
    if key in record:
        return dict_or_empty(record[key])
    return omit(record, *envelope)


def _with_images(text: str, urls: list[str]) -> Content:
    """Return a text with images behind it."""
    return (text_part(text), *map(image_at, urls))


def _message(args: Fields, fields: Fields) -> Fields:
    """Return the fields of a message, with its images."""
    content: Content = text_or_empty(args, "content")
    images = [args[name] for name in ("image_urls", "images_urls") if args.get(name)]
    if len(images) == 1 and type(args.get("content")) is str and _is_texts(images[0]):
        content = _with_images(args["content"], images[0])
    if "source" not in fields:
        # The oldest files do not name the source of a message. But only the agent waits for a
        # response.
        fields["source"] = "agent" if args.get("wait_for_response") is True else "user"
    return {"content": content, **fields}


def _is_texts(value: Any) -> bool:
    """Return whether a value is a list of texts."""
    return type(value) is list and all(type(item) is str for item in value)


def _annotation_fields(record: Fields, kind_key: str) -> Fields:
    """Return the fields of an annotation with the whole record. ``kind_key`` is the key of its
    name.
    """
    own_keys = ("id", "timestamp", "source", "cause", kind_key)
    return {"name": record[kind_key], "data": omit(record, *own_keys)}


def _forgets(args: Fields) -> Fields | None:
    """Return the fields of a CondensationAction, or None if the arguments are malformed.

    The rules for the arguments come from OpenHands. The arguments have either a list of ids or both
    ends of a range. If there is a list, a single end of a range is ignored. A summary needs an
    offset, and an offset needs a summary.
    """
    ids = args.get("forgotten_event_ids")
    summary = args.get("summary")
    offset = args.get("summary_offset")
    start = args.get("forgotten_events_start_id")
    end = args.get("forgotten_events_end_id")
    if (summary is None) != (offset is None) or (ids is None) == (start is None or end is None):
        return None
    fields: Fields = {}
    if ids is not None:
        if type(ids) is not list or not all(type(event_id) is int for event_id in ids):
            return None
        fields["forgotten_event_ids"] = tuple(ids)
    elif type(start) is int and type(end) is int:
        fields["forgotten_events_start_id"] = start
        fields["forgotten_events_end_id"] = end
    else:
        return None
    if summary is not None:
        if type(summary) is not str or type(offset) is not int:
            return None
        fields["summary"] = summary
        fields["summary_offset"] = offset
    return fields


def _call(metadata: Any) -> tuple[str | None, str | None]:
    """Return the ids of the call and of its response, or None for what the metadata lack."""
    call_id = text_or_none(metadata, "tool_call_id")
    if call_id is None:
        return None, None
    return call_id, text_or_none(metadata, "model_response", "id")


def members_of(record: Any) -> Sequence[Any]:
    """Return the events in a record. In the oldest files, a record is an array of an action and its
    observation.
    """
    return record if type(record) is list else (record,)


def _delegations(record: Any) -> int:
    """Return the number of delegations in a record."""
    return sum(member.get("action") == "delegate" for member in members_of(record))
