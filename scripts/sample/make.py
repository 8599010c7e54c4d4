"""Plays ``session.txt`` on the invented project of ``project.txt``, and writes the sample history
of foldlog.

    .venv/bin/python scripts/sample/make.py

The history contains no text from elsewhere. ``session.txt`` has the messages, and the script runs
the commands in a new folder to get the outputs of the tools. The script replaces times, ids and
names of the machine, so the result is the same on each machine, except for messages of Python,
pytest and git.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import uuid
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OUT = HERE.parents[1] / "foldlog/_app/sample/tidewatch.jsonl"
SHOWN_ROOT = "/workspace"
Json = dict[str, Any]

TOOLS = [
    (
        "terminal",
        "Runs a command in a shell that keeps its folder and variables between calls.",
        ["command", "timeout"],
    ),
    (
        "file_editor",
        "Views, creates and edits files. `view` also lists a folder.",
        ["command", "path", "old_str", "new_str"],
    ),
    (
        "task_tracker",
        "Keeps the list of what is to be done. `plan` replaces it.",
        ["command", "task_list"],
    ),
    ("think", "Writes a thought down. Changes nothing.", ["thought"]),
    ("finish", "Ends the task with a report to the user.", ["message"]),
]
CONDENSATIONS = ((4, 30), (5, 26), (4, 24), (5, 14), (4, 12))
"""For each condensation, the first forgotten index, and the number of events kept at the end."""


class Workspace:
    """A folder in which the commands run. In the history, its name is ``/workspace``."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = root.resolve()
        self.rng = rng
        self.project = self.root / "tidewatch"
        (self.root / "scratch").mkdir()
        self.clock = datetime(2026, 2, 17, 9, 14, 3)

    def set_up(self) -> None:
        for section in (HERE / "project.txt").read_text().split("==== ")[1:]:
            name, text = section.split("\n", 1)
            path = self.project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.run("git init -q -b main")
        for files, subject in [
            ("pyproject.toml README.md src", "Poll gauges and keep what they said"),
            ("tests", "Tests"),
            ("CHANGELOG.md", "0.7.2: one alert while the water stays high"),
        ]:
            self.run(f"git add {files} && git commit -q -m '{subject}'")

    def run(self, command: str) -> tuple[str, int]:
        """Run a command in the project, at the time of ``clock``. Return its output, with the names
        that the history shows, and its exit status.
        """
        stamp = self.clock.isoformat()
        done = subprocess.run(
            ["bash", "-c", self._real(command)],
            cwd=self.project,
            env={
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "HOME": str(self.root / "scratch"),
                "LANG": "C.UTF-8",
                "COLUMNS": "100",
                "TMPDIR": str(self.root / "scratch"),
                "PYTHONHASHSEED": "2",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTEST_ADDOPTS": "-p no:cacheprovider",
                "PYTEST_DEBUG_TEMPROOT": str(self.root / "scratch"),
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "GIT_AUTHOR_NAME": "tidewatch",
                "GIT_AUTHOR_EMAIL": "tidewatch@example.invalid",
                "GIT_COMMITTER_NAME": "tidewatch",
                "GIT_COMMITTER_EMAIL": "tidewatch@example.invalid",
                "GIT_AUTHOR_DATE": stamp,
                "GIT_COMMITTER_DATE": stamp,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return self._shown(done.stdout).rstrip("\n"), done.returncode

    def _real(self, text: str) -> str:
        return text.replace(SHOWN_ROOT, str(self.root))

    def _shown(self, text: str) -> str:
        """Replace what differs between machines and runs: paths, addresses, times and users."""
        text = text.replace(str(self.root), SHOWN_ROOT).replace(sys.base_prefix, "/usr/local")
        text = text.replace(str(Path(sys.executable).parent.parent), "/usr/local")
        text = re.sub(r"\b0x[0-9a-f]{8,}", "0x7f3a5c1e2b40", text)
        text = re.sub(r"pytest-of-\w+/pytest-\d+", "pytest-of-agent/pytest-0", text)
        text = re.sub(r"in \d+\.\d\ds", lambda _: f"in {self.rng.uniform(0.04, 0.6):.2f}s", text)
        text = re.sub(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d", "Feb 17 09:14", text)
        return re.sub(r"\broot root\b", "agent agent", text)

    def path(self, name: str) -> Path:
        return Path(self._real(name)) if name.startswith("/") else self.project / name

    def name(self, path: Path) -> str:
        return self._shown(str(path))

    def view(self, name: str, first: str = "", last: str = "") -> str:
        path = self.path(name)
        if path.is_dir():
            below = sorted(
                p
                for p in path.rglob("*")
                if ".git" not in p.parts and len(p.relative_to(path).parts) <= 3
            )
            listed = "\n".join(self.name(p) + ("/" if p.is_dir() else "") for p in below)
            return (
                f"Files and folders in {self.name(path.resolve())}, three levels deep, hidden ones"
                f" left out:\n{listed}"
            )
        lines = self._shown(path.read_text()).splitlines()
        start = int(first or 1)
        stop = min(int(last or len(lines)), len(lines))
        shown = "\n".join(f"{number:6}\t{lines[number - 1]}" for number in range(start, stop + 1))
        return f"{self.name(path)}, lines {start} to {stop} of {len(lines)}:\n{shown}"

    def create(self, name: str, text: str) -> str:
        self.path(name).write_text(self._real(text) + "\n")
        return f"File created: {self.name(self.path(name))}"

    def edit(self, name: str, old: str, new: str) -> tuple[str, bool]:
        """Replace a text that occurs once. Return the tool's message, and whether it failed."""
        path = self.path(name)
        text = path.read_text()
        if text.count(old) != 1:
            where = "does not occur" if old not in text else f"occurs {text.count(old)} times"
            problem = f"old_str {where} in {self.name(path)}. It must occur exactly once."
            return f"Nothing was changed: {problem}", True
        path.write_text(text.replace(old, new))
        first = text[: text.index(old)].count("\n") + 1
        around = self.view(name, str(max(1, first - 3)), str(first + new.count("\n") + 3))
        return f"File edited. {around}", False


class History:
    """The events of the history, and the agent's View. A condensation chooses the events to forget
    from the View.
    """

    def __init__(self, workspace: Workspace, rng: random.Random) -> None:
        self.workspace = workspace
        self.rng = rng
        self.events: list[Json] = []
        self.view: list[Json] = []
        self.response = ""
        """The id of the reply to which the next call belongs if it joins the last one."""
        self._condensations = iter(CONDENSATIONS)

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def add(
        self, kind: str, source: str, *, seconds: float = 1.0, in_view: bool = True, **fields: Any
    ) -> Json:
        self.workspace.clock += timedelta(seconds=seconds * self.rng.uniform(0.5, 1.8))
        event = {
            "kind": kind,
            "id": self.uuid(),
            "timestamp": self.workspace.clock.isoformat(),
            "source": source,
        }
        event.update(fields)
        self.events.append(event)
        if in_view:
            self.view.append(event)
        return event

    def message(self, role: str, text: str) -> None:
        fields: Json = {
            "llm_message": {"role": role, "content": [_text(text)], "thinking_blocks": []}
        }
        if role == "assistant":
            fields["llm_response_id"] = f"chatcmpl-{self.uuid()}"
        else:
            fields["activated_skills"] = []
        fields["extended_content"] = []
        self.add("MessageEvent", "agent" if role == "assistant" else "user", seconds=9, **fields)

    def call(
        self,
        tool: str,
        action: Json | None,
        arguments: Json,
        thought: str,
        *,
        joins: bool,
        risk: str = "LOW",
    ) -> Json:
        """Add a call of a tool. A call that ``joins`` is of the same reply as the last call. Lines
        of ``thought`` that begin with "~ " are thinking, and the others are said.
        """
        if not joins:
            self.response = f"chatcmpl-{self.uuid()}"
        thinking = "\n".join(line[2:] for line in thought.splitlines() if line.startswith("~ "))
        spoken = "\n".join(line for line in thought.splitlines() if not line.startswith("~ "))
        call_id = f"call_{self.rng.getrandbits(96):024x}"
        return self.add(
            "ActionEvent",
            "agent",
            seconds=0.01 if joins else 6,
            thought=[_text(spoken)] if spoken else [],
            thinking_blocks=(
                [
                    {
                        "type": "thinking",
                        "thinking": thinking,
                        "signature": f"{self.rng.getrandbits(160):040x}",
                    }
                ]
                if thinking
                else []
            ),
            **({} if action is None else {"action": action}),
            tool_name=tool,
            tool_call_id=call_id,
            tool_call={
                "id": call_id,
                "name": tool,
                "arguments": json.dumps(arguments),
                "origin": "completion",
            },
            llm_response_id=self.response,
            security_risk=risk,
        )

    def answer(self, call: Json, observation: Json) -> None:
        self.add(
            "ObservationEvent",
            "environment",
            tool_name=call["tool_name"],
            tool_call_id=call["tool_call_id"],
            observation=observation,
            action_id=call["id"],
            extended_content=[],
        )

    def condense(self, summary: str) -> None:
        start, tail = next(self._condensations)
        stop = len(self.view) - tail
        while not self._may_cut(stop):
            stop += 1
        forgotten = self.view[start:stop]
        condensation = self.add(
            "Condensation",
            "environment",
            seconds=14,
            in_view=False,
            forgotten_event_ids=[event["id"] for event in forgotten],
            summary=summary,
            summary_offset=start,
            llm_response_id=f"chatcmpl-{self.uuid()}",
        )
        self.view[start:stop] = [
            {"kind": "CondensationSummaryEvent", "id": f"{condensation['id']}-summary"}
        ]

    def _may_cut(self, index: int) -> bool:
        """Return whether no call is open at this index, and no loop with thinking continues."""
        before = self.view[:index]
        after = self.view[index]
        called = {event["tool_call_id"] for event in before if event["kind"] == "ActionEvent"}
        answered = {
            event["tool_call_id"]
            for event in before
            if event["kind"] not in ("ActionEvent", "MessageEvent") and "tool_call_id" in event
        }
        looping = False
        for event in before:
            looping = "tool_call_id" in event and (looping or bool(event.get("thinking_blocks")))
        return called == answered and not (looping and "tool_call_id" in after)


def _text(text: str) -> Json:
    return {"type": "text", "text": text, "cache_prompt": False}


def _said(text: str, **fields: Any) -> Json:
    return {**fields, "content": [_text(text)], "is_error": fields.get("is_error", False)}


class Player:
    """Plays a session, with one method for each verb. The calls of a response come first, then all
    their results.
    """

    def __init__(self, workspace: Workspace, history: History) -> None:
        self.workspace = workspace
        self.history = history
        self.waiting: list[tuple[Json, Json]] = []
        """The calls of the present reply, each with its observation."""

    def play(self, block: str) -> None:
        """Play a block of the session: a header with a verb and an argument, and a body. A "+"
        before the verb adds a call to the reply of the block before.
        """
        header, _, body = block.partition("\n")
        body = body.rstrip("\n")
        joins = header.startswith("+")
        verb, _, argument = header.lstrip("+").strip().partition(" ")
        if not joins:
            self._answer_all()
        step = getattr(self, f"do_{verb}")
        if verb in _CALLS:
            step(argument, body, joins)
        else:
            step(argument, body)

    def finish(self) -> None:
        self._answer_all()

    def _answer_all(self) -> None:
        for call, observation in self.waiting:
            self.history.answer(call, observation)
        self.waiting.clear()

    def do_system(self, _: str, body: str) -> None:
        tools = [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": about,
                    "parameters": {
                        "type": "object",
                        "properties": {
                            key: {"type": "array" if key == "task_list" else "string"}
                            for key in keys
                        },
                        "required": keys[:1],
                    },
                },
            }
            for name, about, keys in TOOLS
        ]
        self.history.add("SystemPromptEvent", "agent", system_prompt=_text(body), tools=tools)

    def do_user(self, _: str, body: str) -> None:
        self.workspace.clock += timedelta(minutes=self.history.rng.uniform(2, 20))
        self.history.message("user", body)

    def do_say(self, _: str, body: str) -> None:
        self.history.message("assistant", body)

    def do_state(self, argument: str, _: str) -> None:
        key, value = argument.split()
        self.history.add(
            "ConversationStateUpdateEvent", "environment", in_view=False, key=key, value=value
        )

    def do_run(self, command: str, body: str, joins: bool) -> None:
        """Run the command of the header, or the script that the body has after a line ``---``. A
        command is of medium risk if it works outside of the project.
        """
        thought, _, script = body.partition("---\n")
        if script:
            command = script
        risk = "MEDIUM" if "/workspace/" in command and "tidewatch" not in command else "LOW"
        arguments = {"command": command}
        call = self.history.call(
            "terminal",
            {"kind": "TerminalAction", **arguments, "is_input": False, "reset": False},
            arguments,
            thought,
            joins=joins,
            risk=risk,
        )
        output, status = self.workspace.run(command)
        metadata = {
            "exit_code": status,
            "pid": -1,
            "username": "agent",
            "hostname": "sandbox",
            "working_dir": "/workspace/tidewatch",
            "prefix": "",
            "suffix": f"\n[The command ended with exit code {status}.]",
        }
        observation = _said(output, kind="TerminalObservation", command=command)
        self.waiting.append(
            (call, {**observation, "exit_code": status, "timeout": False, "metadata": metadata})
        )

    def do_view(self, argument: str, thought: str, joins: bool) -> None:
        name, *lines = argument.split()
        arguments = {"command": "view", "path": self._absolute(name)}
        if lines:
            arguments["view_range"] = [int(line) for line in lines]
        self._edit_file(arguments, thought, joins, self.workspace.view(name, *lines))

    def do_create(self, name: str, body: str, joins: bool) -> None:
        thought, _, text = body.partition("---\n")
        arguments = {"command": "create", "path": self._absolute(name), "file_text": text + "\n"}
        self._edit_file(arguments, thought, joins, self.workspace.create(name, text))

    def do_edit(self, name: str, body: str, joins: bool) -> None:
        thought, _, change = body.partition("--- old\n")
        old, _, new = change.partition("\n--- new\n")
        arguments = {
            "command": "str_replace",
            "path": self._absolute(name),
            "old_str": old,
            "new_str": new,
        }
        output, is_error = self.workspace.edit(name, old, new)
        self._edit_file(arguments, thought, joins, output, is_error=is_error)

    def _edit_file(
        self, arguments: Json, thought: str, joins: bool, output: str, *, is_error: bool = False
    ) -> None:
        action = {"kind": "FileEditorAction", **arguments}
        call = self.history.call("file_editor", action, arguments, thought, joins=joins)
        fields = {key: arguments[key] for key in ("command", "path")}
        self.waiting.append(
            (call, _said(output, kind="FileEditorObservation", is_error=is_error, **fields))
        )

    def _absolute(self, name: str) -> str:
        return name if name.startswith("/") else str(Path("/workspace/tidewatch") / name)

    def do_think(self, _: str, body: str, joins: bool) -> None:
        loop = [line for line in body.splitlines() if line.startswith("~ ")]
        thought = "\n".join(line for line in body.splitlines() if not line.startswith("~ "))
        call = self.history.call(
            "think",
            {"kind": "ThinkAction", "thought": thought},
            {"thought": thought},
            "\n".join(loop),
            joins=joins,
        )
        self.waiting.append(
            (call, _said("Your thought has been written down.", kind="ThinkObservation"))
        )

    def do_tasks(self, _: str, body: str, joins: bool) -> None:
        rows = [[part.strip() for part in line.split("|")] for line in body.strip().splitlines()]
        tasks = [
            {"title": title, "status": status.replace(" ", "_"), "notes": notes}
            for title, status, notes in rows
        ]
        arguments = {"command": "plan", "task_list": tasks}
        call = self.history.call(
            "task_tracker", {"kind": "TaskTrackerAction", **arguments}, arguments, "", joins=joins
        )
        answer = (
            f"The list has {len(tasks)} tasks now,"
            f" {sum(task['status'] == 'done' for task in tasks)} of them done."
        )
        self.waiting.append((call, _said(answer, kind="TaskTrackerObservation", **arguments)))

    def do_finish(self, _: str, body: str, joins: bool) -> None:
        call = self.history.call(
            "finish", {"kind": "FinishAction", "message": body}, {"message": body}, "", joins=joins
        )
        self.waiting.append((call, _said(body, kind="FinishObservation")))

    def do_badcall(self, argument: str, body: str) -> None:
        """Make a call that the agent's program refuses: its arguments are none of the tool."""
        tool, _, arguments = argument.partition(" ")
        thought, _, error = body.partition("---\n")
        call = self.history.call(tool, None, json.loads(arguments), thought, joins=False)
        self.history.add(
            "AgentErrorEvent",
            "agent",
            tool_name=tool,
            tool_call_id=call["tool_call_id"],
            error=error,
        )

    def do_reject(self, command: str, body: str) -> None:
        """Ask for a command that the user rejects."""
        thought, _, reason = body.partition("---\n")
        action = {"kind": "TerminalAction", "command": command, "is_input": False, "reset": False}
        call = self.history.call(
            "terminal", action, {"command": command}, thought, joins=False, risk="HIGH"
        )
        self.history.add(
            "UserRejectObservation",
            "environment",
            seconds=40,
            tool_name="terminal",
            tool_call_id=call["tool_call_id"],
            action_id=call["id"],
            rejection_reason=reason,
            rejection_source="user",
        )

    def do_request(self, _: str, __: str) -> None:
        self.history.add("CondensationRequest", "environment", in_view=False)

    def do_condense(self, _: str, body: str) -> None:
        self.history.condense(body)


_CALLS = {"run", "view", "create", "edit", "think", "tasks", "finish"}


def main() -> None:
    rng = random.Random("tidewatch")
    with tempfile.TemporaryDirectory() as root:
        workspace = Workspace(Path(root), rng)
        workspace.set_up()
        history = History(workspace, rng)
        player = Player(workspace, history)
        for block in re.split(r"^@@", (HERE / "session.txt").read_text(), flags=re.MULTILINE)[1:]:
            player.play(block)
        player.finish()
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(
        "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in history.events)
    )
    print(f"{OUT.name}: {len(history.events)} events, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
