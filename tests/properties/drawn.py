"""Histories that are drawn from a seed, and equal in each run and with each version of Python.

Unlike the histories of ``tests.properties.histories``, which only obey laws, these look like the work
of an agent: requests, commands, edits, results, refusals, pictures. What foldlog makes of them is in
``tests/golden/drawn.json``.
"""

from random import Random

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Message,
    Observation,
    Retraction,
    SystemMessage,
)
from foldlog.projections import View
from foldlog.projections.call_states import APPROVAL, MARK

LEASE = "lease 1"
PNG = b"\x89PNG-picture"
URL = "https://example.org/plan.png"
TEXTS = (
    "Fix the date parser in src/dates.py; no new dependencies.",
    "Which of the two ports should the server listen on? I would take 8123.",
    "yes",
    "no, use 8124 instead. Never touch vendored/.",
    "",
    "  \n",
    "Tell ops@example.org that https://example.org/a moved to C:\\work\\notes.txt.",
    "<system-reminder>be brief</system-reminder>go on",
    "one<ide_selection>two</ide_selection>three",
    "<command-name>/review</command-name><command-args>src</command-args>",
    "[Request interrupted by user]",
    "The parser is repaired, and all tests pass. Two warnings are left in api/routes.py.",
    "Look at this:\n```\n"
    + "\n".join(f"{n}: GET /v1/items/{n * 37} 200" for n in range(20))
    + "\n```",
    "We keep the old form. " * 30 + "The falcon lives in hangar 19.",
    "日本語のテスト。次は?",
    "a lone \ud83d half",
)
COMMANDS = (
    "pytest -q tests",
    "pytest -q tests/test_dates.py",
    "cd src && ls -la | head -3",
    "git commit -qam 'dates: weeks'",
    "git push origin main",
    "cat <<'EOF' > notes/plan.md\nfirst\nsecond\nEOF",
    "sed -i s/old/new/ src/dates.py",
    "rm -rf build/old",
    "ruff check . 2>&1 | tail -1",
    "sudo make build",
    "grep -rn parse_week src",
    "bash -lc 'npm test'",
    "",
)
PATHS = ("src/dates.py", "docs/guide.md", "/srv/app/config.toml", "C:\\work\\notes.txt")
RESULTS = (
    "ok",
    "",
    "212 passed in 3.1s",
    "E   TypeError: unknown argument 'week'\n2 failed, 210 passed",
    "src/dates.py:14: def parse_week(text):\nsrc/api/routes.py:71: parse_week(day)",
    "[main 4fe21ab] dates: weeks",
    '{"output": "done\\nsee out/report.html", "metadata": {"exit_code": 2}}',
    "Process exited with code 3\nno such file",
    "Error: old_string not found",
    "Task #3 created successfully: write the notes",
    "Command running in background with ID: b1",
    'User has answered your questions: "Which?"="the second". You can now continue',
    "The user doesn't want to proceed with this tool use. The user said: wait for Friday",
    "\n".join(f"line {n} of the log, value {n * n}" for n in range(40)),
    "user@host:~/app$",
)
PARTS = (
    ({"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": URL}}),
    ({"type": "text", "text": "raw"}, {"type": "image", "data": PNG}),
    ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},),
    (
        {
            "type": "file",
            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="},
        },
    ),
    ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a\nb"}},),
    (
        {"type": "text", "text": ""},
        {"type": "text", "text": "last", "cache_control": {"type": "x"}},
    ),
    ({"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},),
    (),
)
TASKS = ("move dependencies", "write the notes", "ask about Friday")
THINKING = (
    (),
    (),
    ({"type": "thinking", "thinking": "hm", "signature": "s"},),
    ({"type": "thinking", "thinking": "so"}, {"type": "redacted_thinking", "data": "x"}),
)


class Drawing:
    """Draws a history. Of ``Random`` only ``random`` is used, whose numbers never change."""

    def __init__(self, seed):
        self._random = Random(seed).random
        self.events = []
        self._open = []

    def below(self, count):
        return int(self._random() * count)

    def one_of(self, options):
        return options[self.below(len(options))]

    def is_rare(self):
        return not self.below(5)

    def add(self, event_type, **fields):
        self.events.append(event_type(id=len(self.events), **fields))
        return self.events[-1]

    def content(self, texts):
        return self.one_of(PARTS) if not self.below(7) else self.one_of(texts)

    def history(self, size):
        """Return the events of a history with at least ``size`` events."""
        while len(self.events) < size:
            steps = (
                *[self.request] * 3,
                *[self.reply] * 2,
                *[self.calls] * 8,
                self.note,
                self.condense,
                self.go_back,
            )
            self.one_of(steps)()
        return self.events

    def request(self):
        source = self.one_of(("user", "user", "environment"))
        self.add(Message, source=source, content=self.content(TEXTS))

    def reply(self):
        meta = self.one_of(({}, {}, {"reply": "r1"}, {"reply": "r2", "model": "own"}))
        thinking = self.one_of(THINKING)
        content = self.content(TEXTS)
        self.add(Message, source="agent", content=content, meta=meta, thinking=thinking)

    def calls(self):
        """Draw the calls of a reply, and results of them and of earlier calls."""
        start = len(self.events)
        response = self.one_of((None, f"reply {start}"))
        for number in range(self.one_of((1, 1, 1, 2, 3))):
            tool, arguments = self.call()
            action = self.add(
                Action,
                tool=tool,
                arguments=arguments,
                call_id=self.one_of((f"c{start}.{number}", f"c{start}.{number}", "again", None)),
                response_id=response,
                thought=self.one_of(("", "", self.one_of(TEXTS))),
                thinking=self.one_of(THINKING) if number == 0 else (),
                source="user" if not self.below(20) else "agent",
                stays_with_next=not self.below(30),
            )
            self._open.append(action)
            if self.is_rare():
                self.mark(action)
            if self.is_rare():
                self.answer()
        while self._open and self.below(12):
            self.answer()

    def call(self):
        path = self.one_of(PATHS)
        match self.below(12):
            case 0:
                return "read", {"path": path}
            case 1:
                edit = {"old_string": "a = 1", "new_string": f"# now\nb = {self.below(9)}"}
                return "edit", {"file_path": path, **edit}
            case 2:
                return "write", {"path": path, "content": f"def f():\n    return {self.below(9)}\n"}
            case 3:
                statuses = ("pending", "completed", "in_progress", "done")
                tasks = [{"content": name, "status": self.one_of(statuses)} for name in TASKS]
                return "todo", {"todos": tasks[: 1 + self.below(3)]}
            case 4:
                return "update", {"taskId": "3", "status": self.one_of(("completed", "pending"))}
            case 5:
                return "grep", {"pattern": "parse_week", "limit": self.below(9)}
            case 6:
                return "think", {"thought": self.one_of(TEXTS)}
            case 7:
                patch = f"*** Begin Patch\n*** Update File: {path}\n-a = 1\n+b = 2\n*** End Patch"
                return "apply_patch", {"input": patch}
            case 8:
                raw = ('{"command": "ls"}', "no json", '{"a": 1', "[1]", "")
                return "run", self.one_of((*raw, None, {}))
            case _:
                return "bash", {"command": self.one_of(COMMANDS)}

    def answer(self):
        """Draw the result of an open call, rarely of another or an unknown one."""
        call = self._open.pop(self.below(len(self._open)))
        code = self.one_of((None, None, 0, 1, -1))
        extras = {} if code is None else {"exit_code": code}
        if not self.below(25):
            extras = {"rejection_source": self.one_of(("user", "hook"))}
        elif not self.below(25):
            extras = {MARK: {"state": "unknown", "key": self.one_of(("k", "other", 7))}}
        self.add(
            Observation,
            tool=call.tool,
            call_id="unknown" if not self.below(30) else call.call_id,
            cause=call.id if call.call_id is None or self.is_rare() else None,
            content=self.content(RESULTS),
            is_error=self.is_rare(),
            extras=extras,
        )

    def mark(self, action):
        """Draw what a worker writes about a call: an approval, its start, or what it told a model."""
        data = self.one_of(({"lease": LEASE}, {"lease": "lease 2"}, {}, {"told": "maybe"}, None))
        name = self.one_of((MARK, MARK, APPROVAL))
        self.add(Annotation, name=name, cause=action.id, data=data)
        if self.is_rare():
            outcome = {"outcome": "it ran", "is_error": self.is_rare(), "key": "k"}
            fields = {"cause": action.id, "meta": {MARK: outcome}}
            self.add(Message, source="environment", content="The call ended.", **fields)

    def intent(self):
        intent = {"tool": "pay", "arguments": {"sum": 3}, "call_id": f"p{len(self.events)}"}
        self.add(Annotation, name=MARK, data={"intent": intent, "lease": LEASE})
        if self.below(2):
            self.add(Action, tool="pay", arguments={"sum": 3}, call_id=intent["call_id"])
            self._open.append(self.events[-1])

    def note(self):
        match self.below(8):
            case 7:
                self.intent()
            case 0:
                self.add(SystemMessage, content=self.content(("You are an agent.", "Be brief.")))
            case 1:
                self.add(Annotation, name="state", data={"step": self.below(9)})
            case 2:
                self.add(Annotation, name="state", data={"step": 1}, shown=True)
            case 3:
                queued = {"content": self.one_of(TEXTS)}
                self.add(Annotation, name="queue-operation", data=queued)
            case 4:
                self.add(CondensationRequest, reason="too long")
            case 5:
                self.add(CondensationSummary, content=self.one_of(TEXTS))
            case _:
                self.add(
                    Annotation,
                    name="reasoning",
                    data={"type": "thinking", "thinking": "so"},
                    source="agent",
                    shown=True,
                    stays_with_next=True,
                )

    def condense(self):
        """Draw a condensation of a part of the View, or of single events of it."""
        shown = [event.id for event in View.from_events(self.events)]
        if not shown:
            return
        start = self.below(len(shown))
        part = shown[start : start + 1 + self.below(len(shown) - start)]
        if self.is_rare():
            part = part[::2]
        summary = self.one_of(
            (None, "so far: src/dates.py is repaired", self.one_of(TEXTS) or None)
        )
        place = None if summary is None else self.one_of((start, 0, len(shown) - len(part)))
        fields = {"forgotten_event_ids": part}
        if part[0] >= 0 and part == [*range(part[0], part[-1] + 1)] and self.below(2):
            fields = {
                "forgotten_events_start_id": part[0],
                "forgotten_events_end_id": part[-1],
            }
        self.add(CondensationAction, summary=summary, summary_offset=place, **fields)

    def go_back(self):
        version = len(self.events) - self.below(min(len(self.events), 12) + 1)
        self.add(Retraction, version=version)


def drawn_history(seed):
    """Return the history of a seed. The first histories are short, so that they are read easily."""
    return Drawing(seed).history(8 + seed % 40)
