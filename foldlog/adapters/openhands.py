"""Store conversations of the OpenHands SDK in foldlog, and use foldlog's condensers in its agents.

    store = FoldlogFileStore("sqlite:///history.db", conversation_id)
    conversation = LocalConversation(
        agent, workspace, conversation_id=conversation_id, file_store=store
    )

An event file is stored as events, in the format ``openhands-v1``. ``base_state.json`` and other
files are stored as documents. The View is the branch that the SDK shows its model.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any
from uuid import UUID, uuid4

from openhands.sdk.context.condenser.base import CondenserBase, NoCondensationAvailableException
from openhands.sdk.context.view import View as SdkView
from openhands.sdk.event import ActionEvent, MessageEvent
from openhands.sdk.event.condenser import Condensation as SdkCondensation
from openhands.sdk.io import FileStore
from openhands.sdk.llm import LLM, ImageContent, TextContent
from openhands.sdk.tool import Observation as ToolObservation, ToolExecutor
from pydantic import Field, field_validator

from foldlog import History
from foldlog.adapters._records.openhands_files import (
    EventFiles,
    is_below,
    normal_path,
    parse_json,
    source_id_of,
)
from foldlog.adapters._shared import (
    Attributes,
    StoreOrUrl,
    WithHistories,
    document,
    effect_of,
    quote_id,
)
from foldlog.condensers import (
    ESTIMATE,
    Condensation,
    Condenser,
    NoCondensationAvailable,
    condenser_from_config,
    default_condenser,
    is_masked,
    stepping,
)
from foldlog.condensers.reports import tell_of_failures
from foldlog.eventstore import (
    DELETED,
    Action,
    CondensationRequest,
    Event,
    InvalidArgument,
    InvalidEvent,
    Message,
    Observation,
)
from foldlog.eventstore.errors import count
from foldlog.formats import decode
from foldlog.projections import View
from foldlog.runtimes import REDACTED, Fields, blocks_of, json_text, values_in

_EVENTS = "events"
"""The folder of the event files."""
_STATE = "base_state.json"
"""The file with the SDK's state, which names the head of the conversation."""
_EVENT_FILE = re.compile(r"events/event-(\d{5,})-([^/]+)\.json")
# A file with which the SDK notes the number of event files. It is not stored.
_MARKER = re.compile(r"events/\.eventlog-len-(\d+)\.marker")


class FoldlogFileStore(WithHistories, FileStore):
    """Stores the files of a conversation. Many threads, processes and stores may use the same
    conversation.

        histories        the URL of a store, or open histories, sync or async
        conversation_id  the SDK's id of the conversation; its id in foldlog is ``PREFIX/ID``
        attributes       attributes of a new conversation, such as ``{"user": "u7", "title":
                         "Refunds"}``

    If ``histories`` is a URL, ``close`` or ``with`` closes the store. An event file is written
    once, and cannot be changed or deleted. ``histories.erase`` erases the whole conversation.
    """

    def __init__(
        self,
        histories: StoreOrUrl,
        conversation_id: str | UUID,
        *,
        prefix: str = "openhands",
        attributes: Attributes = None,
    ) -> None:
        super().__init__(histories, attributes)
        self.history = self._sync[f"{prefix}/{quote_id(str(conversation_id))}"]
        self._files = EventFiles(self.history)
        self._listed_files: int | None = None
        """How many event files there were when the SDK last looked. The SDK gives this number to
        the next event file.
        """
        self._lock = RLock()
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)

    def write(self, path: str, contents: str | bytes) -> None:
        """Write a file. The file is on disk when the method returns.

        If the conversation was erased before this object used it, it begins again. Errors:

            InvalidEvent          an event file contains no event, or the log already has an event
                                  with its number
            ValueError            the contents are not UTF-8
            ConversationErased    the conversation was erased after this object used it
        """
        path = normal_path(path)
        text = contents if isinstance(contents, str) else contents.decode()
        named = _EVENT_FILE.fullmatch(path)
        with self._lock:
            self._begin_again()
            if named:
                self._write_event(path, int(named[1]), named[2], text)
            elif not _MARKER.fullmatch(path):
                value = parse_json(text) if path == _STATE else text
                if isinstance(value, dict):
                    self._files.write_state(path, value)
                else:
                    self._files.follow(self.history.append((), documents={path: value}))

    def with_effects(
        self, executor: ToolExecutor[Any, Any], observation: type[ToolObservation]
    ) -> ToolExecutor[Any, Any]:
        """Return an executor that runs the tool at most once for each call. ``foldlog.effect`` must
        mark the ``__call__`` of ``executor``. ``observation`` is the tool's class of results: if
        the call is not run, for example because an earlier worker began it, the executor returns
        the reason as an error of this class.
        """
        return _Executor(self, executor, observation)

    def copy_from(self, files: FileStore) -> int:
        """Copy a conversation from another store of the SDK. Return the number of new events.

        A second copy adds only new events. Raises ``InvalidEvent`` if the events in ``files`` do
        not begin with the events of this conversation.
        """
        to_copy = sorted(
            (int(named[1]), named[2])
            for path in files.list(_EVENTS)
            if (named := _EVENT_FILE.search(path))
        )
        paths = [f"{_EVENTS}/event-{number:05d}-{source_id}.json" for number, source_id in to_copy]
        with self._lock:
            self._files.catch_up()
            event_count = len(self._files.names)
            is_complete = [number for number, _ in to_copy] == [*range(len(to_copy))]
            if not is_complete or paths[:event_count] != self._files.names:
                problem = (
                    f"an event of the {count(len(to_copy), 'event')} to copy is missing or differs"
                )
                raise InvalidEvent(
                    f"conversation {self.history.id!r} has {count(event_count, 'event')};"
                    f" {problem}; nothing was copied"
                )
            self._files.append_all(parse_json(files.read(path)) for path in paths[event_count:])
            if files.exists(_STATE):
                self.write(_STATE, files.read(_STATE))
        return len(paths) - event_count

    def read(self, path: str) -> str:
        """Return a file's text. Raises ``FileNotFoundError`` if the file does not exist."""
        path = normal_path(path)
        named = _EVENT_FILE.fullmatch(path)
        with self._lock:
            self._files.catch_up()
            if named and (event := self._files.text(named[2])) is not None:
                return event
            if (
                path in self._files.documents
                and (value := document(self.history, path)) is not None
            ):
                if path == _STATE and self.history.document(path) == REDACTED:
                    # A state from before the redaction has an old head.
                    value = {**value, "leaf_event_id": self._files.head}
                return json_text(value)
        raise FileNotFoundError(path)

    def list(self, path: str) -> list[str]:
        """Return the paths of the files and folders in a folder. The path of a folder ends with a
        slash.
        """
        path = normal_path(path)
        with self._lock:
            names = self._names()
            self._listed_files = len(self._files.names)
        start = f"{path}/" if path else ""
        if path in names:
            return [path]
        below = (
            name.removeprefix(start).partition("/") for name in names if name.startswith(start)
        )
        return [*dict.fromkeys(f"{start}{first}{slash}" for first, slash, _ in below)]

    def delete(self, path: str) -> None:
        """Delete a file, or all files in a folder. Raises ``InvalidEvent`` if one of the files is
        an event.
        """
        path = normal_path(path)
        with self._lock:
            deleted = [name for name in self._names() if name == path or is_below(name, path)]
            if not self._files.documents.issuperset(deleted):
                raise InvalidEvent(
                    f"conversation {self.history.id!r}: an event cannot be deleted; nothing was"
                    " deleted; to erase the conversation, call"
                    f" histories.erase({self.history.id!r}, reason=...)"
                )
            if deleted:
                self._files.follow(
                    self.history.append((), documents=dict.fromkeys(deleted, DELETED))
                )

    def exists(self, path: str) -> bool:
        """Return whether there is a file or a folder with this path."""
        path = normal_path(path)
        marker = _MARKER.fullmatch(path)
        with self._lock:
            names = self._names()
            if marker is None:
                return any(name == path or is_below(name, path) for name in names)
            if int(marker[1]) != len(self._files.names):
                return False
            self._listed_files = len(self._files.names)
            return True

    def get_absolute_path(self, path: str) -> str:
        """Return an absolute name for a file of the store. No file on disk has this path."""
        return f"foldlog:{self.history.id}/{normal_path(path)}"

    @contextmanager
    def lock(self, path: str, timeout: float = 30.0) -> Iterator[None]:
        """Hold a lock for a ``with`` block. Raises ``TimeoutError`` after ``timeout`` seconds.

        The lock excludes only other threads that use this object. Other processes need no lock,
        because an event is always appended at the end.
        """
        lock = self._locks[normal_path(path)]
        if not lock.acquire(timeout=timeout):
            raise TimeoutError(
                f"conversation {self.history.id!r}: {path!r} was locked for {timeout} s; try again"
            )
        try:
            yield
        finally:
            lock.release()

    def _begin_again(self) -> None:
        """If the conversation was erased before this object used it, begin it again."""
        if not self._files.version:
            history, _ = self._append_or_begin(self.history, History.version)
            if history is not self.history:
                self.history = history
                self._files = EventFiles(history)

    def _names(self) -> Sequence[str]:
        """Return the paths of all files."""
        self._files.catch_up()
        return [*self._files.names, *sorted(self._files.documents)]

    def _write_event(self, path: str, number: int, source_id: str, text: str) -> None:
        """Append the event of a file. ``number`` and ``source_id`` are from the name of the
        file.
        """
        record = parse_json(text)
        if not isinstance(record, dict) or record.get("id") != source_id:
            raise InvalidEvent(
                f"{path}: the contents are not an event with the id {source_id!r}; nothing was"
                " written"
            )
        self._files.catch_up()
        listed_count = len(self._files.names) if self._listed_files is None else self._listed_files
        if number < listed_count or self._files.has(source_id):
            raise InvalidEvent(
                f"{path}: conversation {self.history.id!r} already has"
                f" {count(len(self._files.names), 'event')}, and an event cannot be replaced;"
                " nothing was written; open the conversation again"
            )
        self._files.append([record])


class _Executor(ToolExecutor[Any, Any]):
    """Runs a tool at most once for each call: see ``FoldlogFileStore.with_effects``."""

    def __init__(
        self,
        store: FoldlogFileStore,
        executor: ToolExecutor[Any, Any],
        observation: type[ToolObservation],
    ) -> None:
        self._store = store
        self._executor = executor
        self._observation = observation
        self._lock = Lock()
        self._begun: set[str] = set()
        """The ids of the calls that this executor has run."""

    def __call__(self, action: Any, conversation: Any = None) -> Any:
        with self._lock:
            call = self._call_with(action, conversation)
            self._begun.add(call.tool_call_id)
        with effect_of(
            self._store,
            self._store.history.id,
            call.tool_call_id,
            call.tool_name,
            call.action.model_dump(),
        ):
            result = self._executor(action, conversation)
        if isinstance(result, str):
            return self._observation.from_text(result, is_error=True)
        return result

    def _call_with(self, action: Any, conversation: Any) -> Any:
        """Return the first call with this action in the newest reply that has one, leaving out the
        calls that have begun, because a reply may contain the same call twice. If all have begun,
        return the last. Raises ``InvalidArgument`` if no call has this action.
        """
        begun = {*self._begun}
        calls = list[Any]()
        events: Any = () if conversation is None else conversation.state.events
        for event in reversed(events):
            if not isinstance(event, ActionEvent):
                begun.add(getattr(event, "tool_call_id", ""))
            elif calls and event.llm_response_id != calls[0].llm_response_id:
                break
            elif event.action == action:
                calls.append(event)
        if not calls:
            raise InvalidArgument(
                f"conversation {self._store.history.id!r}: no call has the action {action!r}, and a"
                " tool that foldlog.effect marks runs at most once for each call; let the agent"
                " call the tool, or run a tool without foldlog.effect"
            )
        waiting = (call for call in reversed(calls) if call.tool_call_id not in begun)
        return next(waiting, calls[0])

    def close(self) -> None:
        self._executor.close()


class FoldlogCondenser(CondenserBase):
    """Uses a condenser of foldlog in an agent of the SDK: ``Agent(llm=llm,
    condenser=FoldlogCondenser())``.

    ``config`` chooses and configures the condenser, for example ``{"type": "digest", "max_size":
    100}``. Without ``config``, foldlog's default condenser is used, which needs no model. The SDK
    stores ``config``, so it must not contain the key of a model. Set the key in the environment.
    The condenser also keeps the estimated tokens of the prompt below the limit of the agent's
    model.
    """

    config: Fields = Field(default_factory=dict)

    @field_validator("config")
    @classmethod
    def _without_keys(cls, config: Fields) -> Fields:
        if any(isinstance(value, dict) and "api_key" in value for _, value in values_in(config)):
            raise ValueError(
                "config holds an api_key, which the SDK would store; set the key in the environment"
            )
        _condenser_of(config)  # raises an error for a wrong configuration
        return config

    def handles_condensation_requests(self) -> bool:
        """Return whether the condenser fulfils condensation requests."""
        return _condenser_of(self.config).handles_condensation_requests()

    async def acondense(
        self, view: SdkView, agent_llm: LLM | None = None
    ) -> SdkView | SdkCondensation:
        """Call ``condense`` in a worker thread."""
        return await asyncio.to_thread(self.condense, view, agent_llm)

    def condense(self, view: SdkView, agent_llm: LLM | None = None) -> SdkView | SdkCondensation:
        """Return the view for the agent's next step, or a condensation. Raises the SDK's
        ``NoCondensationAvailableException`` if a required condensation is impossible.
        """
        records = [json.loads(event.model_dump_json(exclude_none=True)) for event in view.events]
        for record in records:
            record.pop("parent_id", None)  # the view has only one branch
        events = list(decode(records, format="openhands-v1"))
        if view.unhandled_condensation_request:
            events.append(CondensationRequest(id=len(events)))
        shown = View.from_events(events)
        model = None if agent_llm is None else _Model(agent_llm)
        condenser = _condenser_of(self.config)
        try:
            result, reports = stepping.step(condenser, shown, model)
        except NoCondensationAvailable as error:
            tell_of_failures("of the SDK", condenser.type, error.reports)
            raise NoCondensationAvailableException(str(error)) from error
        tell_of_failures("of the SDK", condenser.type, reports)
        if isinstance(result, Condensation):
            return _as_sdk_condensation(result, shown, view)
        return _as_sdk_view(result, shown, view)


class _Model:
    """The agent's model with its limits, and with estimated token counts."""

    def __init__(self, llm: LLM) -> None:
        self.model = str(llm.model)
        self.max_input_tokens: int | None = llm.max_input_tokens
        self.max_output_tokens: int | None = llm.max_output_tokens
        self.token_sums = ESTIMATE.token_sums


def _as_sdk_condensation(result: Condensation, shown: View, view: SdkView) -> SdkCondensation:
    """Return a condensation with the SDK's ids. The offset is the index of the summary in the SDK's
    new view.
    """
    action = result.action
    intervals, summaries = action.forgotten
    remaining = [
        event
        for event in shown.events
        if event.id not in summaries
        and not any(first <= event.id <= last for first, last in intervals)
    ]
    forgotten_ids = {event.id for event in view.events}.difference(map(source_id_of, remaining))
    offset = action.summary_offset
    if offset is not None:
        places = [event.id for event in view.events if event.id not in forgotten_ids]
        if offset >= len(remaining):
            offset = len(places)
        else:
            offset = places.index(source_id_of(remaining[offset]))
    reply = action.metadata.get("response_id") or f"foldlog-{uuid4()}"
    about = {"summary": action.summary, "summary_offset": offset, "llm_response_id": reply}
    return SdkCondensation(forgotten_event_ids=forgotten_ids, **about)


def _as_sdk_view(result: View, shown: View, view: SdkView) -> SdkView:
    """Return the SDK's view without the events that ``result`` hides, and with its masks. ``shown``
    is the View before the condenser changed it.
    """
    hidden = {source_id_of(event) for event in shown}.difference(map(source_id_of, result))
    masks = {source_id_of(event): event for event in result if is_masked(event)}
    if not masks and not hidden:
        return view
    events = [
        _apply_mask(event, masks.get(event.id)) for event in view.events if event.id not in hidden
    ]
    return view.model_copy(update={"events": events})


def _apply_mask(event: Any, mask: Event | None) -> Any:
    """Return an event of the SDK with the content of a masked event."""
    if isinstance(mask, Action) and isinstance(event, ActionEvent):
        call = event.tool_call.model_copy(update={"arguments": json_text(mask.arguments)})
        return event.model_copy(update={"tool_call": call})
    if not isinstance(mask, Observation | Message):
        return event
    blocks = [
        TextContent(**block) if block["type"] == "text" else ImageContent(**block)
        for block in blocks_of(mask.content)
    ]
    message = event.to_llm_message().model_copy(update={"content": blocks})
    return MessageEvent(id=event.id, source=event.source, llm_message=message)


def _condenser_of(config: Fields) -> Condenser:
    return condenser_from_config(config) if config else default_condenser()
