"""A durable agent under DBOS: ``python agent.py FOLDER KILL_AT TURNS``. It kills itself at its nth
point; 0: never.

Its steps carry the version of a conversation, and the messages are in foldlog. The model answers
otherwise each time.
"""

import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID

import foldlog

FOLDER = Path(sys.argv[1])
KILL_AT = int(sys.argv[2])
TURNS = int(sys.argv[3])
DBOS(
    config={
        "name": "agent",
        "system_database_url": f"sqlite:///{FOLDER}/dbos.sqlite",
        "run_admin_server": False,
        "log_level": "ERROR",
        "application_version": "1",
    }
)
HISTORIES = foldlog.open(
    f"sqlite:///{FOLDER}/agent.db", condenser={"type": "digest", "max_size": 10}
)
POINTS = 0


def point() -> None:
    global POINTS
    POINTS += 1
    if POINTS == KILL_AT:
        os.kill(os.getpid(), signal.SIGKILL)


def write_down(name: str, value: Any) -> None:
    with (FOLDER / name).open("a") as file:
        file.write(json.dumps(value) + "\n")


def run_command(command: str) -> str:
    point()
    write_down("ran.jsonl", command)
    point()
    return f"the output of {command}: " + "a line. " * 400


@DBOS.step()
def prepare(conversation: str, turn: int) -> int:
    history = HISTORIES[conversation]
    history.append(
        {"role": "user", "content": f"task {turn}"},
        idempotency_key=f"{DBOS.workflow_id}/task-{turn}",
    )
    version = history.prepare().version
    point()
    return version


@DBOS.step()
def ask(conversation: str, turn: int, version: int) -> int:
    history = HISTORIES[conversation]

    def answer() -> dict[str, Any]:
        messages = json.dumps(history.sent(version).to_messages(), sort_keys=True)
        write_down("prompts.jsonl", [turn, hashlib.sha256(messages.encode()).hexdigest()])
        point()
        function = {
            "name": "run",
            "arguments": json.dumps({"command": f"{turn} {os.urandom(4).hex()}"}),
        }
        return {
            "role": "assistant",
            "tool_calls": [{"id": f"c{turn}", "type": "function", "function": function}],
        }

    recorded = history.once(f"{DBOS.workflow_id}/{turn}", answer)
    point()
    return recorded[-1].id + 1


@DBOS.step()
def act(conversation: str, version: int) -> int:
    """Run the open calls. ``version`` is that of the reply: the state of the workflow contains it."""
    history = HISTORIES[conversation]
    with history.lease(ttl_s=0.5):
        for call in history.open_calls():
            history.run(call, run_command)
    point()
    return history.version()


@DBOS.workflow()
def agent(conversation: str, turns: int) -> int:
    version = 0
    for turn in range(turns):
        version = prepare(conversation, turn)
        version = ask(conversation, turn, version)
        version = act(conversation, version)
    return version


if __name__ == "__main__":
    DBOS.launch()
    with SetWorkflowID("run-1"):
        handle = DBOS.start_workflow(agent, "run-1", TURNS)
    handle.get_result()
    DBOS.destroy()
    HISTORIES.close()
