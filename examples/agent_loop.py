"""A small agent that works in a folder with a shell, and never outgrows its model's context.

    python examples/agent_loop.py "why does the test fail? fix it" --model openai/gpt-4o-mini \\
        --folder .
    python examples/agent_loop.py "anything" --rehearse

Everything that happens is appended to a history, and what the model is shown is that history's
View. Before each call of the model a condenser may forget: because the View has grown too large,
because the model asked for it with a tool, or because its server refused the prompt as too long.
Nothing is lost by that: the log keeps it all, and `foldlog log agent --db foldlog.db` shows it.
Started again with the same conversation, the agent goes on where it stood; a call that was running
when it died is not made again: its result says that it may have run, and the model looks. The
second line asks no model and needs no key: a script stands in for one, so that everything else can
be seen at work.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import foldlog
from foldlog import (
    LLM,
    Condensation,
    CondensationRequest,
    EventStoreError,
    History,
    LLMConfig,
    Message,
    SystemMessage,
    View,
    is_context_window_error,
    request_condensation_tool,
)
from foldlog.condensers import Reply, ToolCall
from foldlog.errors import ModelCallFailed

RUN_TOOL = {
    "type": "function",
    "function": {
        "name": "run",
        "description": "Run a command in the shell and see what it prints.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    },
}
TOOLS = [RUN_TOOL, request_condensation_tool()]
PROMPT = (
    "You solve the user's task with the tool run, step by step. When it is solved, say so in words,"
    " without a tool."
)


class Model(Protocol):
    """What answers the agent: an ``LLM``, or what stands in for one."""

    def complete(
        self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]]
    ) -> Reply: ...


class Rehearsal:
    """Stands in for a model: looks around, asks for a condensation, and says that it was a
    rehearsal.
    """

    def __init__(self) -> None:
        commands = ["pwd", *(f"echo step {number} of a rehearsal" for number in range(1, 7))]
        self._script = [("run", json.dumps({"command": command})) for command in commands]
        self._script.append((request_condensation_tool()["function"]["name"], "{}"))
        self._said = 0

    def complete(
        self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]]
    ) -> Reply:
        self._said += 1
        if self._said > len(self._script):
            return Reply(
                text=f"This was a rehearsal: the last prompt had {len(messages)} messages.",
                model="rehearsal",
            )
        name, arguments = self._script[self._said - 1]
        call = ToolCall(name, arguments, id=f"rehearsed-{self._said}")
        return Reply(
            text=None, model="rehearsal", tool_calls=(call,), response_id=f"rehearsed-{self._said}"
        )


def run_agent(
    history: History,
    model: Model,
    folder: Path,
    *,
    steps_max: int = 100,
    say: Callable[[str], None] = print,
) -> str:
    """Work until the model answers in words, and return that answer. The caller has the lease of
    the history.

    Raises ``NoCondensationAvailable`` where the context is full and nothing can be forgotten,
    ``InvalidCondenser`` where it is full and the condenser answers no requests, ``ModelCallFailed``
    where the model cannot be reached, and ``TimeoutError`` after ``steps_max`` steps.
    """
    act(history, folder, say)
    for _ in range(steps_max):
        match history.step():
            case Condensation(action=action):
                say(f"  condensed: {_account(action.metadata)}")
                continue
            case View() as view:
                pass
        try:
            reply = model.complete(view.to_messages(), tools=TOOLS)
        except ModelCallFailed as error:
            if not is_context_window_error(error):
                raise
            say(
                f"  the prompt of {len(view)} events is too long for the model: asking for a"
                " condensation"
            )
            condense(history, "the prompt was too long", say)
            continue
        if not reply.tool_calls:
            answer = reply.text or "(the model had nothing to say)"
            history.append(Message(source="agent", content=answer))
            return answer
        recorded = history.append_reply(reply)
        act(history, folder, say)
        if any(isinstance(each.event, CondensationRequest) for each in recorded):
            say("  the model asks for a condensation")  # which the next step makes
    raise TimeoutError(
        f"no answer after {steps_max} steps; the history is kept, start again to go on"
    )


def condense(history: History, reason: str, say: Callable[[str], None]) -> None:
    """Ask for a condensation and have it made: an unanswered request would be made again for ever.

    Raises ``InvalidCondenser`` where the condenser answers no requests, besides what
    ``history.step`` raises.
    """
    match history.condense(reason):
        case Condensation(action=action):
            say(f"  condensed: {_account(action.metadata)}")


def act(history: History, folder: Path, say: Callable[[str], None]) -> None:
    """Make each call that waits, of this turn or left by a run that died, and record its result. A
    call that had begun there is not made again: its result says that it may have run.
    """
    for call in history.open_calls():
        recorded = history.run(call, partial(run, folder))
        say(f"> {json.dumps(call.arguments)}\n{recorded.event.content[:200].rstrip()}")


def run(folder: Path, command: str) -> str:
    """Return what the command printed, and how it ended."""
    process = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )
    status = f"(exit status {process.returncode})" if process.returncode else ""
    return process.stdout + process.stderr + status or "(no output)"


def _account(metadata: dict[str, Any]) -> str:
    names = (
        "condenser",
        "reason",
        "events_before",
        "events_after",
        "tokens_before",
        "tokens_after",
        "outcome",
    )
    return ", ".join(f"{name} {metadata[name]}" for name in names if metadata.get(name) is not None)


def main() -> int:
    """Exit status 2, with a line that says why, where no answer came."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("task")
    parser.add_argument(
        "--model",
        default="openai/gpt-4o-mini",
        help="as litellm knows it; its key from the environment",
    )
    parser.add_argument(
        "--rehearse", action="store_true", help="ask no model: a script stands in for it"
    )
    parser.add_argument("--base-url", help="a server of your own")
    parser.add_argument(
        "--config", type=Path, help="a TOML file with [condenser]; else one that needs no model"
    )
    parser.add_argument("--folder", type=Path, default=Path(), help="where commands run")
    parser.add_argument("--db", default="sqlite:///foldlog.db")
    parser.add_argument("--conversation", default="agent")
    arguments = parser.parse_args()
    try:
        print(work(arguments))
    except (EventStoreError, TimeoutError) as error:
        print(f"agent_loop: {error}", file=sys.stderr)
        return 2
    return 0


def work(arguments: argparse.Namespace) -> str:
    """Return what the agent answers to the task that was given."""
    llm = None
    if not arguments.rehearse:
        llm = LLM(LLMConfig(model=arguments.model, base_url=arguments.base_url))
    condenser = arguments.config or {"type": "digest"}
    with foldlog.open(arguments.db, condenser=condenser, agent_llm=llm) as histories:
        history = histories[arguments.conversation]
        if history.version() == 0:
            history.append(SystemMessage(content=PROMPT, tools=tuple(TOOLS)))
        history.append(Message(source="user", content=arguments.task))
        with history.lease(ttl_s=5):
            return run_agent(history, llm or Rehearsal(), arguments.folder)


if __name__ == "__main__":
    sys.exit(main())
