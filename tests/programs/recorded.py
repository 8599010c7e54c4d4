"""Count the conversations that a program recorded, from its own files, without foldlog."""

import json
import re
import sqlite3
from collections import defaultdict
from contextlib import closing
from typing import NamedTuple

from tests.programs.delegating import Spent, agent_in


class Recorded(NamedTuple):
    """A conversation: its agent, the conversation that began it, its usage and its failed calls."""

    agent: str
    parent: str | None
    spent: Spent
    errors: int


def _lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def _sum(usages):
    return sum((Spent(1, *usage) for usage in usages), Spent())


def _place_of(path, session):
    """Return the name of a conversation, and of the conversation that began it."""
    about = path.with_suffix(".meta.json")
    if not about.exists():
        return session, None
    above = json.loads(about.read_text()).get("parentAgentId")
    return f"{session}/{path.stem}", f"{session}/agent-{above}" if above else session


def claude_code(home):
    conversations = {}
    for path in (home / ".claude/projects").rglob("*.jsonl"):
        lines = [line for line in _lines(path) if line["type"] in ("user", "assistant")]
        name, parent = _place_of(path, lines[0]["sessionId"])
        messages = [line["message"] for line in lines]
        replies = {
            message["id"]: (message["usage"]["input_tokens"], message["usage"]["output_tokens"])
            for message in messages
            if message["role"] == "assistant"
        }
        contents = [message["content"] for message in messages]
        parts = [part for content in contents if type(content) is list for part in content]
        errors = [part for part in parts if part.get("is_error")]
        conversations[name] = Recorded(
            agent_in(messages), parent, _sum(replies.values()), len(errors)
        )
    return conversations


def codex(home):
    conversations = {}
    for path in (home / ".codex/sessions").rglob("*.jsonl"):
        payloads = [line["payload"] for line in _lines(path)]
        about = payloads[0]
        spawned = about["source"]["subagent"]["thread_spawn"] if about["source"] != "exec" else {}
        counts = [payload["info"] for payload in payloads if payload.get("type") == "token_count"]
        usages = {
            count["total_token_usage"]["total_tokens"]: count["last_token_usage"]
            for count in filter(None, counts)
        }
        outputs = [str(payload.get("output")) for payload in payloads]
        failed = [output for output in outputs if re.search(r"exited with code [1-9]", output)]
        conversations[about["id"]] = Recorded(
            agent_in([payload for payload in payloads if payload.get("role") == "user"]),
            spawned.get("parent_thread_id"),
            _sum((usage["input_tokens"], usage["output_tokens"]) for usage in usages.values()),
            len(failed),
        )
    return conversations


def opencode(home):
    path = home / ".local/share/opencode/opencode.db"
    with closing(sqlite3.connect(path)) as database:
        sessions = dict(database.execute("SELECT id, parent_id FROM session"))
        data = {
            table: [
                (session, json.loads(text))
                for session, text in database.execute(
                    f"SELECT session_id, data FROM {table} ORDER BY time_created, id"
                )
            ]
            for table in ("message", "part")
        }
    spent = defaultdict(Spent)
    errors = defaultdict(int)
    texts = defaultdict(list)
    for session, message in data["message"]:
        if message["role"] == "assistant":
            tokens = message["tokens"]
            prompt = tokens["input"] + tokens["cache"]["read"] + tokens["cache"]["write"]
            spent[session] += Spent(1, prompt, tokens["output"])
    for session, part in data["part"]:
        texts[session].append(part.get("text"))
        errors[session] += part.get("state", {}).get("status") == "error"
    return {
        session: Recorded(agent_in(texts[session]), parent, spent[session], errors[session])
        for session, parent in sessions.items()
    }


def gemini_cli(home):
    conversations = {}
    for path in (home / ".gemini/tmp").rglob("*.jsonl"):
        lines = _lines(path)
        folder = path.parent
        replies = {line["id"]: line["tokens"] for line in lines if line.get("type") == "gemini"}
        # a result comes with its call, and again in the next message
        failed = {
            found[1]
            for line in lines
            if (found := re.search(r'"id": "([^"]+)"[^{}]*"response": {"error"', json.dumps(line)))
        }
        conversations[lines[0]["sessionId"]] = Recorded(
            agent_in(lines),
            None if folder.name == "chats" else folder.name,
            _sum((tokens["input"], tokens["output"]) for tokens in replies.values()),
            len(failed),
        )
    return conversations


def qwen_code(home):
    conversations = {}
    for path in (home / ".qwen/projects").rglob("*.jsonl"):
        lines = _lines(path)
        name, parent = _place_of(path, lines[0]["sessionId"])
        usages = [line["usageMetadata"] for line in lines if "usageMetadata" in line]
        parts = [part for line in lines for part in line.get("message", {}).get("parts", ())]
        results = [part["functionResponse"] for part in parts if "functionResponse" in part]
        conversations[name] = Recorded(
            agent_in([line.get("message") for line in lines]),
            parent,
            _sum((usage["promptTokenCount"], usage["candidatesTokenCount"]) for usage in usages),
            sum("error" in result["response"] for result in results),
        )
    return conversations


def copilot_cli(home):
    """Copilot CLI records its sub-agents in the session."""
    (path,) = (home / ".copilot/session-state").glob("*/events.jsonl")
    events = [(line["type"], line["data"]) for line in _lines(path)]
    usages = [
        each["usage"]
        for kind, data in events
        if kind == "session.shutdown"
        for each in data["modelMetrics"].values()
    ]
    replies = sum(kind == "assistant.message" for kind, _ in events)
    errors = sum(data.get("success") is False for kind, data in events if "tool." in kind)
    spent = Spent(
        replies,
        sum(usage["inputTokens"] for usage in usages),
        sum(usage["outputTokens"] for usage in usages),
    )
    return {path.parent.name: Recorded("main", None, spent, errors)}
