"""A recorded run that answers for the model, call by call."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Self, TypeAlias, get_args

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._history.histories import open as open_histories
from foldlog._history.history import History
from foldlog._history.sent_requests import beside_of
from foldlog._reports.as_sent import sent
from foldlog._reports.replays import Replay, replay as replay_events
from foldlog._reports.words.gist import count
from foldlog._testing.answers import answer_of
from foldlog._testing.calls import (
    RecordedCall,
    groups_of_parallel_results,
    recorded_calls,
    recorded_results,
    take_result,
)
from foldlog._testing.condensing_differences import condensing_difference
from foldlog._testing.differences import (
    NOTED,
    PLACEHOLDER,
    RunDiffers as RunDiffers,
    beside_differences,
    first_difference,
    has_parameters,
    is_same,
    name_differences,
    name_of,
)
from foldlog._testing.prompts import (
    AskedPrompt,
    PromptReader,
    answering_parameters,
    prompt_of,
    unpaired,
    with_groups_of_results,
    with_recorded_cuts,
)
from foldlog._testing.run_file import Run, read_run
from foldlog._testing.server import ModelServer
from foldlog.condensers import Condenser
from foldlog.eventstore import Action, Content, EventStoreError, InvalidArgument
from foldlog.eventstore.arguments import check_whole
from foldlog.formats.record import joined_text
from foldlog.formats.replies import events_of_reply
from foldlog.projections import Dialect, View, as_json

Ignored: TypeAlias = Literal["ids", "times", "system", "tools", "parameters"]
_IGNORED: Sequence[str] = get_args(Ignored)
_WAITING_MAX = 3
"""The maximum number of recorded calls that the error about another call names."""
Model: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""Gets the body of a request, and returns the reply of a model as ``append_reply`` accepts it."""


class ToolFailed(EventStoreError):
    """A recorded call of a tool failed. ``content`` is its result, and the text of the error is the
    text of the result.
    """

    def __init__(self, content: Content) -> None:
        super().__init__(joined_text(content))
        self.content = content


class RecordedRun:
    """A recorded run that answers for the model, call by call, from any thread. Each request must
    equal the recorded request.

    ``calls`` are the recorded calls of the model, and ``history`` is the recorded history.
    ``notes`` say what the run did not record, and therefore does not check. ``failure`` is the
    difference at which the replay stopped.

    Args:
        run: A file that ``foldlog export --as-test`` wrote, or a store with the id of a
            ``conversation``, or a ``History``.
        conversation: The id of a conversation in the store ``run``.
        ignore: What may differ: ``ids``, ``times``, the ``system`` prompt, the ``tools`` and the
            ``parameters``.
        until: After so many calls, ``then`` answers the requests. Without ``then``, the run ends
            there.
        then: Answers in place of the run, for example another model.
        update: Whether the file gets the system prompts and tools that the run did not record.

    Raises:
        InvalidArgument: An argument is wrong, or the history has no reply of a model. Also raises
            the errors of ``foldlog.open``.
    """

    def __init__(
        self,
        run: str | os.PathLike[str] | History,
        conversation: str | None = None,
        *,
        ignore: Collection[Ignored] = (),
        until: int | None = None,
        then: Model | None = None,
        update: bool = False,
    ) -> None:
        if not {*ignore} <= {*_IGNORED}:
            raise InvalidArgument(f"ignore is {ignore!r}; list any of {', '.join(_IGNORED)}")
        self._open = ExitStack()
        self._path: Path | None = None
        self._run = Run("", {}, [])
        try:
            self.history = self._open_history(run, conversation)
            self.calls: Sequence[RecordedCall] = self._calls_before(until)
            self._results = recorded_results(self.history)
            self._groups = groups_of_parallel_results(self.history.events())
        except BaseException:
            self._open.close()
            raise
        self.notes: list[str] = []
        self._ignore = ignore
        self._then = then
        self._update = update
        self._lock = Lock()
        self._asked = 0
        self._view = View.from_events(())
        self._readers = PromptReader(ignore), PromptReader(ignore)
        self._recorded_tools = set[str]()
        self._is_closed = False
        self.failure: Exception | None = None

    def _open_history(
        self, run: str | os.PathLike[str] | History, conversation: str | None
    ) -> History:
        """Return the recorded history. If its store is opened here, ``close`` closes the store."""
        if isinstance(run, History):
            return run
        if conversation is not None:
            url = os.fspath(run)
            if "://" not in url and not os.path.exists(url):
                raise InvalidArgument(f"there is no store {url}")
            return self._open.enter_context(open_histories(url))[conversation]
        self._path = Path(run)
        self._run = read_run(self._path)
        history = self._open.enter_context(open_histories("memory:"))[self._run.id]
        self._run.fill(history)
        return history

    def _calls_before(self, until: int | None) -> Sequence[RecordedCall]:
        """Return the first ``until`` calls of the model, or all. Raises ``InvalidArgument`` if
        there is no call, or if there are fewer.
        """
        calls = recorded_calls(self.history)
        if not calls:
            raise InvalidArgument(f"{self.history.id!r} has no reply of a model")
        if until is not None and not 0 <= check_whole("until", until) <= len(calls):
            raise InvalidArgument(
                f"until is {until}, and {self.history.id!r} has {count(len(calls), 'call')} of a"
                " model"
            )
        return calls[:until]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.close(check=kind is None)

    def close(self, *, check: bool = True) -> None:
        """Stop the server. Raises ``RunDiffers`` if a request differed, or if the program asked for
        fewer calls than the run has. A second ``close`` does nothing.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._open.close()
        if self._path is not None and self._update and self.notes:
            self._run.without_secrets()[0].write(self._path)
        elif check:
            for note in self.notes:
                warnings.warn(f"{note}, so they are not compared", stacklevel=3)
        if not check:
            return
        if self.failure is not None:
            raise self.failure
        if self._asked < len(self.calls):
            raise RunDiffers(
                f"{self.history.id}: the program asked {self._asked} of {len(self.calls)} recorded"
                f" calls, and stopped before the reply in event"
                f" {self.calls[self._asked].reply[0].id}"
            )

    @cached_property
    def server(self) -> ModelServer:
        """A server on this machine that answers from the run, until ``close``."""
        server = ModelServer(self.answer)
        self._open.callback(server.close)
        return server

    @property
    def url(self) -> str:
        """The address of a server on this machine that answers from the run. It has no ``/v1`` at
        its end, as Anthropic's SDK wants it; OpenAI's SDK wants ``url + "/v1"``.
        """
        return self.server.url

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that lead OpenAI's and Anthropic's SDKs to the server."""
        return {
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": "recorded",
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "recorded",
        }

    def __call__(
        self, messages: Sequence[JsonMap], *, dialect: Dialect = "openai", **body: Any
    ) -> JsonObject:
        """Answer a request: the messages, and as keywords whatever the program sends beside them,
        such as ``tools`` and ``model``. Return the answer of the API that accepts ``dialect``.
        """
        name = "input" if dialect == "responses" else "messages"
        return self.answer({name: [*messages], **body}, dialect)

    def answer(self, body: JsonMap, dialect: Dialect) -> JsonObject:
        """Answer the body of a request. Raises ``RunDiffers`` if it differs from the record."""
        __tracebackhide__ = True
        with self._lock:
            if self.failure is not None:
                raise self.failure
            if self._asked < len(self.calls):
                call = self.calls[self._asked]
                try:
                    self._check(call, prompt_of(body, dialect))
                    self._check_tools(call)
                except Exception as error:
                    self.failure = error
                    raise
                self._asked += 1
                return answer_of(call.reply, dialect, call.number)
            if self._then is None:
                self.failure = RunDiffers(
                    f"{self.history.id}: the run has {count(len(self.calls), 'call')} of the model,"
                    " and the program asked once more"
                )
                raise self.failure
        reply = events_of_reply(self.history.id, self._then(body))
        return answer_of(reply, dialect, len(self.calls) + 1)

    def _check(self, call: RecordedCall, asked: AskedPrompt) -> None:
        """Raise ``RunDiffers`` if a request differs from the recorded request of a call."""
        __tracebackhide__ = True
        view = self._view_at(call.version)
        differences = self._differences(call, view, asked)
        if differences:
            raise RunDiffers(
                f"{self.history.id}: call {call.number} of {len(self.calls)} (event"
                f" {call.reply[0].id}) differs from the recorded run:\n  "
                + "\n  ".join(differences)
                + f"\n  there the run knew {count(len(view), 'event')}:"
                f" foldlog view {self.history.id} --at {call.version}"
            )

    def _check_tools(self, call: RecordedCall) -> None:
        """Raise ``RunDiffers`` if a real tool would run with a placeholder as its argument."""
        for action in call.reply:
            if not isinstance(action, Action) or action.tool in self._recorded_tools:
                continue
            if placeholder := PLACEHOLDER.search(as_json(action.arguments)):
                raise RunDiffers(
                    f"{self.history.id}: the call of {action.tool} in event {action.id} has"
                    f" {placeholder[0]} in place of an argument, with which no real tool must run;"
                    f" answer the tool from the record: recorded.tool({action.tool!r})"
                )

    def _differences(self, call: RecordedCall, view: View, asked: AskedPrompt) -> list[str]:
        """Return how a request differs from the recorded request of a call. Note what the run has
        not recorded. ``view`` is the View that was sent.
        """
        dialect: Dialect = call.request.get("dialect", asked.dialect)
        name = "input" if dialect == "responses" else "messages"
        body = {name: view.to_messages(dialect)}
        recorded = prompt_of(body, dialect)
        system = view.system_prompt if dialect.startswith("anthropic") else recorded.system
        beside = self._run.beside_call(call.number) | beside_of(self.history, call.reply)
        # A runtime's instructions are no event.
        system = system or beside.get("parameters", {}).get("instructions", "")
        if system:
            beside["system"] = system
        self._note_unrecorded(call, beside, asked)
        differences = [*beside_differences(beside, asked, self._ignore)]
        if has_parameters(beside) or any(map(name_of, view)):
            differences.extend(name_differences(view, asked))
        return differences + self._message_differences(call, view, recorded, asked)

    def _note_unrecorded(self, call: RecordedCall, beside: JsonMap, asked: AskedPrompt) -> None:
        """Note what was sent beside the messages, as far as the run has not recorded it."""
        parameters = answering_parameters(asked.parameters)
        if self._update and "model" in asked.parameters:
            parameters["model"] = asked.parameters["model"]
        sent_beside: dict[str, Any] = {
            "system": asked.system,
            "tools": asked.tools,
            "parameters": parameters,
        }
        for name, value in sent_beside.items():
            if value and not _has_recorded(beside, name) and name not in self._ignore:
                # what the run has of its parameters is their instructions
                has = beside.get(name, {}) if name == "parameters" else {}
                self._note(call, name, {**has, **value} if has else value)
                if name == "parameters" and self._path is not None and self._update:
                    self._run.note(call.number, NOTED, sorted({*beside.get(NOTED, ()), *value}))

    def _message_differences(
        self, call: RecordedCall, view: View, recorded: AskedPrompt, asked: AskedPrompt
    ) -> list[str]:
        """Return how the messages of two prompts differ."""
        if recorded.messages == asked.messages:
            return []
        reader_of_ours, reader_of_theirs = self._readers
        ours = reader_of_ours.read(recorded.messages, asked.dialect)
        theirs = reader_of_theirs.read(asked.messages, asked.dialect)
        ours = with_groups_of_results(ours, self._groups)
        theirs = with_groups_of_results(theirs, self._groups)
        if self._ignore:
            theirs = with_recorded_cuts(theirs, ours)
        differences: list[str] = []
        if ours != theirs and (
            difference := condensing_difference(ours, theirs, self.history.events(), call.version)
        ):
            differences.append(difference)
        if difference := first_difference("message", ours, theirs):
            differences.append(difference)
        alone = reader_of_theirs.unpaired()
        if alone:
            # A program that does not use foldlog may send them, as it did in the recorded run.
            expected = unpaired(view)
            alone = [text for text in alone if not any(is_same(other, text) for other in expected)]
        return differences + alone

    def _view_at(self, version: int) -> View:
        """Return the View of a version as it was sent. The Views of a run grow, so the messages of
        the last View are not rendered again.
        """
        if version < self._view.version:
            self._view = self.history.at(version)
        else:
            self._view = self._view.then(self.history.events(self._view.version, version))
        return sent(self.history._store, self.history.id, self._view).sent

    def _note(self, call: RecordedCall, name: str, value: Any) -> None:
        """Note a value that the run has not recorded, in its file if it is updated."""
        if self._path is not None and self._update:
            self._run.note(call.number, name, value)
        note = f"{self.history.id} has not recorded the {name} of its requests"
        if note not in self.notes:
            self.notes.append(note)

    def tool(self, name: str) -> Callable[..., Any]:
        """Return a function that stands for a tool, and answers from the record: each recorded call
        once, with equal arguments. The function raises ``ToolFailed`` if the recorded call failed,
        and ``RunDiffers`` for a call that the run does not have.
        """

        def recorded_tool(**arguments: Any) -> Any:
            with self._lock:
                result = take_result(self._results, name, arguments)
            if result is None:
                waiting = [call.arguments for call, _ in self._results if call.tool == name]
                raise RunDiffers(
                    f"{self.history.id}: {name} was called with {arguments!r}; the run still has"
                    f" {waiting[:_WAITING_MAX]!r}"
                )
            if result.is_error:
                raise ToolFailed(result.content)
            return result.content

        self._recorded_tools.add(name)
        recorded_tool.__name__ = name
        return recorded_tool

    def under(self, condenser: Condenser) -> Replay:
        """Return the same run under another condenser: what its prompts cost, which events and
        facts they lost (``lost``, ``missing``), and how many needed facts they show.
        """
        return replay_events(self.history.events(), condenser)


def _has_recorded(beside: JsonMap, name: str) -> bool:
    """Return whether a run has recorded the value ``name`` of a call. Instructions alone, which are
    recorded among the parameters, are no parameters.
    """
    return name in beside and (name != "parameters" or {*beside[name]} != {"instructions"})


replay = RecordedRun
