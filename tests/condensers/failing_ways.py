"""``python -m tests.condensers.failing_ways``: agents whose summarizer fails or babbles, in 22 ways.

Each turn is a process of its own, which opens the store, prepares the prompt, and appends the
turn. After 250 turns the summarizer is well again. A run ends when its summary is in the log, or
150 turns later. The program prints a line for each strategy and way, and ends with 1 if an agent
was stopped, had a prompt over its window, lost events without a summary, asked more than 6 times,
or did not come back. All runs take an hour: with ``--pieces FOLDER``, a later run of the program
goes on where an earlier one ended.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, Final

import foldlog
from benchmarks.pieces import Pieces
from foldlog import LLM, LLMConfig, Message, SystemMessage
from foldlog.condensers import ESTIMATE, condenser_from_config
from foldlog.condensers.prompts.rendering import event_text
from foldlog.condensers.strategies.state_fields import FIELDS, REQUIRED, TOOL_NAME
from foldlog.eventstore import CondensationAction
from foldlog.projections import View
from tests.condensers.openai_server import (
    Answer,
    CutOff,
    Failure,
    Late,
    OpenAIServer,
    Raw,
    Request,
    Text,
    ToolCall,
    Trickling,
    context_length_exceeded,
)

BROKEN_TURNS: Final = 250
TURNS_TO_HEAL: Final = 150
ASKS_AT_MOST: Final = 6
WINDOW: Final = 6_000
TIMEOUT: Final = 1.0
MODEL: Final = "openai/gpt-4o-mini"

Way = Callable[[Request], Answer]


def _always(answer: Answer) -> Way:
    return lambda request: answer


def _echo(request: Request) -> Answer:
    return Text(json.dumps(request.body["messages"])[:1_500])


def _longer(request: Request) -> Answer:
    return Text(" ".join(f"word{number}" for number in range(request.tokens)))


WAYS: Final[Mapping[str, Way]] = {
    # The server or the network fails.
    "timeout": _always(Late(20, Text("too late"))),
    "slow stream": _always(Trickling(100, 0.2, Text("too late"))),
    "429": _always(Failure(429, "slow down", headers={"retry-after": "20"})),
    "500": _always(Failure(500, "internal")),
    "401": _always(Failure(401, "Incorrect API key provided: key")),
    "unknown model": _always(Failure(404, "The model does not exist", "model_not_found")),
    "overflow": _always(context_length_exceeded(10, 20)),
    "reset": _always(CutOff(Text("half"))),
    "HTML": _always(Raw(b"<html><body>Bad gateway</body></html>")),
    "wrong shape": _always(Raw(b'{"foo": 1}')),
    # The model gives nothing that can be used.
    "empty": _always(Text("")),
    "cut": _always(Text("The user wants the tick", finish_reason="length")),
    "content filter": _always(Text("", finish_reason="content_filter")),
    "tool call": _always(ToolCall("bash", {"command": "ls"})),
    "longer": _longer,
    "refusal": _always(Text("I'm sorry, but I can't help with that.")),
    # The model babbles.
    "refusal in German": _always(Text("Dabei kann ich leider nicht helfen.")),
    "long refusal": _always(Text("If you need help with another topic, let me know. " * 12)),
    "question": _always(Text("What would you like me to summarize? Please paste it.")),
    "one word": _always(Text("the " * 600)),
    "acts": _always(Text("Let me look at it next.\n\n```bash\ncat notes.txt\n```")),
    "echo": _echo,
}


def well(request: Request) -> Answer:
    """Answer as a model that is well: with the newest names of its prompt."""
    material = json.dumps(request.body["messages"])
    names = dict.fromkeys(re.findall(r"module_\d+\.py|owner_\d+", material))
    text = f"The user wants a clear ticket queue. Looked at {', '.join([*names][-60:])}."
    if request.body.get("response_format"):
        ids = re.findall(r"EVENT id=(\d+)", material)
        return Text(json.dumps({"ids": [int(number) for number in ids[-8:]]}))
    fields = dict.fromkeys(FIELDS, "") | dict.fromkeys(REQUIRED, text)
    if request.body.get("tool_choice") not in (None, "none"):
        return ToolCall(TOOL_NAME, fields)
    return Text(text)


STRATEGIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "llm": {"type": "llm"},
    "llm, continue": {"type": "llm", "prompt": "continue"},
    "structured_summary": {"type": "structured_summary"},
    "llm_attention": {"type": "llm_attention", "max_size": 30},
}


class Agent(LLM):
    """The agent's model, whose tokens are counted as foldlog estimates them."""

    def token_sums(self, view: View) -> tuple[int, ...]:
        return tuple(ESTIMATE.token_sums(view))

    def tokens_at_most(self, view: View) -> None:
        return None


@dataclass
class Outcome:
    """The numbers of the run of one strategy, whose model fails in one way."""

    strategy: str
    way: str
    turns: int = 0
    stopped: int = 0
    over_window: int = 0
    lost: int = 0
    """The events that were forgotten without a summary, or with a text that is none."""
    asks: int = 0
    """The turns in which the broken model was asked."""
    back_after: int | None = None
    """The events from the moment when the model is well to its first answer in the log; None if
    it never answers.
    """

    @property
    def is_good(self) -> bool:
        wrong = self.stopped or self.over_window or self.lost or self.asks > ASKS_AT_MOST
        return not wrong and self.back_after is not None


_fork = multiprocessing.get_context("fork")


@contextmanager
def served(way: str) -> Iterator[tuple[str, Any, Any]]:
    """Serve the model in a process. Yields its address, whether it is well, and its requests."""
    is_well = _fork.Value("b", False)
    asked = _fork.Value("i", 0)
    receiver, sender = _fork.Pipe()

    def respond(request: Request) -> Answer:
        with asked.get_lock():
            asked.value += 1
        return well(request) if is_well.value else WAYS[way](request)

    def serve() -> None:
        receiver.close()  # so that the server ends with the process that asks it
        with OpenAIServer() as server:
            server.respond(respond)
            sender.send(server.url)
            with suppress(EOFError):
                sender.recv()

    process = _fork.Process(target=serve)
    process.start()
    sender.close()  # so that ``recv`` fails if the server dies
    try:
        yield receiver.recv(), is_well, asked
    finally:
        receiver.close()  # ends the server
        process.join()


def in_a_process(turn: Callable[[], Any]) -> Any:
    """Run a turn in a separate process. Return its result, or None if it failed."""
    receiver, sender = _fork.Pipe(duplex=False)
    process: ForkProcess = _fork.Process(target=lambda: sender.send(turn()))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:  # The turn raised an error, which is on stderr.
        return None
    finally:
        process.join()


def run(strategy: str, way: str, folder: Path, broken: int = BROKEN_TURNS) -> Outcome:
    outcome = Outcome(strategy, way)
    store = f"sqlite:///{folder}/{strategy}-{way}.db".replace(" ", "_")
    with served(way) as (url, is_well, asked):
        config = LLMConfig(
            model=MODEL,
            base_url=url,
            api_key="key",
            timeout_s=TIMEOUT,
            retries=0,
            max_input_tokens=16_000,
            max_output_tokens=1_500,
            function_calling=True,
            response_schema=True,
        )
        agent = Agent(
            config.model_copy(update={"max_input_tokens": WINDOW, "max_output_tokens": 800})
        )
        settings = dict(STRATEGIES[strategy])
        if settings.get("prompt") != "continue":
            settings["llm_config"] = config
        healed_at = 0
        for number in range(broken + TURNS_TO_HEAL):
            if number == broken:
                is_well.value = True
            before = asked.value
            result = in_a_process(partial(_turn, store, settings, agent, number, healed_at))
            outcome.turns += 1
            if result is None:
                outcome.stopped += 1
                continue
            tokens, lost, version, is_back = result
            outcome.over_window += tokens > WINDOW
            if number < broken:
                outcome.asks += asked.value > before
                outcome.lost += lost
                healed_at = version
            elif is_back:
                outcome.back_after = version - healed_at
                break
    return outcome


def _outcome(strategy: str, way: str, folder: Path, broken: int) -> dict[str, Any]:
    return asdict(run(strategy, way, folder, broken))


def _turn(
    store: str, settings: Mapping[str, Any], agent: Agent, number: int, healed_at: int
) -> tuple[int, int, int, bool]:
    """Return the tokens of the prompt, the events lost, the new version, and whether a condensation
    is of the model.
    """
    condenser = condenser_from_config(dict(settings))
    with foldlog.open(store, condenser=condenser, agent_llm=agent) as histories:
        history = histories["run"]
        if number == 0:
            history.append(SystemMessage(content="You are a helpful agent. " * 10))
            history.append(Message(source="user", content="Clear the ticket queue."))
        before = history.version()
        view = history.prepare()
        made = [event for event in history.events(before) if isinstance(event, CondensationAction)]
        lost = sum(_lost(history, event) for event in made)
        _append(history, number)
        is_back = any(
            "instead_of" not in event.metadata and event.id >= healed_at for event in made
        )
        return agent.token_sums(view)[-1], lost, history.version(), is_back


def _lost(history: Any, made: CondensationAction) -> int:
    """Return how many events a condensation forgot without a text that stands for them. The judge
    is not the one of the product: a text stands for events if it has one of their names.
    """
    forgotten = [
        event
        for first, last in made.forgotten.intervals
        for event in history.events(first, last + 1)
    ]
    text = made.summary or ""
    has_digest = text.startswith("# Digest of") or "\n\n# Digest of" in text
    names = {*_NAME.findall("".join(map(event_text, forgotten)))}
    return 0 if has_digest or names & {*_NAME.findall(text)} else len(forgotten)


_NAME: Final = re.compile(r"module_\d+|owner_\d+|[Ss]tep \d+|ticket \d+")
"""Matches what the events of a run name. A text without any of these names stands for none."""


def _append(history: Any, number: int) -> None:
    rng = random.Random(number)
    if number % 20 == 19:
        history.append_reply({"role": "assistant", "content": f"Step {number} is done."})
        history.append(Message(source="user", content=f"Go on with ticket {number}."))
        return
    calls = [
        {
            "id": f"c{number}_{place}",
            "type": "function",
            "function": {
                "name": "bash",
                "arguments": json.dumps({"command": f"cat module_{number}.py"}),
            },
        }
        for place in range(2 if number % 7 == 3 else 1)
    ]
    history.append_reply({"role": "assistant", "content": None, "tool_calls": calls})
    words = ("ticket", "queue", "return", f"owner_{number}", f"module_{rng.randrange(900)}.py")
    for call in history.open_calls():
        length = rng.choice((20, 60, 150, 1_500 if number % 50 == 49 else 150))
        history.append_tool_result(call, " ".join(rng.choices(words, k=length)))


def warm_up() -> None:
    """Load in this process what each turn would load in its own."""
    import litellm  # noqa: F401

    with tempfile.TemporaryDirectory() as folder, OpenAIServer(Failure(500)) as server:
        llm = server.llm(MODEL, retries=0)
        agent = Agent(llm.config.model_copy(update={"max_input_tokens": WINDOW}))
        for strategy in ("llm", "llm, continue"):
            settings = dict(STRATEGIES[strategy])
            if settings.get("prompt") != "continue":
                settings["llm_config"] = llm.config
            for number in range(60):
                _turn(f"sqlite:///{folder}/{strategy}.db", settings, agent, number, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--strategy", choices=[*STRATEGIES], action="append")
    parser.add_argument("--way", choices=[*WAYS], action="append")
    parser.add_argument("--turns", type=int, default=BROKEN_TURNS, help="turns without a model")
    parser.add_argument("--pieces", type=Path, help="a folder that keeps the outcome of each run")
    options = parser.parse_args()
    pieces = Pieces(options.pieces, {"turns without a model": options.turns})
    warm_up()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for strategy in options.strategy or STRATEGIES:
            for way in options.way or WAYS:
                work = partial(_outcome, strategy, way, Path(folder), options.turns)
                outcome = Outcome(**pieces.figures(f"{strategy} {way}", work))
                bad += not outcome.is_good
                sys.stdout.write(f"{json.dumps(asdict(outcome))}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{bad} runs are not as they should be\n")
    return 1 if bad else 0


def _begin_anew_with_huge_pages() -> None:
    """Run this program with its memory in huge pages. A fork for each turn is most of what a run
    costs, and copies a table of all pages.
    """
    pages = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "PYTHONMALLOC": "malloc"}
    if os.environ.keys().isdisjoint(pages):
        program = [sys.executable, "-m", "tests.condensers.failing_ways", *sys.argv[1:]]
        os.execve(sys.executable, program, {**os.environ, **pages})


if __name__ == "__main__":
    _begin_anew_with_huge_pages()
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    sys.exit(main())
