"""V0 records to events."""

from __future__ import annotations

from collections.abc import Container
from itertools import islice
from typing import Any

from foldlog._formats.calls import Recent
from foldlog._formats.format import Options, RecordDecoder
from foldlog._formats.openhands_v0.delegates import OpenDelegations, open_delegations
from foldlog._formats.openhands_v0.memory import call_of, done_by_user, final_words, observed
from foldlog._formats.openhands_v0.recalled import Recollection
from foldlog._formats.openhands_v0.writing import NAME, OBSERVED_BOOKKEEPING
from foldlog._formats.record import NotAnEvent, described, dict_or_empty, read_time, text_or_empty, text_or_none
from foldlog._formats.told import image_at
from foldlog._usage import usage_of
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

_SOURCES: dict[str, Source] = {"user": "user", "agent": "agent", "environment": "environment"}
_BOOKKEEPING = OBSERVED_BOOKKEEPING | {"change_agent_state"}
_STRUCTURAL = frozenset({"condensation", "condensation_request"})
_OWN = frozenset({"recall", "loop_recovery"})
"""Actions of V0 itself, which no model requested."""
_SAID_BY_ITSELF = frozenset({"error", "user_rejected"})
"""Observations that the model is told without an action before them."""

_CAUSES_MAX = 10_000
"""An action waits for its result during this many events; after that the two are not paired."""

_ENVELOPE = frozenset(
    (
        *("id", "timestamp", "source", "cause", "message", "action", "observation", "args", "extras"),
        *("tool_call_metadata", "llm_metrics", "timeout"),
    )
)
"""Keys of a record that belong to every event. In a flat record, all other keys are arguments or extras."""
_OBSERVED = _ENVELOPE | {"content", "success"}


class OpenHandsV0Decoder(RecordDecoder):
    """Records of one history to events, one record after the other.

    ``outside`` tells by their numbers which records are outside the agent's history (``outside_history``).
    """

    def __init__(self, options: Options, outside: Container[int] = ()) -> None:
        super().__init__(options)
        self._as_history = options.as_history
        self._outside = outside
        self._first_id = options.first_id
        self._past = options.past if options.first_id else None
        self._delegations: OpenDelegations | None = None
        self._is_live = options.past is not None
        self._event_ids: Recent[int | str, int] = Recent(_CAUSES_MAX)
        self._by_user: Recent[int, bool] = Recent(_CAUSES_MAX)
        self._recollection = Recollection(self._past)
        self._last_action: int | None = None
        self._record_number = -1

    def events(self, record: Any) -> list[Event]:
        """Return the events of the next record: one, or for an array one for each of its objects.

        Raises ``NotAnEvent`` if the record is not an event; then nothing has changed.
        """
        self._record_number += 1
        outside = self._is_outside(record)
        if type(record) is not list:
            return [self._event(record, _is_action(record), outside)]
        if not record:
            raise NotAnEvent("expected an event object or an array of them, found an empty array")
        are_actions = [_is_action(member) for member in record]
        pairs = zip(record, are_actions, strict=True)
        return [self._event(member, is_action, outside) for member, is_action in pairs]

    def _event(self, record: dict[str, Any], is_action: bool, outside: bool) -> Event:
        timestamp, time = read_time(record.get("timestamp"))
        origin = Origin(format=NAME, id=record.get("id"), time=time)
        cause = self._cause(record, is_action)
        fields: dict[str, Any] = {"id": self.next_id, "timestamp": timestamp, "origin": origin, "cause": cause}
        source = record.get("source")
        if type(source) is str and source in _SOURCES:
            fields["source"] = _SOURCES[source]
        if told := _usage_in(record):
            fields["meta"] = told
        build = self._action if is_action else self._observation
        event = build(record, fields, outside)
        if is_action and isinstance(event, Action) and event.source != "agent":
            self._by_user[event.id] = True
        source_id = record.get("id")
        if type(source_id) is int or type(source_id) is str:
            self._event_ids[source_id] = event.id
        self.next_id += 1
        self._last_action = event.id if is_action else None
        return event

    def skip_to(self, next_id: int) -> None:
        super().skip_to(next_id)
        self._last_action = None

    def _is_outside(self, record: Any) -> bool:
        if not self._is_live:
            return not self._as_history and self._record_number in self._outside
        if self._delegations is None:
            self._delegations = OpenDelegations(0 if self._past is None else open_delegations(self._past.view()))
        return self._delegations.takes(record)

    def _cause(self, record: dict[str, Any], is_action: bool) -> int | None:
        cause = record.get("cause")
        if type(cause) is int or type(cause) is str:
            known = self._event_ids.get(cause)
            return self._earlier(cause) if known is None else known
        if is_action or "cause" in record or "id" in record:
            return None
        if self._past is not None and self.next_id == self._first_id:
            newest = next(self._past.newest_first(), None)
            return newest.id if isinstance(newest, Action) and newest.origin is not None else None
        return self._last_action

    def _earlier(self, source_id: int | str) -> int | None:
        """Return the event with this id of the source before the first record."""
        for event in () if self._past is None else islice(self._past.newest_first(), _CAUSES_MAX):
            origin = event.origin
            if origin is not None and origin.format == NAME and origin.id == source_id:
                if isinstance(event, Action) and event.source != "agent":
                    self._by_user[event.id] = True
                return event.id
        return None

    def _action(self, record: dict[str, Any], fields: dict[str, Any], outside: bool) -> Event:
        name = record["action"]
        args = _payload(record, "args", _ENVELOPE)
        fields["shown"] = self._as_history or not (outside or name in _BOOKKEEPING or args.get("hidden") is True)
        if name == "message":
            return _message(args, fields)
        if name == "finish":
            return Message(content=final_words(args, record.get("tool_call_metadata")), **{"source": "agent", **fields})
        if name == "system":
            tools = args.get("tools")
            return SystemMessage(
                content=text_or_empty(args.get("content")), tools=tuple(tools) if type(tools) is list else (), **fields
            )
        if name in _BOOKKEEPING or (name in _STRUCTURAL and outside):
            return _annotation("action", record, fields)
        if name in _STRUCTURAL:
            fields["shown"] = False
            if name == "condensation_request":
                return CondensationRequest(**fields)
            forgets = _forgets(args)
            if forgets is None:
                return _annotation("action", record, fields)
            condensation = CondensationAction(**forgets, **fields)
            self._recollection.forget(condensation.forgotten)
            return condensation
        return self._done(name, args, record, fields)

    def _done(self, name: str, args: dict[str, Any], record: dict[str, Any], fields: dict[str, Any]) -> Action:
        """Return an action with a tool: the call that the model wrote, where the record has it."""
        metadata = record.get("tool_call_metadata")
        fields["call_id"], fields["response_id"] = call_id, _ = _call(metadata)
        call = call_of(metadata)
        if call is not None:
            return Action(tool=call.tool, arguments=call.arguments, thought=call.said, **fields)
        arguments = args if type(record.get("args", args or None)) is dict else None
        if call_id is None and name in _OWN and fields.get("source", "agent") == "agent":
            fields["source"] = "environment"
        if call_id is None and fields.get("source", "agent") != "agent":
            told = done_by_user(name, args) if fields["source"] == "user" else ""
            return Action(tool=name, arguments=arguments, thought=told, **fields)
        thought = text_or_empty(args.get("thought"))
        if thought:
            arguments = {key: value for key, value in args.items() if key != "thought"}
        tool = text_or_empty(dict_or_empty(metadata).get("function_name")) or name
        return Action(tool=tool, arguments=arguments, thought=thought, **fields)

    def _observation(self, record: dict[str, Any], fields: dict[str, Any], outside: bool) -> Event:
        name = record["observation"]
        extras = _payload(record, "extras", _OBSERVED)
        fields["shown"] = self._as_history or not (outside or name in _BOOKKEEPING or extras.get("hidden") is True)
        if name in OBSERVED_BOOKKEEPING and not self._as_history:
            return _annotation("observation", record, fields)
        content = text_or_empty(record.get("content"))
        if name == "condense":
            return CondensationSummary(content=content, **fields)
        call_id, _ = _call(record.get("tool_call_metadata"))
        told: Content = content
        if name == "recall":
            told, extras = self._recollection.tell(extras, record.get("id"))
        else:
            by_user = fields["cause"] is not None and self._by_user.get(fields["cause"]) is not None
            told = observed(name, content, extras, by_user=by_user)
            if name in _SAID_BY_ITSELF and call_id is None and fields["cause"] is None and self.next_id:
                return Message(content=told, **{**fields, "source": "environment"})
            images = extras.get("image_urls") if name == "run_ipython" else None
            if images and _is_texts(images):
                told = _with_images(told, images)
                extras = {key: value for key, value in extras.items() if key != "image_urls"}
        return Observation(tool=name, content=told, extras=extras, call_id=call_id, is_error=name == "error", **fields)


def _usage_in(record: dict[str, Any]) -> dict[str, Any]:
    """Return the model that a record names, and the tokens and cost of all calls up to it."""
    metadata, metrics = dict_or_empty(record.get("tool_call_metadata")), dict_or_empty(record.get("llm_metrics"))
    model, usage = dict_or_empty(metadata.get("model_response")).get("model"), metrics.get("accumulated_token_usage")
    told: dict[str, Any] = {"model": model} if type(model) is str else {}
    if type(usage) is dict:
        told["accumulated"] = {**usage_of(usage), "cost": metrics.get("accumulated_cost")}
    return told


def _is_action(record: Any) -> bool:
    if type(record) is not dict:
        raise NotAnEvent(f"expected an event object, found {described(record)}")
    if type(record.get("action")) is str:
        return True
    if type(record.get("observation")) is str:
        return False
    raise NotAnEvent("an event has a text under 'action' or 'observation', this object has neither")


def _payload(record: dict[str, Any], key: str, envelope: frozenset[str]) -> dict[str, Any]:
    """Return arguments or extras, from the place where the record has them."""
    if key in record:
        return dict_or_empty(record[key])
    return {name: value for name, value in record.items() if name not in envelope}


def _with_images(text: str, urls: list[str]) -> Content:
    return ({"type": "text", "text": text}, *map(image_at, urls))


def _message(args: dict[str, Any], fields: dict[str, Any]) -> Message:
    content: Content = text_or_empty(args.get("content"))
    spellings = [name for name in ("image_urls", "images_urls") if args.get(name)]
    if len(spellings) == 1 and type(args.get("content")) is str and _is_texts(args[spellings[0]]):
        content = _with_images(args["content"], args[spellings[0]])
    if "source" not in fields:
        # The oldest files do not say who speaks; only the agent waits for a response.
        fields["source"] = "agent" if args.get("wait_for_response") is True else "user"
    return Message(content=content, **fields)


def _is_texts(value: Any) -> bool:
    return type(value) is list and all(type(item) is str for item in value)


def _annotation(naming: str, record: dict[str, Any], fields: dict[str, Any]) -> Annotation:
    name = record[naming]
    taken = ("id", "timestamp", "source", "cause", naming)
    return Annotation(name=name, data={key: value for key, value in record.items() if key not in taken}, **fields)


def _forgets(args: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields of a CondensationAction, or None if the arguments are malformed.

    As in the reference: either a list of ids (then a single end of a range is ignored) or both ends of a range; and a
    summary with its offset, or neither.
    """
    ids, summary, offset = args.get("forgotten_event_ids"), args.get("summary"), args.get("summary_offset")
    start, end = args.get("forgotten_events_start_id"), args.get("forgotten_events_end_id")
    if (summary is None) != (offset is None) or (ids is None) == (start is None or end is None):
        return None
    fields: dict[str, Any] = {}
    if ids is not None:
        if type(ids) is not list or not all(type(event_id) is int for event_id in ids):
            return None
        fields["forgotten_event_ids"] = tuple(ids)
    elif type(start) is int and type(end) is int:
        fields["forgotten_events_start_id"], fields["forgotten_events_end_id"] = start, end
    else:
        return None
    if summary is not None:
        if type(summary) is not str or type(offset) is not int:
            return None
        fields["summary"], fields["summary_offset"] = summary, offset
    return fields


def _call(metadata: Any) -> tuple[str | None, str | None]:
    """Return the id of the tool call, and the id of the model response that holds it."""
    call_id = text_or_none(dict_or_empty(metadata).get("tool_call_id"))
    if call_id is None:
        return None, None
    return call_id, text_or_none(dict_or_empty(metadata.get("model_response")).get("id"))
