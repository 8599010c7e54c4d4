"""A stand-in for the servers of models: it answers as it is told, in the four dialects that the
programs speak.

An answer is a text, a call ``(tool, arguments)`` of a tool of foldlog, whose name each program
writes in its own way, or a ``Reply``, which may call the program's own tools. A request that asks
for a summary gets one that says nothing.
"""

import json
import threading
import time
from typing import Any
from uuid import uuid4

from tests.adapters.model_server import ModelServer, Reply, namespaces

SUMMARY = "The user greeted, and work goes on."
_MARKS = (
    "<analysis>",
    "CONTEXT CHECKPOINT",
    "state_snapshot",
    "anchored summary",
    "detailed prompt for continuing",
)
"""What the programs write when they ask for a summary."""
_TOKENS = 100
_WAIT = "WaitForMcpServers"
"""The tool of Claude Code that waits for servers of tools."""
_SEARCH = "ToolSearch"
"""The tool of Claude Code that loads the tools of servers."""
_WAITS_MAX = 100


class StandIn(ModelServer):
    """``answers`` are what it is to say, ``requests`` what it was asked. ``tokens_once`` is the size
    that the next prompt of the agent has. ``not_offered`` are the tools that it could not call, and
    ``results`` the numbers of the requests that bring the results of its calls.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tokens_once = _TOKENS
        self.answers: list[Any] = []
        self.requests: list[dict[str, Any]] = []
        self.summaries: list[dict[str, Any]] = []
        self.not_offered: list[str] = []
        self.results: list[int] = []
        self._waits = 0
        self._lock = threading.Lock()

    def reply_to(self, request: dict[str, Any]) -> Reply:
        with self._lock:
            if _asks_for_summary(request):
                self.summaries.append(request)
                # Gemini's, and that of the others
                name = "state_snapshot" if "contents" in request else "summary"
                return Reply(f"<{name}>{SUMMARY}</{name}>", prompt_tokens=_TOKENS)
            if not request.get("tools"):  # a title, a check of quota
                return Reply("hello", prompt_tokens=_TOKENS)
            self.requests.append(request)
            tokens = self.tokens_once
            self.tokens_once = _TOKENS
            return self._answer(request)._replace(prompt_tokens=tokens)

    def _answer(self, request: dict[str, Any]) -> Reply:
        if not self.answers:
            return Reply("done")
        if isinstance(self.answers[0], str):
            return Reply(self.answers.pop(0))
        if isinstance(self.answers[0], Reply):
            return self.answers.pop(0)
        name, arguments = self.answers[0]
        tools = _tools(request, name)
        call_id = f"toolu_{uuid4().hex}"
        if not tools and self._waits < _WAITS_MAX:
            # Codex starts the server beside the turn; a call of an unknown tool is a new request.
            self._waits += 1
            time.sleep(0.5)
            if any(tool.get("name") == _SEARCH for tool in request["tools"]):
                names = {answer[0] for answer in self.answers if type(answer) is tuple}
                query = ",".join(f"mcp__foldlog__{tool}" for tool in sorted(names))
                return Reply(calls=[(_SEARCH, call_id, {"query": f"select:{query}"})])
            return Reply(calls=[(_WAIT, call_id, {})])
        self.answers.pop(0)
        if not tools:
            self.not_offered.append(name)
            return Reply(f"no tool {name} is offered")
        self.results.append(len(self.requests))
        return Reply(calls=[(tools[0], call_id, arguments)])


def _asks_for_summary(request: dict[str, Any]) -> bool:
    last = json.dumps(
        [_last_asked(request.get(key) or []) for key in ("messages", "input", "contents")]
    )
    system = json.dumps([request.get(key) for key in ("systemInstruction", "system")])
    if request.get("messages") and request["messages"][0].get("role") == "system":
        system += json.dumps(request["messages"][0])
    in_system = not request.get("tools") and any(mark in system for mark in _MARKS)
    return in_system or any(mark in last for mark in _MARKS)


def _last_asked(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the last message that is not an instruction. Claude Code may append the instructions
    of tool servers.
    """
    return [message for message in messages if message.get("role") != "system"][-1:]


def _tools(request: dict[str, Any], name: str) -> list[str]:
    """Return how a request names a tool of foldlog; nothing where the tool is not there."""
    spaces = namespaces(request)
    names = [*spaces]
    for tool in request["tools"]:
        declared = tool.get("functionDeclarations", [tool])
        names += [tool.get("name") or tool.get("function", {}).get("name", "") for tool in declared]
    ours = [tool for tool in names if "foldlog" in f"{spaces.get(tool, '')}{tool}"]
    return [tool for tool in ours if tool.endswith(name)]
