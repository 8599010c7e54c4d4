"""Trajectories in ATIF, Harbor's Agent Trajectory Interchange Format: ``{"schema_version", "agent",
"steps": […]}``.

The first record has the fields before the steps, and the last record has the fields after the
steps. A step is a record too. An agent changes the fields after the steps each time it writes the
file. The steps, and the events that they become:

    system, before any other step   SystemMessage, with the tools of the agent
    system, later                   Annotation: the trajectory does not say whether the step was
                                    sent to the model; a step of foldlog says so in
                                    ``extra.is_prompt``, and becomes a SystemMessage
    user                            Message
    agent                           Message, or an Action for each call; the step's reasoning is the
                                    thinking of the first event
    results of its observation      an Observation for each result; a Message from the environment
                                    if a result answers no call
    with the boundary "replace"     CondensationAction of all events except the system prompt, since
                                    ATIF 1.7. The observation is the summary. Without an
                                    observation, a later step has the summary

The field ``extra.context_management`` of a step holds the boundary. Some agents write no boundary.
They begin a second trajectory in another file instead. The second file becomes a separate
conversation, or a fork if both files have the same id. It gets no condensation. Its first steps are
copies (``is_copied_context``). A View shows copies, because the agent sent the copies to the model.
Figures do not count the calls, requests and tokens of copies, and ignore the totals
(``final_metrics``) of a trajectory with copies. The last record contains the trajectories of
sub-agents. Each of these becomes a conversation too.

foldlog writes its own condensation as a step with a boundary. After this step, foldlog writes
copies of the events that stay in the View.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from reprlib import repr as short
from typing import Any

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationSummary,
    Event,
    Message,
    Observation,
    Source,
    SystemMessage,
    summary_id,
)
from foldlog.eventstore.errors import count
from foldlog.eventstore.usage import cost_of, usage_of
from foldlog.formats.blocks import shown_blocks, thinking_of
from foldlog.formats.event_fields import (
    arguments_of,
    call_id_of,
    id_of_source,
    role_of,
    session_of,
    stamp_of,
)
from foldlog.formats.event_places import is_declined
from foldlog.formats.files.documents import document_in
from foldlog.formats.files.found_sources import NotAHistory
from foldlog.formats.files.readers import in_object, object_in, on_lines
from foldlog.formats.format import Contained, FileReader, Format
from foldlog.formats.json_text import bytes_of
from foldlog.formats.model_calls import (
    UNNAMED,
    ModelCall,
    RecordedUsage,
    begins_call,
    call_of_event,
    calls_of_replies,
    is_copy,
    model_named,
)
from foldlog.formats.record import (
    Fields,
    Located,
    describe_type,
    dict_or_empty,
    dicts_in,
    first_of,
    joined_text,
    member,
    omit,
    text_or_empty,
    text_or_none,
    within,
)
from foldlog.formats.record_events import FollowingDecoder, RecordEvents
from foldlog.formats.reply_encoders import RepliesEncoder, thinking_before, thoughts_before
from foldlog.formats.view_members import Members

NAME = "atif"

_BEFORE = ("schema_version", "session_id", "trajectory_id", "agent")
"""The fields before the steps of a trajectory. These fields never change."""
_IS_PROMPT = "is_prompt"
"""The field of ``extra`` that says of a step of the system that the model was sent it."""
_PARENT = "subagent_of"
"""The field of ``extra`` that names the parent conversation of a sub-agent."""
_SOURCES: dict[str, Source] = {"user": "user", "agent": "agent"}
_ALL_SOURCES = "the source 'user', 'agent' or 'system'"
_BOUNDARY = ("extra", "context_management", "boundary")
# A finding about a step with the boundary "truncate".
_TRIMMED = (
    "does not name the steps that were left out of the prompt (boundary 'truncate'); the View shows"
    " all steps"
)


# -- files -----------------------------------------------------------------------------------------


class _Trajectories(FileReader):
    """Reads files with one trajectory, and the trajectories of sub-agents in them."""

    def holds(self, path: Path, begin: bytes) -> bool:
        is_one = (
            begin.lstrip().startswith(b"{") and b'"schema_version"' in begin and b'"ATIF-v' in begin
        )
        return is_one and not self._is_log(path)

    def _is_log(self, path: Path) -> bool:
        """Return whether a file has a record in each line. A file with only the first line of a log
        is a log too.
        """
        return on_lines(path) or (path.suffix == ".jsonl" and b'"steps"' not in path.read_bytes())

    def histories(self, path: Path) -> Iterator[Contained]:
        document = object_in(path)
        _check_steps(path, document.value)
        name = text_or_none(first_of(document.value, "trajectory_id", "session_id"))
        yield in_object(path, document, "steps", name, _BEFORE)
        yield from _trajectories_of_subagents(document, name or path.stem)


def _check_steps(path: Path, trajectory: Fields) -> None:
    """Raise ``NotAHistory`` if there are steps, and none of them is a step of ATIF."""
    steps = trajectory.get("steps")
    version = text_or_empty(trajectory, "schema_version")
    if type(steps) is not list:
        raise NotAHistory(path, f"is a trajectory of {version}, but holds no array under 'steps'")
    if not steps or any(_is_step(step) for step in steps):
        return
    first = steps[0]
    if type(first) is dict and "source" in first:
        found = f"the source {short(first['source'])}"
    elif type(first) is dict:
        found = "no source"
    else:
        found = f"no fields, because it is {describe_type(first)}"
    raise NotAHistory(
        path,
        f"is a trajectory of {version}, but none of its"
        f" {count(len(steps), 'step')} has {_ALL_SOURCES}: the first has {found}",
    )


def _is_step(step: Any) -> bool:
    return type(step) is dict and step.get("source") in (*_SOURCES, "system")


def _trajectories_of_subagents(document: Located, parent: str) -> Iterator[Contained]:
    """Yield the trajectories of the sub-agents in a trajectory, and of the sub-agents below them.
    ``parent`` is the name of its conversation.
    """
    calls = {
        text_or_empty(reference, "trajectory_id"): text_or_empty(result, "source_call_id")
        for step in dicts_in(document.value, "steps")
        for result in _results(step)
        for reference in dicts_in(result, "subagent_trajectory_ref")
    }
    for held in dicts_in(document.value, "subagent_trajectories"):
        if (name := text_or_none(held, "trajectory_id")) and type(held.get("steps")) is list:
            extra = {**dict_or_empty(held, "extra"), _PARENT: parent}
            inner = document_in(bytes_of({**held, "extra": extra}), document.source, document.line)
            contained = in_object(
                Path(document.source), inner, "steps", f"{parent}/{name}", (*_BEFORE, "extra")
            )
            call = calls.get(name, "")
            link = {"parent": parent, "parent_call": call}
            yield contained._replace(link=link) if call else contained
            yield from _trajectories_of_subagents(inner, f"{parent}/{name}")


def _document(records: Iterable[Any]) -> Fields:
    """Return the trajectory with these records. Without a first record, it gets one of foldlog."""
    before: Fields = {}
    steps: list[Any] = []
    after: Fields = {}
    for record in records:
        if type(record) is not dict or "source" in record:
            steps.append(record)
        elif "schema_version" in record:
            before = record
        else:
            after |= record
    agent = {"name": "foldlog", "version": "1"}
    session = session_of(steps[0] if steps else None)
    before = before or {"schema_version": "ATIF-v1.8", "session_id": session, "agent": agent}
    return {**before, "steps": steps, **after}


def _accepts(record: Any) -> bool:
    """Return whether a record may be a step, or the fields before or after the steps."""
    is_step = (
        type(record) is dict
        and "role" not in record
        and ("source" in record or "step_id" not in record)
    )
    # a whole trajectory is not a record
    return is_step and "steps" not in record


def _matches(record: Any) -> bool:
    """Return whether a record is certainly of a trajectory in ATIF."""
    if not _accepts(record):
        return False
    if text_or_empty(record, "schema_version").startswith("ATIF-v"):
        return True
    return (
        type(record.get("step_id")) is int
        and "message" in record
        and record.get("source") in (*_SOURCES, "system")
    )


# -- records to events -----------------------------------------------------------------------------


class _Decoder(FollowingDecoder):
    """Reads the records of a trajectory: its beginning, its steps, and its end."""

    has_own_ids = True

    def repeated_fields(self, record: Any) -> Collection[str]:
        return () if within(record, *_BOUNDARY) is None else ("message",)

    def set_up(self) -> None:
        self._agent: Fields = {}
        """The description of the agent, with the definitions of its tools."""
        self._begun = False
        """Whether a step that is not of the system has come."""
        self._has_copies = False
        """Whether a step is a copy from another trajectory."""

    def tag(self, event: Event, collected: RecordEvents) -> bool:
        """Return whether the event stays in the View after a boundary: only system prompts stay."""
        return isinstance(event, SystemMessage)

    def read(self, collected: RecordEvents, record: Fields) -> None:
        source = text_or_empty(record, "source")
        agent = record.get("agent")
        counts = record.get("metrics")
        is_copy = record.get("is_copied_context") is True
        self._has_copies = self._has_copies or is_copy
        # The totals after the steps include the copies, so they count as a copy too.
        collected.is_copy = is_copy or (self._has_copies and not source)
        if not source and type(agent) is dict:
            self._agent = agent
        if parent := text_or_empty(record, "extra", _PARENT):
            collected.meta["parent"] = f"{self.options.prefix}{parent}"
        model = record.get("model_name") or (self._agent.get("model_name") if counts else None)
        if not collected.is_copy:
            collected.tell(model, within(counts, "cost_usd"), counts)
            if type(calls := record.get("llm_call_count")) is int and calls > 1:
                collected.meta["calls"] = calls
        self._report_fields(record)
        replaces = within(record, *_BOUNDARY) == "replace"
        is_prompt = not self._begun or within(record, "extra", _IS_PROMPT) is True
        if source == "system" and is_prompt and not replaces:
            tools = self._agent.get("tool_definitions")
            content = joined_text(tuple(shown_blocks(record.get("message"))))
            collected.add(
                SystemMessage, content=content, tools=tuple(tools) if type(tools) is list else ()
            )
        elif source in _SOURCES:
            self._begun = True
            collected.parts = shown_blocks(record.get("message"))
            if type(thought := record.get("reasoning_content")) is str and thought:
                collected.thinking = [thinking_of(thought)]
            for call in dicts_in(record, "tool_calls"):
                collected.call(
                    call.get("function_name"), call.get("arguments"), call.get("tool_call_id")
                )
            collected.say(_SOURCES[source])
        if source != "system" or not replaces:
            _read_results(collected, record)
        if replaces:
            result_texts = (
                joined_text(tuple(shown_blocks(result.get("content"))))
                for result in _results(record)
            )
            collected.condense(
                bool,
                "\n\n".join(filter(None, result_texts)),
                {"reason": "the source compacted its context"},
            )
        elif within(record, *_BOUNDARY) == "truncate":
            self.report(_TRIMMED)
        data = omit(record, "source", "step_id", "timestamp")
        collected.close(source or "trajectory", data)

    def _report_fields(self, step: Fields) -> None:
        """Report fields of a step that are not as in ATIF."""
        if "source" in step and not _is_step(step):
            self.report(
                f"step {step.get('step_id')} has the source {short(step['source'])}, and the View"
                f" does not show it; a step of ATIF has {_ALL_SOURCES}"
            )
        if type(step.get("message", "")) not in (str, list):
            self.report(
                f"step {step.get('step_id')} has a message that is"
                f" {describe_type(step['message'])}, and is read without it; a message of ATIF is"
                " a text or a list of parts"
            )


def _results(record: Fields) -> list[Fields]:
    return dicts_in(record, "observation", "results")


def _read_results(collected: RecordEvents, record: Fields) -> None:
    """Add the results of a step: an observation for each, or a message if it answers no call."""
    for result in _results(record):
        content = result.get("content")
        call_id = result.get("source_call_id")
        if type(call_id) is str:
            collected.answer(
                call_id,
                tuple(shown_blocks(content)) if type(content) is list else text_or_empty(content),
            )
        else:
            collected.parts = shown_blocks(content)
            collected.say("environment")


# -- events to records -----------------------------------------------------------------------------


class _Encoder(RepliesEncoder):
    """Writes steps, and copies of the events that stay after a condensation."""

    last = 0

    def __init__(self) -> None:
        super().__init__()
        self._shown = Members[Event]()

    def follow(self, events: Sequence[Event], record: Any) -> None:
        super().follow(events, record)
        for event in events:
            self._show(event)

    def records(self, event: Event) -> Sequence[Any] | None:
        self._show(event)
        if isinstance(event, CondensationAction) and not is_declined(event):
            return [*self.end(), *self._boundary(event)]
        return super().records(event)

    def _show(self, event: Event) -> None:
        """Follow which events the View shows."""
        if isinstance(event, CondensationAction) and event.summary:
            self._shown.follow(event, CondensationSummary(content=event.summary))
        elif event.shown or event.structural:
            self._shown.follow(event, event)

    def _boundary(self, event: CondensationAction) -> list[Fields]:
        """Return the step of a condensation, and copies of the events that stay in the View.
        Without the copies, a reader would drop these events.
        """
        step = self._step(event, "system", "Context compaction performed")
        if event.summary:
            step |= {"observation": {"results": [{"content": event.summary}]}}
        step["extra"] = {"context_management": {"type": "compaction", "boundary": "replace"}}
        copier = _Encoder()
        copies = list[Fields]()
        copier.last = self.last
        for event_id, shown in self._shown.all():
            if event_id != summary_id(event.id) and not isinstance(shown, SystemMessage):
                copies += copier.records(shown) or ()
        copies += copier.end()
        self.last = copier.last
        return [step, *({**copy, "is_copied_context": True} for copy in copies)]

    def records_of(self, events: Sequence[Any]) -> list[Fields]:
        (event,) = events
        role = role_of(event)
        has_begun = bool(self.last)
        source = "agent" if role == "assistant" else role
        step = self._step(event, source, joined_text(event.content))
        if role == "system" and has_begun:
            # Other readers take only the first step for a system prompt.
            step["extra"] = {_IS_PROMPT: True}
        return [step | _reasoning(event.thinking if isinstance(event, Message) else ())]

    def records_of_results(self, results: Sequence[Observation]) -> Sequence[Any]:
        """Return a step for results that are written without their calls. A result must answer a
        call of its own step, so the step also gets a call with the id and the tool of each result.
        """
        calls = [
            Action(
                id=result.id, tool=result.tool, call_id=result.call_id, timestamp=result.timestamp
            )
            for result in results
        ]
        return self.records_of_calls(calls, results)

    def records_of_calls(
        self, calls: Sequence[Action], results: Sequence[Observation | None]
    ) -> list[Fields]:
        step = self._step(calls[0], "agent", joined_text(thoughts_before(calls))) | _reasoning(
            thinking_before(calls)
        )
        step["tool_calls"] = [
            {
                "tool_call_id": call_id_of(call),
                "function_name": call.tool,
                "arguments": arguments_of(call),
            }
            for call in calls
        ]
        result_items = [
            {"source_call_id": call_id_of(call), "content": joined_text(result.content)}
            for call, result in zip(calls, results, strict=True)
            if result is not None
        ]
        return [step | ({"observation": {"results": result_items}} if result_items else {})]

    def _step(self, event: Event, source: str, message: str) -> Fields:
        self.last = self.last + 1 if type(self.last) is int else 1
        return {"step_id": self.last, **stamp_of(event), "source": source, "message": message}


def _reasoning(thinking: Sequence[Fields]) -> Fields:
    """Return the field of a step with the model's thinking."""
    thought = "\n".join(text_or_empty(block, "thinking") for block in thinking)
    return {"reasoning_content": thought} if thought else {}


_TOTALS = ("prompt_tokens", "cached_tokens", "completion_tokens")
"""The counts in the totals of a trajectory."""


def _own_totals(trajectory: Fields) -> Fields:
    """Return the totals of a trajectory without the totals of its sub-agents, which Harbor adds."""
    own = {**dict_or_empty(trajectory, "final_metrics")}
    for held in dicts_in(trajectory, "subagent_trajectories"):
        for name, total in dict_or_empty(held, "final_metrics").items():
            if type(total) in (int, float) and type(own.get(name)) in (int, float):
                # a total below its part was not added up
                own[name] -= total if total <= own[name] else 0
    return own


def _calls(events: Iterable[Event]) -> Iterator[ModelCall]:
    """Yield the calls of models, and the totals of the trajectory as one call."""
    listed = list(events)
    model = UNNAMED
    final = Fields()
    session = None
    calls = [*calls_of_replies(listed)]
    replies = [event for event in listed if begins_call(event, None)]
    trajectories = (
        event for event in listed if isinstance(event, Annotation) and event.name == "trajectory"
    )
    for event in trajectories:
        session = session or within(event.data, "trajectory_id") or within(event.data, "session_id")
        # the totals of a trajectory with copies count the copies again
        if not is_copy(event):
            final = _own_totals(event.data)
            about = dict_or_empty(event.data, "agent")
            if about:
                model = model_named({"model": about.get("model_name")})
    usage = usage_of({name: final.get(f"total_{name}") for name in _TOTALS})
    cost = cost_of(final.get("total_cost_usd")) or None
    if usage or cost:
        number = len({getattr(event, "response_id", None) or event.id for event in replies})
        calls.append(
            call_of_event([*listed, *replies][-1], model, usage, cost, number)._replace(
                is_total=True
            )
        )
    steps = {event.id: id_of_source(event) for event in listed}
    yield from (
        call._replace(reply=f"{session} {steps[call.event_id]}" if session else None)
        for call in calls
    )


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=_accepts,
    expected="a step",
    decoder=_Decoder,
    encoder=_Encoder,
    lacks=frozenset(
        (
            "error mark",
            "image",
            "file",
            "call of a server's tool",
            "part of another type",
            "mark of a cache",
            "signature of thinking",
            "item of reasoning",
            "form of a custom tool's call",
            "count of tokens",
            "cost",
            "field of a chat message",
            "field of a chat call",
        )
    ),
    files=_Trajectories(),
    document=_document,
    recorded_usage=RecordedUsage(calls=_calls),
    source_id=member("step_id"),
    marks_errors=False,
)
