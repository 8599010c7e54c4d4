"""A session that was resumed into a new file with the lines of the old one: every total counts a
reply, a call of a tool and an error once.
"""

import json
import re
import sqlite3
from pathlib import Path

import pytest

import foldlog as api
from foldlog._reports.audit_database import update
from tests.figures import FiguresOfStore, Prices, Where

SESSIONS = ("11111111-aaaa", "22222222-bbbb", "33333333-cccc")
MODEL = "claude-haiku-4-5"
DOCUMENT = Path(__file__).parents[3] / "docs" / "AUDIT.md"


class Session:
    """Writes lines as Claude Code writes them. A resumed session begins with the earlier lines."""

    def __init__(self, name, earlier=()):
        self.name = name
        self.lines = [{**line, "sessionId": name} for line in earlier]

    def line(self, kind, message, **more):
        number = len(self.lines)
        parent = self.lines[-1]["uuid"] if self.lines else None
        self.lines.append({
            "type": kind,
            "uuid": f"{self.name}-{number}",
            "parentUuid": parent,
            "sessionId": self.name,
            "version": "1.0.70",
            "timestamp": f"2026-05-02T08:00:{number:02}.000Z",
            "message": message,
            **more,
        })  # fmt: skip

    def ask(self, text):
        self.line("user", {"role": "user", "content": text})

    def call(self, tool, result, *, failed=False):
        """A reply of two lines, a text and a call of a tool, and the result of the tool."""
        name = f"{self.name}-{len(self.lines)}"
        usage = {"input_tokens": 100, "output_tokens": 10}
        message = {"role": "assistant", "id": f"msg_{name}", "model": MODEL, "usage": usage}
        use = {"type": "tool_use", "id": f"toolu_{name}", "name": tool, "input": {"a": name}}
        for block in ({"type": "text", "text": "I look."}, use):
            self.line("assistant", {**message, "content": [block]}, requestId=f"req_{name}")
        block = {"type": "tool_result", "tool_use_id": f"toolu_{name}", "content": result}
        if failed:
            block["is_error"] = True
        self.line("user", {"role": "user", "content": [block]})

    def write(self, folder):
        folder.mkdir(exist_ok=True)
        lines = "".join(json.dumps(line) + "\n" for line in self.lines)
        (folder / f"{self.name}.jsonl").write_text(lines)


def resumed(folder):
    """Three sessions with seven replies and seven calls of tools. Three calls fail."""
    first = Session(SESSIONS[0])
    first.ask("Find the leak.")
    first.call("Grep", "pipe.c: 3")
    first.call("Bash", "exit 2", failed=True)
    first.call("Bash", "ok")
    second = Session(SESSIONS[1], first.lines)
    second.ask("Go on.")
    second.call("Read", "no such file", failed=True)
    second.call("Grep", "none")
    third = Session(SESSIONS[2], second.lines)
    third.ask("And now?")
    third.call("Bash", "exit 1", failed=True)
    third.call("Read", "int main")
    for session in (first, second, third):
        session.write(folder)
    return first, second, third


def tools_of(stats):
    return {name: (tool.calls, tool.errors) for name, tool in stats.tools.items()}


def make_events(histories):
    for name in SESSIONS:
        histories[name].view()


@pytest.mark.parametrize("is_made", [False, True])
def test_a_copied_call_counts_once(is_made, histories, tmp_path):
    _, _, third = resumed(tmp_path / "logs")
    histories.import_(tmp_path / "logs")
    if is_made:
        make_events(histories)
    figures = FiguresOfStore(histories.store, None, Prices())
    figures.refresh()
    stats = figures.totals()
    assert tools_of(stats) == {"Grep": (2, 0), "Bash": (3, 2), "Read": (2, 1)}
    assert (stats.errors, sum(model.calls for model in stats.models.values())) == (3, 7)
    facets = {
        (facet.what, facet.name): (facet.conversations, facet.number) for facet in figures.facets()
    }
    assert facets["tool", "Bash"] == (3, 3)
    assert facets["tool errors", "Read"] == (2, 1)
    two = figures.totals(Where(only=SESSIONS[:2]))
    assert (two.errors, tools_of(two)["Bash"]) == (2, (2, 1))
    assert tools_of(histories[SESSIONS[1]].stats()) == {
        "Grep": (2, 0),
        "Bash": (2, 1),
        "Read": (1, 1),
    }

    third.call("Bash", "exit 3", failed=True)  # the copies stay known when a session grows
    third.write(tmp_path / "logs")
    histories.import_(tmp_path / "logs")
    figures.refresh()
    stats = figures.totals()
    assert (stats.errors, tools_of(stats)["Bash"]) == (4, (4, 3))


def test_a_pending_and_a_made_session_are_compared(histories, tmp_path):
    resumed(tmp_path / "logs")
    histories.import_(tmp_path / "logs")
    figures = FiguresOfStore(histories.store, None, Prices())
    figures.refresh()
    histories[SESSIONS[1]].view()
    figures.refresh()
    assert tools_of(figures.totals()) == {"Grep": (2, 0), "Bash": (3, 2), "Read": (2, 1)}
    histories.erase(SESSIONS[0], reason="x")
    figures.refresh()
    assert tools_of(figures.totals()) == {"Grep": (2, 0), "Bash": (3, 2), "Read": (2, 1)}


def test_the_documented_query_counts_a_copied_call_once(histories, tmp_path):
    resumed(tmp_path / "logs")
    histories.import_(tmp_path / "logs")
    make_events(histories)
    update(histories.store, tmp_path / "audit.db")
    (query,) = re.findall(r"```sql\n(SELECT coalesce.*?)```", DOCUMENT.read_text(), re.DOTALL)
    with sqlite3.connect(tmp_path / "audit.db") as database:
        rows = database.execute(query).fetchall()
    assert sorted(rows) == [("Bash", 3, 2), ("Grep", 2, 0), ("Read", 2, 1)]


def test_a_task_counts_a_copied_error_once(histories):
    histories.create("lead", {})
    histories.create("helper", {"parent": "lead"})
    for name in ("lead", "helper"):
        history = histories[name]
        usage = {"prompt_tokens": 5, "completion_tokens": 1}
        meta = {"model": "m", "usage": usage, "reply": "reply-1"}
        call = api.Action(tool="run", call_id="c", arguments={}, meta=meta)
        failed = api.Observation(tool="run", call_id="c", content="no", is_error=True)
        history.append([call, failed])
    figures = FiguresOfStore(histories.store, None, Prices())
    figures.refresh()
    rows = [row for _, row in figures.of([histories.store.conversation("lead")])]
    assert figures.tasks(rows)["lead"].errors == 1
