"""``foldlog replay``: make the requests of a run again, or go on with another model."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import msgspec

from foldlog._app.cli import terminal
from foldlog._app.cli.agent_model import load_condenser_for
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.hints import command
from foldlog._app.cli.options import conversation_argument, option, store_options
from foldlog._app.cli.stores import open_existing, require_id
from foldlog._history.histories import Histories
from foldlog._history.history import History
from foldlog._reports.answers.runs import CheckedRequestDocument, ReplayedDocument
from foldlog._reports.words.gist import count
from foldlog._testing.calls import RecordedCall, recorded_calls
from foldlog._testing.going_on import Ask, go_on
from foldlog.eventstore import EventStoreError
from foldlog.projections import ModelRequest


@conversation_argument
@option(
    "--until",
    "N",
    "Keep the first N calls of the model.",
    show_default="0 with --then or --condenser, or else all calls",
)
@option(
    "--then",
    "MODEL",
    "Who answers the calls after N: a model of litellm, or a command that reads a request from"
    " stdin and prints the reply, both as JSON of OpenAI's chat completions.",
)
@option(
    "--condenser",
    "FILE",
    "A TOML file with [condenser], which condenses after N. Without --then, the recorded"
    " replies are used.",
)
@store_options
def run(
    conversation: str,
    until: int | None,
    then: str | None,
    condenser: Path | None,
    db: str,
) -> None:
    """Make each request of a run again, and say whether it has the same bytes.

    With --then or --condenser, record a new run in a fork, with another model or condenser after N
    calls. Tools do not run: their results and the user's messages come from the record. The fork
    ends at the first call that the run does not have. To see both runs beside each other, run
    'foldlog diff'.

    Example: foldlog replay tidewatch --until 3 --condenser small.toml
    """
    with open_existing(db) as store:
        conversation = require_id(store, conversation)
        chosen = None if condenser is None else load_condenser_for(condenser, None)
        history = Histories(store, condenser=chosen)[conversation]
        calls = recorded_calls(history)
        if not calls:
            raise Refused(f"{conversation!r} has no reply of a model")
        goes_on = then is not None or condenser is not None
        first, last = (0, len(calls) - 1) if goes_on else (1, len(calls))
        if until is None:
            until = 0 if goes_on else last
        if not first <= until <= last:
            raise Refused(
                f"{history.id!r} has {count(len(calls), 'call')} of a model, and --until is"
                f" {until}; name a number from {first} to {last}"
            )
        if goes_on:
            ask = None if then is None else _asking(then)
            document = _go_on(history, calls[until].version, ask)
        else:
            document = _check(history, calls[:until])
    terminal.answer(document, lambda: _show(document))


def _check(history: History, calls: list[RecordedCall]) -> ReplayedDocument:
    """Make the requests of some calls again, and compare them with the recorded ones."""
    checked = []
    for call in calls:
        made = history.sent_request(call.reply[0].id)
        checked.append(CheckedRequestDocument.of(made, call=call.number, event=made.event_id))
    return ReplayedDocument(conversation=history.id, requests=tuple(checked))


def _go_on(history: History, at: int, ask: Ask | None) -> ReplayedDocument:
    """Record the rest of a run in a fork. Without ``ask``, the recorded replies are used."""
    if at == 0:
        raise Refused(f"{history.id!r} begins with a reply; keep this reply with --until 1")
    fork = history.fork(at)
    try:
        ended = go_on(history, fork, at, ask)
    except (EventStoreError, Refused) as error:
        raise Refused(
            f"{error}; the fork {fork.id!r} has the run up to here; to remove it:"
            f" {command('store erase', fork.id, '--reason', 'failed replay')}"
        ) from error
    return ReplayedDocument(
        conversation=history.id, fork=fork.id, version=fork.version(), ended=ended
    )


def _asking(then: str) -> Ask:
    """Return a function that asks a command or a model for its next reply. Raises ``Refused`` if
    ``then`` is empty, or has a quotation mark without its end.

    The returned function raises ``Refused`` if the command cannot be started, fails, or prints no
    JSON.
    """
    try:
        words = shlex.split(then)
    except ValueError as error:
        raise Refused(f"--then is no command line ({error}): {then}") from error
    if not words:
        raise Refused("--then is empty; name a model or a command")
    if shutil.which(words[0]) is not None:

        def run_command(request: ModelRequest) -> object:
            body = msgspec.json.encode({"messages": request.messages, "tools": [*request.tools]})
            try:
                ran = subprocess.run(words, input=body, capture_output=True, check=False)
            except OSError as error:
                raise Refused(f"{then} cannot be started: {error.strerror}") from error
            if ran.returncode:
                problem = ran.stderr.decode(errors="replace")[-500:]
                raise Refused(f"{then} ended with {ran.returncode}: {problem}")
            try:
                return msgspec.json.decode(ran.stdout)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise Refused(f"{then} printed no reply as JSON: {ran.stdout[:200]!r}") from error

        return run_command
    from foldlog.condensers import LLM, LLMConfig

    model = LLM(LLMConfig(model=then))
    return lambda request: model.complete(request.messages, tools=request.tools)


def _show(document: ReplayedDocument) -> None:
    """Print the fork, or the requests that differ."""
    if document.fork:
        fork = terminal.typed_id(document.fork)
        terminal.say(f"{fork}: {count(document.version, 'event')}; {document.ended}")
        terminal.say(command("diff", document.conversation, document.fork))
        return
    for request in document.requests:
        if request.same is not True:
            problem = "; ".join(request.changes) or "not recorded"
            terminal.say(f"call {request.call} (event {request.event}): {problem}")
    same = sum(request.same is True for request in document.requests)
    terminal.say(f"{same} of {count(len(document.requests), 'request')} with the same bytes")
