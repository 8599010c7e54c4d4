"""A small agent that works in a folder with a shell, and never outgrows its model's context.

    python examples/agent_loop.py "why does the test fail? fix it" --model openai/gpt-4o-mini \\
        --folder .
    python examples/agent_loop.py "anything" --rehearse

The agent appends everything that happens to a history, and the model is shown the View of this
history. Before each call of the model, a condenser may forget events: if the View has grown too
large, if the model asked for a condensation, or if the server refused the prompt as too long. The
log keeps all events, and `foldlog log agent --db foldlog.db` shows them.

If you start the agent again with the same conversation, it continues. A call that was running when
the agent died does not run again: its result says that it may have run, so the model can check.
The second command needs no key, because a script answers in place of the model.
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
    """An ``LLM``, or a script in its place."""

    def complete(
        self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]]
    ) -> Reply: ...


class Rehearsal:
    """A script in place of a model. It runs some commands, asks for a condensation, and answers."""

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
    """Work until the model answers without a call, and return the answer. The caller holds the
    lease of the history.

    Raises ``NoCondensationAvailable`` if the prompt is too long and nothing can be forgotten,
    ``InvalidCondenser`` if the prompt is too long and the condenser ignores requests,
    ``ModelCallFailed`` if the model cannot be reached, and ``TimeoutError`` after ``steps_max``
    steps.
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
            say("  the model asks for a condensation")  # the next step condenses
    raise TimeoutError(
        f"no answer after {steps_max} steps; the history is stored, start again to continue"
    )


def condense(history: History, reason: str, say: Callable[[str], None]) -> None:
    """Condense now.

    Raises ``InvalidCondenser`` if the condenser ignores requests, and the errors of
    ``history.step``.
    """
    match history.condense(reason):
        case Condensation(action=action):
            say(f"  condensed: {_account(action.metadata)}")


def act(history: History, folder: Path, say: Callable[[str], None]) -> None:
    """Run the tool of each open call, and record the result. A call whose tool began in an earlier
    process does not run again: its result says that it may have run.
    """
    for call in history.open_calls():
        recorded = history.run(call, partial(run, folder))
        say(f"> {json.dumps(call.arguments)}\n{recorded.event.content[:200].rstrip()}")


def run(folder: Path, command: str) -> str:
    """Return the output and the exit status of the command."""
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
    """Return the exit status: 2 if there is no answer."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("task")
    parser.add_argument(
        "--model",
        default="openai/gpt-4o-mini",
        help="the model's name in litellm; the key comes from the environment",
    )
    parser.add_argument(
        "--rehearse", action="store_true", help="call no model: a script answers instead"
    )
    parser.add_argument("--base-url", help="a server of your own")
    parser.add_argument(
        "--config",
        type=Path,
        help="a TOML file with [condenser]; by default a digest, which needs no model",
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
    """Return the agent's answer to the task."""
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
