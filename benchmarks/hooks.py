"""Measure a session that an agent's hooks import while it grows: ``python -m benchmarks.hooks``.

Prints CPU ms of one record (import and next View, in a warm process and as two processes), of a
whole session with an import and a View after each turn, and of first imports. With ``--before DIR``
another checkout measures sessions and first imports too, with its own ``.venv``. ``--logs DIR``
imports copies of real logs in the folders ``claude_code`` and ``codex_rollout`` of DIR.
``--format`` and ``--rows`` choose what is measured.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

import foldlog

Record = dict[str, Any]
Grow = Callable[[Path, int, int], Path]
"""Adds the records from a number to before another number to a source in a folder."""
ROWS = ("growth", "processes", "session", "first", "logs")
_ROUNDS = 9
_PLACES = 8
"""The number of lengths at which a session is measured."""
_FOLDERS = ("claude_code", "codex_rollout")
_SMALL = 20_000
"""Smaller real logs are not copied."""
_UUID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
_SESSION = re.compile(rb'"sessionId":"([^"-]{1,40})"')
_USAGE = {"input_tokens": 10, "output_tokens": 5}


# -- the records of seven agents: a question, a call, its result, an answer, and again


def _time(number: int) -> str:
    minutes, seconds = divmod(number, 60)
    hours, minutes = divmod(minutes, 60)
    return f"2026-01-{1 + hours // 24:02}T{hours % 24:02}:{minutes:02}:{seconds:02}.000Z"


def _text(number: int) -> str:
    return f"t{number} " * 20


def _claude_code(number: int) -> Record:
    text = _text(number)
    call = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {"command": text}}
    result = {"type": "tool_result", "tool_use_id": f"c{number - 1}", "content": text}
    contents = (text, [call], [result], [{"type": "text", "text": text}])
    content = contents[number % 4]
    role = "assistant" if number % 2 else "user"
    message: Record = {"role": role, "content": content}
    if number % 2:
        usage = {**_USAGE, "cache_read_input_tokens": number}
        message |= {"id": f"m{number}", "model": "claude-x", "usage": usage}
    return {
        "parentUuid": f"u{number - 1}" if number else None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/x",
        "sessionId": "s",
        "version": "2.0.1",
        "gitBranch": "main",
        "type": role,
        "message": message,
        "uuid": f"u{number}",
        "timestamp": _time(number),
    }


def _codex(number: int) -> Record:
    if number == 0:
        about = {"id": "s", "cwd": "/x", "timestamp": _time(0), "originator": "codex_cli_rs"}
        payload: Record = {**about, "cli_version": "0.40.0"}
        return {"timestamp": _time(0), "type": "session_meta", "payload": payload}
    text = _text(number)
    arguments = json.dumps({"command": text})
    question = [{"type": "input_text", "text": text}]
    answer = [{"type": "output_text", "text": text}]
    payload = (
        {"type": "message", "role": "user", "content": question},
        {"type": "function_call", "name": "shell", "arguments": arguments, "call_id": f"c{number}"},
        {"type": "function_call_output", "call_id": f"c{number - 1}", "output": text},
        {"type": "message", "role": "assistant", "content": answer},
    )[(number - 1) % 4]
    return {"timestamp": _time(number), "type": "response_item", "payload": payload}


def _pi(number: int) -> Record:
    if number == 0:
        return {"type": "session", "id": "s", "timestamp": _time(0), "cwd": "/x", "version": 3}
    words = [{"type": "text", "text": _text(number)}]
    arguments = {"command": _text(number)}
    call = {"type": "toolCall", "id": f"c{number}", "name": "bash", "arguments": arguments}
    usage = {"input": 10, "output": 5, "cacheRead": number, "cacheWrite": 0, "cost": {"total": 0.1}}
    reply = {"role": "assistant", "model": "m", "usage": usage}
    message: Record = (
        {"role": "user", "content": words},
        {**reply, "stopReason": "toolUse", "content": [call]},
        {"role": "toolResult", "toolCallId": f"c{number - 1}", "toolName": "bash"}
        | {"content": words},
        {**reply, "stopReason": "stop", "content": words},
    )[(number - 1) % 4]
    parent = f"u{number - 1}" if number > 1 else None
    return {
        "type": "message",
        "id": f"u{number}",
        "parentId": parent,
        "timestamp": _time(number),
    } | {"message": {**message, "timestamp": number}}


def _qwen_code(number: int) -> Record:
    text = _text(number)
    call = {"id": f"c{number}", "name": "sh", "args": {"command": text}}
    result = {"id": f"c{number - 1}", "name": "sh", "response": {"output": text}}
    parts = ({"text": text}, {"functionCall": call}, {"functionResponse": result}, {"text": text})
    kind = ("user", "assistant", "tool_result", "assistant")[number % 4]
    record: Record = {
        "uuid": f"u{number}",
        "parentUuid": f"u{number - 1}" if number else None,
        "sessionId": "s",
        "timestamp": _time(number),
        "cwd": "/x",
        "version": "0.9.0",
        "type": kind,
        "message": {"role": "model" if number % 2 else "user", "parts": [parts[number % 4]]},
    }
    if number % 2:
        counts = {"promptTokenCount": 10 + number, "candidatesTokenCount": 5}
        record |= {"model": "q", "usageMetadata": {**counts, "totalTokenCount": 15 + number}}
    return record


def _copilot_cli(number: int) -> Record:
    text = _text(number)
    call = {"toolCallId": f"c{number}", "name": "bash", "arguments": {"command": text}}
    about = {"sessionId": "s", "version": 1, "producer": "copilot-agent", "startTime": _time(0)}
    result = {"toolCallId": f"c{number - 1}", "success": True, "result": {"content": text}}
    turn: Sequence[tuple[str, Record]] = (
        ("user.message", {"content": text, "transformedContent": text, "attachments": []}),
        ("assistant.message", {"messageId": f"m{number}", "content": "", "toolRequests": [call]}),
        ("tool.execution_complete", result),
        ("assistant.message", {"messageId": f"m{number}", "content": text, "toolRequests": []}),
    )
    start = ("session.start", {**about, "copilotVersion": "1.0.0", "context": {"cwd": "/x"}})
    kind, data = turn[(number - 1) % 4] if number else start
    return {
        "type": kind,
        "data": data,
        "id": f"u{number}",
        "timestamp": _time(number),
        "parentId": f"u{number - 1}" if number else None,
    }


def _gemini_cli(number: int) -> Record:
    if number == 0:
        times = {"startTime": _time(0), "lastUpdated": _time(0)}
        return {"sessionId": "s", "projectHash": "h", **times, "kind": "main"}
    text = _text(number)
    about: Record = {"id": f"u{number}", "timestamp": _time(number)}
    if number % 2:
        return {**about, "type": "user", "content": [{"text": text}]}
    response = {"id": f"c{number}", "name": "shell", "response": {"output": text}}
    call = {"id": f"c{number}", "name": "shell", "args": {"command": text}, "status": "success"}
    call |= {"result": [{"functionResponse": response}], "timestamp": _time(number)}
    tokens = {"input": 10, "output": 5, "cached": number, "thoughts": 0, "tool": 0}
    return {
        **about,
        "type": "gemini",
        "content": text,
        "thoughts": [],
        "model": "gemini-pro",
        "tokens": {**tokens, "total": 15 + number},
        "toolCalls": [] if number % 4 else [call],
    }


def _lines(record_of: Callable[[int], Record]) -> Grow:
    def grow(folder: Path, start: int, stop: int) -> Path:
        path = folder / "s.jsonl"
        with path.open("a") as file:
            file.writelines(json.dumps(record_of(number)) + "\n" for number in range(start, stop))
        return path

    return grow


_TABLES = """
CREATE TABLE session(id TEXT PRIMARY KEY, project_id TEXT, title TEXT, time_created INTEGER,
    time_updated INTEGER);
CREATE TABLE message(id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER,
    time_updated INTEGER, data TEXT);
CREATE TABLE part(id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INTEGER,
    time_updated INTEGER, data TEXT);
CREATE INDEX part_message ON part(message_id);
CREATE INDEX part_session ON part(session_id);
CREATE INDEX message_session ON message(session_id);
INSERT INTO session VALUES('s', 'p', 'a title', 1, 1);
"""


def _opencode(folder: Path, start: int, stop: int) -> Path:
    path = folder / "opencode.db"
    with closing(sqlite3.connect(path)) as database, database:
        if start == 0:
            database.executescript(_TABLES)
        for number in range(max(start, 1), stop):
            _add_opencode(database, number)
    return path


def _add_opencode(database: sqlite3.Connection, number: int) -> None:
    at = 1_767_225_600_000 + number * 1_000
    text = _text(number)
    parts: list[Record] = [{"type": "text", "text": text}]
    info: Record = {"role": "user", "time": {"created": at}, "agent": "build"}
    if number % 2 == 0:
        cache = {"read": number, "write": 0}
        tokens = {"input": 10, "output": 5, "reasoning": 0, "cache": cache}
        info = {"role": "assistant", "time": {"created": at, "completed": at + 1}, "modelID": "m"}
        info |= {"providerID": "p", "finish": "stop", "cost": 0.01, "tokens": tokens}
    if number % 4 == 0:
        state = {"status": "completed", "input": {"command": text}, "output": text, "title": "t"}
        parts.insert(0, {"type": "tool", "callID": f"c{number}", "tool": "bash", "state": state})
    name = f"msg_{number:012}"
    row = (name, "s", at, at, json.dumps(info))
    database.execute("INSERT INTO message VALUES(?, ?, ?, ?, ?)", row)
    for place, part in enumerate(parts):
        row_of_part = (f"prt_{number:012}{place}", name, "s", at, at, json.dumps(part))
        database.execute("INSERT INTO part VALUES(?, ?, ?, ?, ?, ?)", row_of_part)


SOURCES: dict[str, Grow] = {
    "claude-code": _lines(_claude_code),
    "codex": _lines(_codex),
    "pi": _lines(_pi),
    "qwen-code": _lines(_qwen_code),
    "copilot-cli": _lines(_copilot_cli),
    "gemini-cli": _lines(_gemini_cli),
    "opencode": _opencode,
}


# -- measurements, in a process of their own


def _cpu_ms(who: int = resource.RUSAGE_SELF) -> float:
    usage = resource.getrusage(who)
    return 1_000 * (usage.ru_utime + usage.ru_stime)


def _measure_cpu(act: Callable[[], object], who: int = resource.RUSAGE_SELF) -> float:
    before = _cpu_ms(who)
    act()
    return _cpu_ms(who) - before


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def measure_growth(format: str, records: int, step: int = 1) -> dict[str, float]:
    """Return the CPU ms of the first import and View, and of those after ``step`` new records."""
    grow = SOURCES[format]
    with _folder() as folder, foldlog.open(str(folder / "a.db")) as histories:
        path = grow(folder, 0, records)
        first_import = _measure_cpu(lambda: histories.import_(path))
        (name,) = histories
        first_view = _measure_cpu(histories[name].view)
        imports = list[float]()
        views = list[float]()
        figures = list[float]()
        for number in range(records, records + _ROUNDS * step, step):
            grow(folder, number, number + step)
            imports.append(_measure_cpu(lambda: histories.import_(path)))
            views.append(_measure_cpu(histories[name].view))
            figures.append(_measure_cpu(histories[name].stats))
    return {
        "first import": first_import,
        "first View": first_view,
        "import": statistics.median(imports),
        "View": statistics.median(views),
        "stats": statistics.median(figures),
    }


_IMPORT = "import foldlog, sys\nwith foldlog.open(sys.argv[1]) as hs: hs.import_(sys.argv[2])"
_VIEW = "import foldlog, sys\nwith foldlog.open(sys.argv[1]) as hs: hs[[*hs][0]].view()"


def measure_processes(format: str, records: int) -> dict[str, float]:
    """Return the CPU ms of an import and of a View, each as a process of its own."""
    grow = SOURCES[format]
    with _folder() as folder:
        store = str(folder / "a.db")
        path = str(grow(folder, 0, records))

        def process(code: str) -> float:
            command = [sys.executable, "-c", code, store, path]
            return _measure_cpu(
                lambda: subprocess.run(command, check=True), resource.RUSAGE_CHILDREN
            )

        process(_IMPORT)
        process(_VIEW)
        imports = list[float]()
        views = list[float]()
        for number in range(records, records + 5):
            grow(folder, number, number + 1)
            imports.append(process(_IMPORT))
            views.append(process(_VIEW))
    return {"import": statistics.median(imports), "View": statistics.median(views)}


def measure_session(format: str, hooks: int) -> dict[str, float]:
    """Return the CPU s of a session with an import and a View after each turn of four records: the
    integral of what a turn costs at some lengths of the session.
    """
    lengths = [4 * hooks * place // (_PLACES - 1) for place in range(_PLACES)]
    costs = list[float]()
    for length in lengths:
        measured = measure_growth(format, max(length, 8), step=4)
        costs.append(measured["import"] + measured["View"])
    per_hook = [statistics.mean(pair) for pair in pairwise(costs)]
    return {"session, s": statistics.mean(per_hook) * hooks / 1_000}


def copy_logs(logs: Path, folder: Path, size: float) -> int:
    """Copy real logs again and again, each time with other ids. Return the size of the copies."""
    paths = [path for name in _FOLDERS for path in sorted((logs / name).glob("*.jsonl"))]
    sources = [path for path in paths if path.stat().st_size > _SMALL]
    total = 0
    round = 0
    while sources and total < size:
        (folder / f"{round}").mkdir(parents=True)
        for path in sources:
            seed = str(round).encode()
            text = path.read_bytes()
            if round:
                text = _UUID.sub(partial(_rename_uuid, seed), text)
                text = _SESSION.sub(rb'"sessionId":"\g<1>x%b"' % seed, text)
            (folder / f"{round}" / f"{round}-{path.name}").write_bytes(text)
            total += len(text)
            if total >= size:
                break
        round += 1
    return total


def _rename_uuid(seed: bytes, match: re.Match[bytes]) -> bytes:
    return hashlib.md5(match[0] + seed).hexdigest()[:8].encode() + match[1]


def measure_logs(logs: Path) -> dict[str, float]:
    """Return the CPU s of a first import of the copies in ``logs``, and the size of the store beside
    its sources.
    """
    with _folder() as folder:
        with foldlog.open(str(folder / "a.db")) as histories:
            cpu = _measure_cpu(lambda: histories.import_(logs))
        store = sum(path.stat().st_size for path in folder.glob("a.db*"))
    sources = sum(path.stat().st_size for path in logs.rglob("*.jsonl"))
    return {"import, s": cpu / 1_000, "store beside its source": store / sources}


_MEASURES: dict[str, Callable[..., dict[str, float]]] = {
    "growth": measure_growth,
    "processes": measure_processes,
    "session": measure_session,
    "first": measure_growth,
    "logs": lambda _, logs: measure_logs(Path(logs)),
}


# -- one command


def _measure_in(checkout: Path, row: str, format: str, size: int | str) -> dict[str, float]:
    command = [checkout / ".venv/bin/python", "-P", __file__, row, format, str(size)]
    # A user's interpreter keeps what it compiles, and hooks of a session begin many processes.
    environment = {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": ""}
    result = subprocess.run(
        command,
        check=True,
        cwd=checkout,
        stdout=subprocess.PIPE,
        env={**os.environ, **environment},
    )
    measured: dict[str, float] = json.loads(result.stdout)
    return measured


def _print_row(checkouts: Sequence[Path], row: str, format: str, size: int | str) -> None:
    here, *before = (_measure_in(checkout, row, format, size) for checkout in checkouts)
    cells = [
        f"{name} {value:.3g}" + (f" ({value / before[0][name]:.2f} of before)" if before else "")
        for name, value in here.items()
    ]
    if row == "first" and before:
        ours, theirs = (sum([*each.values()][:2]) for each in (here, before[0]))
        cells = [f"import and View {ours:.0f} ({ours / theirs:.2f} of before)"]
    if row in ("growth", "processes"):
        cells.insert(0, f"both {here['import'] + here['View']:.1f}")
    label = f"{size:,}" if isinstance(size, int) else "logs"
    print(f"| {row} | {format} | {label} | {', '.join(cells)} |", flush=True)


@click.command()
@click.option("--rows", default=",".join(ROWS))
@click.option("--format", "formats", default=",".join(SOURCES))
@click.option("--records", default="1000,10000")
@click.option("--hooks", default=3_000)
@click.option("--before", type=click.Path(path_type=Path, exists=True))
@click.option("--logs", type=click.Path(path_type=Path, exists=True))
@click.option("--megabytes", default=300)
def main(
    rows: str,
    formats: str,
    records: str,
    hooks: int,
    before: Path | None,
    logs: Path | None,
    megabytes: int,
) -> None:
    """Print CPU ms of what hooks of coding agents cost, beside another checkout."""
    chosen = rows.split(",")
    for name, known in ((rows, ROWS), (formats, SOURCES)):
        unknown = {*name.split(",")} - {*known}
        if unknown:
            raise click.UsageError(f"{', '.join(sorted(unknown))} is none of {', '.join(known)}")
    here = Path(__file__).parents[1]
    checkouts = [here] if before is None else [here, before.absolute()]
    sizes = {
        "growth": [int(number) for number in records.split(",")],
        "processes": [int(records.split(",")[-1])],
        "session": [hooks],
        "first": [int(records.split(",")[-1])],
    }
    for row in chosen:
        for format in formats.split(","):
            for size in sizes.get(row, ()):
                alone = row in ("growth", "processes")
                _print_row(checkouts[:1] if alone else checkouts, row, format, size)
    if logs is not None and "logs" in chosen:
        with _folder() as folder:
            copy_logs(logs.absolute(), folder, megabytes * 1e6)
            _print_row(checkouts, "logs", "all", str(folder))


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in _MEASURES:
        _, _row, _format, _size = sys.argv
        _argument = _size if _row == "logs" else int(_size)
        print(json.dumps(_MEASURES[_row](_format, _argument)))
    else:
        main()
