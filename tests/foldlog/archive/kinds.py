"""The files of some programs, with a word of its own in each record: where the word stands is
chosen at random.

A record is the text of its JSON. ``write`` puts records into a file as their program does, with a
title beside them where it keeps one there.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

Record = dict[str, Any]
Write = Callable[[Path, Sequence[str], str], None]


class Line(NamedTuple):
    """What a record is made of: its number, its ``word``, the ``earlier`` words that it may repeat,
    and its session.
    """

    number: int
    word: str
    earlier: Sequence[str]
    session: str
    random: random.Random

    @property
    def at(self) -> str:
        return f"2026-01-05T09:{self.number // 60 % 60:02}:{self.number % 60:02}.000Z"

    @property
    def name(self) -> str:
        return f"{self.session}-r{self.number}"

    def one(self, *records: Record) -> Record:
        return self.random.choice(records)


class Kind(NamedTuple):
    """The files of one program. ``has_lines``: it can hold damaged lines."""

    format: str
    file: str
    first: Callable[[str], Record | None]
    record: Callable[[Line], Record]
    write: Write
    has_lines: bool = True


def write_lines(path: Path, records: Sequence[str], title: str) -> None:
    path.write_bytes("".join(f"{record}\n" for record in records).encode())


# -- coding agents
# --------------------------------------------------------------------------------------------------


def _claude_code(line: Line) -> Record:
    word, role = line.word, line.random.choice(["user", "assistant"])
    use = {"type": "tool_use", "id": f"t{line.number}", "name": "Bash", "input": {"command": word}}
    result = {
        "type": "tool_result",
        "tool_use_id": f"t{line.number - 1}",
        "content": f"out {word}",
        "is_error": True,
    }
    contents: list[Any] = [
        f"say {word}",
        [{"type": "text", "text": f"say {word}"}],
        [use] if role == "assistant" else [result],
        [{"type": "thinking", "thinking": word, "signature": word}, {"type": "text", "text": "so"}],
    ]
    message = {
        "role": role,
        "content": line.random.choice(contents),
        "model": "m",
        "id": f"msg{line.number}",
    }
    whole = {"uuid": line.name, "sessionId": line.session, "timestamp": line.at, "parentUuid": None}
    return line.one(
        *[whole | {"type": role, "message": message}] * 6,
        {"type": "custom-title", "customTitle": f"about {word}", "sessionId": line.session},
        {"type": "ai-title", "aiTitle": f"about {word}", "sessionId": line.session},
        {
            "type": "summary",
            "summary": f"about {word}",
            "leafUuid": f"{line.session}-r{line.number + 1}",
        },
        whole
        | {
            "type": "user",
            "isCompactSummary": True,
            "message": {"role": "user", "content": f"so far {word}"},
        },
        whole
        | {
            "type": "user",
            "cwd": f"/{word}",
            "gitBranch": word,
            "message": {"role": "user", "content": "where"},
        },
        whole | {"type": "attachment", "attachment": {"type": "file", "content": word}},
        whole | {"type": "user", "message": {"role": "user", "content": {"odd": word}}},
        {"type": 5, "odd": word},
    )


def _codex(line: Line) -> Record:
    word, role = line.word, line.random.choice(["user", "assistant"])

    def item(**payload: Any) -> Record:
        return {"timestamp": line.at, "type": "response_item", "payload": payload}

    def message(text: str) -> Record:
        return {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": text}],
        }

    content = [{"type": "input_text" if role == "user" else "output_text", "text": f"say {word}"}]
    history = [message(f"say {each}") for each in line.earlier]
    return line.one(
        *[item(type="message", role=role, content=content)] * 5,
        item(
            type="function_call",
            name="shell",
            arguments=json.dumps({"command": [word]}),
            call_id=f"c{line.number}",
        ),
        item(
            type="function_call_output",
            call_id=f"c{line.number - 1}",
            output=f"Exit code: 1\nOutput:\n{word}",
        ),
        item(
            type="reasoning",
            summary=[{"type": "summary_text", "text": word}],
            encrypted_content=word,
        ),
        {
            "timestamp": line.at,
            "type": "turn_context",
            "payload": {"cwd": f"/{word}", "model": "m"},
        },
        {
            "timestamp": line.at,
            "type": "event_msg",
            "payload": {"type": "agent_message", "message": word},
        },
        {
            "timestamp": line.at,
            "type": "compacted",
            "payload": {"message": f"so far {word}", "replacement_history": history},
        },
        {"timestamp": line.at, "type": "odd", "payload": [word]},
    )


def _gemini_cli(line: Line) -> Record:
    word, whole = line.word, {"id": line.name, "timestamp": line.at}
    call = {
        "id": f"c{line.number}",
        "name": "ls",
        "args": {"path": word},
        "status": "success",
        "timestamp": line.at,
    }
    asked = whole | {"type": "user", "content": [{"text": f"say {word}"}]}
    said = whole | {
        "type": "gemini",
        "content": f"say {word}",
        "thoughts": [{"subject": word, "description": word}],
    }
    snapshot = whole | {
        "type": "user",
        "content": [{"text": f"<state_snapshot>{word}</state_snapshot>"}],
    }
    again = [
        {
            "id": f"{line.name}.{number}",
            "timestamp": line.at,
            "type": "user",
            "content": [{"text": f"say {each}"}],
        }
        for number, each in enumerate(line.earlier)
    ]
    return line.one(
        *[asked, said] * 3,
        whole
        | {
            "type": "gemini",
            "content": "I look",
            "toolCalls": [call | {"resultDisplay": word}],
        },
        {"$set": {"summary": word, "lastUpdated": line.at}},
        {"$set": {"messages": [snapshot, *again]}},
        whole | {"type": "info", "content": word},
    )


def _qwen_code(line: Line) -> Record:
    word = line.word
    whole = {
        "uuid": line.name,
        "parentUuid": None,
        "sessionId": line.session,
        "timestamp": line.at,
        "cwd": "/w",
    }

    def message(role: str, *parts: Record) -> Record:
        return {
            "type": "user" if role == "user" else "assistant",
            "message": {"role": role, "parts": [*parts]},
        }

    again = [{"role": "user", "parts": [{"text": f"say {each}"}]} for each in (word, *line.earlier)]
    call = {"id": f"c{line.number}", "name": "ls", "args": {"path": word}}
    kinds = [
        *[message("user", {"text": f"say {word}"})] * 3,
        message("model", {"text": "hm", "thought": True}, {"text": f"say {word}"}),
        message("model", {"functionCall": call}),
        {
            "type": "system",
            "subtype": "chat_compression",
            "systemPayload": {"info": {}, "compressedHistory": again},
        },
        {"type": "system", "subtype": "ui_telemetry", "systemPayload": {"uiEvent": word}},
    ]
    return whole | line.one(*kinds)


def _openhands_v1(line: Line) -> Record:
    word = line.word
    whole = {"id": line.name, "timestamp": line.at.removesuffix("Z"), "source": "agent"}
    text = [{"type": "text", "text": f"say {word}"}]
    message = {"role": "user", "content": text, "thinking_blocks": []}
    call = {"id": f"c{line.number}", "name": "terminal", "arguments": json.dumps({"command": word})}
    return line.one(
        *[
            whole
            | {
                "kind": "MessageEvent",
                "source": "user",
                "llm_message": message,
                "activated_skills": [],
            }
        ]
        * 4,
        whole
        | {
            "kind": "ActionEvent",
            "thought": text,
            "action": {"kind": "ExecuteBashAction", "command": word},
            "tool_name": "terminal",
            "tool_call_id": f"c{line.number}",
            "tool_call": call,
            "llm_response_id": line.name,
        },
        whole
        | {
            "kind": "ObservationEvent",
            "source": "environment",
            "tool_name": "terminal",
            "tool_call_id": f"c{line.number - 1}",
            "observation": {"kind": "ExecuteBashObservation", "output": word},
            "action_id": f"{line.session}-r{line.number - 1}",
        },
        whole
        | {
            "kind": "Condensation",
            "source": "environment",
            "forgotten_event_ids": [],
            "summary": f"say {word}",
            "summary_offset": 0,
            "llm_response_id": line.name,
        },
        whole
        | {
            "kind": "ConversationStateUpdateEvent",
            "source": "environment",
            "key": "k",
            "value": {"title": word},
        },
    )


def _otlp(line: Line) -> Record:
    """A span, which repeats what was said before."""
    asked = [
        {"role": "user", "parts": [{"type": "text", "content": f"say {each}"}]}
        for each in line.earlier[-3:]
    ]
    said = [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": f"say {line.word}"}],
            "finish_reason": "stop",
        }
    ]

    told = {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": line.session,
        "gen_ai.input.messages": json.dumps(asked),
        "gen_ai.output.messages": json.dumps(said),
    }
    begins = (line.number + 1) * 10**9
    span = {
        "traceId": "5b8e",
        "spanId": line.name,
        "name": "chat",
        "startTimeUnixNano": str(begins),
        "endTimeUnixNano": str(begins + 10**8),
        "attributes": [
            {"key": key, "value": {"stringValue": value}} for key, value in told.items()
        ],
    }
    return {
        "resourceSpans": [
            {"resource": {"attributes": []}, "scopeSpans": [{"scope": {}, "spans": [span]}]}
        ]
    }


# -- documents and databases
# ------------------------------------------------------------------------------------------


def _chat(line: Line) -> Record:
    call = {
        "id": f"c{line.number}",
        "type": "function",
        "function": {"name": "ls", "arguments": line.word},
    }
    return line.one(
        *[{"role": line.random.choice(["user", "assistant"]), "content": f"say {line.word}"}] * 4,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{line.number - 1}", "content": f"out {line.word}"},
    )


def write_chat(path: Path, records: Sequence[str], title: str) -> None:
    note = json.dumps({"task": title})
    path.write_text(
        f'{{"instance_id": "{path.stem}", "messages": [{", ".join(records)}], "info": {note}}}'
    )


def _claude_ai(line: Line) -> Record:
    return {
        "uuid": line.name,
        "text": f"say {line.word}",
        "sender": line.random.choice(["human", "assistant"]),
        "created_at": line.at,
        "content": [{"type": "text", "text": f"say {line.word}"}],
        "attachments": [],
        "files": [],
    }


def write_claude_ai(path: Path, records: Sequence[str], title: str) -> None:
    about = {
        "uuid": path.stem,
        "name": title,
        "summary": f"of {title}",
        "created_at": "2026-01-05T09:00:00Z",
    }
    path.write_text(f'{json.dumps(about)[:-1]}, "chat_messages": [{", ".join(records)}]}}')


def _opencode(line: Line) -> Record:
    created = 1_767_600_000_000 + line.number
    part = line.one(
        *[{"type": "text", "text": f"say {line.word}"}] * 3,
        {
            "type": "tool",
            "tool": "ls",
            "callID": f"c{line.number}",
            "state": {
                "status": "completed",
                "input": {"path": line.word},
                "output": line.word,
                "title": line.word,
                "time": {"start": created, "end": created},
            },
        },
        {"type": "reasoning", "text": line.word},
    )
    role = "assistant" if part["type"] != "text" else line.random.choice(["user", "assistant"])
    whole = {
        "id": f"msg_{line.name}",
        "sessionID": line.session,
        "role": role,
        "time": {"created": created},
    }
    return {"info": whole, "parts": [{"id": f"prt_{line.name}", **part}]}


def write_opencode(path: Path, records: Sequence[str], title: str) -> None:
    path.unlink(missing_ok=True)
    session = path.parent.name
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TABLE session (id, project_id, parent_id, directory, title, time_created)"
        )
        database.execute("CREATE TABLE message (id, session_id, time_created, data)")
        database.execute("CREATE TABLE part (id, message_id, session_id, data)")
        database.execute("INSERT INTO session VALUES (?, 'p', NULL, '/', ?, 1)", (session, title))
        parts = dict[str, tuple[str, ...]]()
        for place, record in enumerate(map(json.loads, records)):
            info = record["info"]
            database.execute(
                "INSERT INTO message VALUES (?, ?, ?, ?)",
                (info["id"], session, place, json.dumps(info)),
            )
            parts |= {
                part["id"]: (part["id"], info["id"], session, json.dumps(part))
                for part in record["parts"]
            }
        database.executemany("INSERT INTO part VALUES (?, ?, ?, ?)", parts.values())
        database.commit()


def _cursor(line: Line) -> Record:
    call = {
        "tool": 7,
        "name": "read_file",
        "toolCallId": f"t{line.number}",
        "rawArgs": json.dumps({"path": line.word}),
        "status": "completed",
        "result": json.dumps({"contents": line.word}),
    }
    whole = {"bubbleId": line.name, "createdAt": line.at}
    return whole | line.one(
        *[{"type": line.random.choice([1, 2]), "text": f"say {line.word}"}] * 3,
        {"type": 2, "text": "", "toolFormerData": call},
        {"type": 2, "text": "so", "thinking": {"text": line.word, "signature": "s"}},
    )


def write_cursor(path: Path, records: Sequence[str], title: str) -> None:
    path.unlink(missing_ok=True)
    named = [(f"{number}", json.loads(record)) for number, record in enumerate(records)]
    headers = [{"bubbleId": name, "type": record["type"]} for name, record in named]
    about = {
        "composerId": "c",
        "createdAt": 1,
        "name": title,
        "fullConversationHeadersOnly": headers,
    }
    rows = {"composerData:c": about} | {f"bubbleId:c:{name}": record for name, record in named}
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE cursorDiskKV (key TEXT, value BLOB)")
        database.executemany(
            "INSERT INTO cursorDiskKV VALUES (?, ?)", [(key, json.dumps(rows[key])) for key in rows]
        )
        database.commit()


def _nothing(session: str) -> None:
    return None


def _of_codex(session: str) -> Record:
    at = "2026-01-05T09:00:00.000Z"
    return {
        "timestamp": at,
        "type": "session_meta",
        "payload": {"id": session, "cwd": "/", "timestamp": at},
    }


def _of_claude(session: str) -> Record:
    return {"type": "summary", "summary": "t", "leafUuid": "x", "sessionId": session}


def _of_gemini(session: str) -> Record:
    return {
        "sessionId": session,
        "projectHash": "h",
        "startTime": "2026-01-05T09:00:00.000Z",
        "kind": "main",
    }


def _prompt(session: str) -> Record:
    return {
        "kind": "SystemPromptEvent",
        "id": f"{session}-p",
        "timestamp": "2026-01-05T09:00:00",
        "source": "agent",
        "system_prompt": {"type": "text", "text": "You mend code."},
        "tools": [],
    }


KINDS = (
    Kind("claude-code", "log.jsonl", _of_claude, _claude_code, write_lines),
    Kind("codex", "log.jsonl", _of_codex, _codex, write_lines),
    Kind("gemini-cli", "log.jsonl", _of_gemini, _gemini_cli, write_lines),
    Kind("qwen-code", "log.jsonl", _nothing, _qwen_code, write_lines),
    Kind("openhands-v1", "log.jsonl", _prompt, _openhands_v1, write_lines),
    Kind("otlp-genai", "log.jsonl", _nothing, _otlp, write_lines),
    Kind("openai-chat", "chat.json", _nothing, _chat, write_chat, has_lines=False),
    Kind("claude-ai", "chat.json", _nothing, _claude_ai, write_claude_ai, has_lines=False),
    Kind("opencode", "opencode.db", _nothing, _opencode, write_opencode, has_lines=False),
    Kind("cursor", "state.vscdb", _nothing, _cursor, write_cursor, has_lines=False),
)
