"""A stand-in for the server of a model whose agents begin sub-agents. It counts what it served to
each agent.

The prompt of an agent contains ``Agent NAME begins``. Requests without such a prompt, or without
tools, are of no agent: a title, for example.
"""

import json
import re
import threading
from collections import defaultdict
from typing import NamedTuple
from uuid import uuid4

from tests.adapters.model_server import ModelServer, Refused, Reply

_SECONDS_MAX = 60


def prompt_of(agent):
    return f"Agent {agent} begins"


def agent_in(messages):
    """Return the agent whose prompt comes first in some messages. Its own calls of sub-agents, with
    their prompts, come later.
    """
    found = re.search(prompt_of(r"(\w+)"), json.dumps(messages))
    return found and found[1]


class Spent(NamedTuple):
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other):
        return Spent(*(own + more for own, more in zip(self, other, strict=True)))


class Step(NamedTuple):
    """A reply of an agent: ``text``, or calls. ``calls`` is a list of tools with their arguments, or
    a function that makes this list from the messages of the request. The server answers when the
    agents ``after`` have begun, and the agents ``until`` have ended.
    """

    text: str = ""
    calls: object = ()
    after: tuple[str, ...] = ()
    until: tuple[str, ...] = ()


class Delegating(ModelServer):
    """``scripts`` are the steps of each agent. ``spent`` is what was served to each agent. Each
    reply has its own number of tokens.
    """

    def __init__(self, scripts):
        super().__init__()
        self.scripts = scripts
        self.spent = defaultdict(Spent)
        self._begun = {agent: threading.Event() for agent in scripts}
        self._ended = {agent: threading.Event() for agent in scripts}
        self._lock = threading.Lock()

    def reply_to(self, request):
        messages = next(filter(None, map(request.get, ("messages", "input", "contents"))))
        agent = agent_in(messages)
        if agent is None or not request.get("tools"):
            return Reply("A title")
        self._begun[agent].set()
        if not self.scripts[agent]:
            raise Refused(f"agent {agent} asks again after its last step")
        step = self.scripts[agent].pop(0)
        waits = [self._begun[name] for name in step.after]
        waits += [self._ended[name] for name in step.until]
        if not all(event.wait(_SECONDS_MAX) for event in waits):
            raise Refused(f"agent {agent} waits for {step.after} to begin, {step.until} to end")
        calls = step.calls(messages) if callable(step.calls) else step.calls
        with self._lock:
            number = sum(self.spent.values(), Spent()).calls
            served = Spent(1, 1_000 + 17 * number, 10 + number)
            self.spent[agent] += served
        if not self.scripts[agent]:
            self._ended[agent].set()
        named = [(tool, f"call_{uuid4().hex[:12]}", arguments) for tool, arguments in calls]
        return Reply(step.text, named, served.prompt_tokens, served.completion_tokens)
