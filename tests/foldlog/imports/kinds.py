"""The files of some programs, with a word of its own in each record: where the word stands is
chosen at random.

``tests/golden/kinds.json`` has the forms of the records of a format, with names in angle brackets
where a line puts its own values. ``write`` puts records, each the text of its JSON, into a file as
their program does, with a title beside them where it keeps one there.
"""

import json
import random
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from sqlite_utils import Database

from tests.foldlog.records import GOLDEN

Record = dict[str, Any]
Write = Callable[[Path, Sequence[str], str], None]
FORMS = json.loads((GOLDEN / "kinds.json").read_text("utf-8"))


class Line(NamedTuple):
    """The parts of a record: its number, its ``word``, two ``earlier`` words that it may repeat, and
    its session.
    """

    number: int
    word: str
    earlier: Sequence[str]
    session: str
    random: random.Random

    def filled(self, form: Record) -> Record:
        """Return a form with the values of this line in place of the names in angle brackets."""
        at = f"2026-01-05T09:{self.number // 60 % 60:02}:{self.number % 60:02}.000"
        first, second = self.earlier
        values = {
            '"<milliseconds>"': f"{1_767_600_000_000 + self.number}",
            "<word>": self.word,
            "<earlier>": first,
            "<another>": second,
            "<session>": self.session,
            "<number>": f"{self.number}",
            "<previous>": f"{self.number - 1}",
            "<name>": f"{self.session}-r{self.number}",
            "<previous name>": f"{self.session}-r{self.number - 1}",
            "<next name>": f"{self.session}-r{self.number + 1}",
            "<at>": f"{at}Z",
            "<at without zone>": at,
        }
        text = json.dumps(form)
        for name, value in values.items():
            text = text.replace(name, value)
        record: Record = json.loads(text)
        return record


class Kind(NamedTuple):
    """The files of one program. ``has_lines``: it can hold damaged lines."""

    format: str
    file: str
    write: Write
    has_lines: bool = True

    def first(self, session: str) -> Record | None:
        """Return the record that begins a file, if one does."""
        form = FORMS[self.format]["first"]
        line = Line(0, "", ("", ""), session, random.Random())
        return None if form is None else line.filled(form)

    def record(self, line: Line) -> Record:
        forms = FORMS[self.format]["records"]
        weights = [form["weight"] for form in forms]
        (form,) = line.random.choices(forms, weights)
        return line.filled(form["record"])


def write_lines(path: Path, records: Sequence[str], title: str) -> None:
    path.write_bytes("".join(f"{record}\n" for record in records).encode())


def write_chat(path: Path, records: Sequence[str], title: str) -> None:
    note = json.dumps({"task": title})
    path.write_text(
        f'{{"instance_id": "{path.stem}", "messages": [{", ".join(records)}], "info": {note}}}'
    )


def write_claude_ai(path: Path, records: Sequence[str], title: str) -> None:
    about = {
        "uuid": path.stem,
        "name": title,
        "summary": f"of {title}",
        "created_at": "2026-01-05T09:00:00Z",
    }
    path.write_text(f'{json.dumps(about)[:-1]}, "chat_messages": [{", ".join(records)}]}}')


def write_opencode(path: Path, records: Sequence[str], title: str) -> None:
    path.unlink(missing_ok=True)
    session = path.parent.name
    about = {"id": session, "project_id": "p", "parent_id": None, "directory": "/"}
    with closing(Database(path)) as tables:
        tables["session"].insert({**about, "title": title, "time_created": 1})
        parts: dict[str, Record] = {}
        for place, record in enumerate(map(json.loads, records)):
            info = record["info"]
            row = {"id": info["id"], "session_id": session, "time_created": place, "data": info}
            tables["message"].insert(row)
            for part in record["parts"]:
                row = {"id": part["id"], "message_id": info["id"], "session_id": session}
                parts[part["id"]] = {**row, "data": part}
        tables["part"].insert_all(parts.values())


def write_cursor(path: Path, records: Sequence[str], title: str) -> None:
    path.unlink(missing_ok=True)
    bubbles = {f"{number}": json.loads(record) for number, record in enumerate(records)}
    headers = [{"bubbleId": name, "type": bubbles[name]["type"]} for name in bubbles]
    about = {"composerId": "c", "createdAt": 1, "name": title}
    rows = {"composerData:c": {**about, "fullConversationHeadersOnly": headers}}
    rows |= {f"bubbleId:c:{name}": bubbles[name] for name in bubbles}
    with closing(Database(path)) as tables:
        tables["cursorDiskKV"].insert_all({"key": key, "value": rows[key]} for key in rows)


KINDS = (
    Kind("claude-code", "log.jsonl", write_lines),
    Kind("codex", "log.jsonl", write_lines),
    Kind("gemini-cli", "log.jsonl", write_lines),
    Kind("qwen-code", "log.jsonl", write_lines),
    Kind("openhands-v1", "log.jsonl", write_lines),
    Kind("otlp-genai", "log.jsonl", write_lines),
    Kind("openai-chat", "chat.json", write_chat, has_lines=False),
    Kind("claude-ai", "chat.json", write_claude_ai, has_lines=False),
    Kind("opencode", "opencode.db", write_opencode, has_lines=False),
    Kind("cursor", "state.vscdb", write_cursor, has_lines=False),
)
