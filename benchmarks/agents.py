"""``python -m benchmarks.agents --publish``: what an agent of 300 turns pays with each way to
compact, and which facts its prompts still show when it needs them.

Three scripted agents work on results with planted facts of three kinds: names, small numbers and
plain words. Now and then, a call uses a fact again. No model is called. A scripted server reads
from its cache what a prompt repeats of one of the last prompts, and a scripted model writes
summaries: it copies the user's words and then the newest facts, as an ideal model would. All
summaries have the same size, but the two of ``LARGER``. The ways of other programs follow their
documentation. Each agent runs with several seeds. With ``--pieces FOLDER``, a run that was killed
goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

import foldlog
from benchmarks.pages import with_part
from benchmarks.pieces import Pieces
from foldlog.condensers import Condenser, LLMSummarizingCondenser, Reply, condenser_from_config
from foldlog.eventstore import SystemMessage
from foldlog.projections import View

TURNS: Final = 300
WINDOW: Final = 200_000
LETTERS_A_TOKEN: Final = 4
TOKENS_A_LINE: Final = 14
"""About so many tokens has a line of a result."""
STEP: Final = 1_024
"""A server caches prompts in steps of so many tokens."""
PROMPTS_CACHED: Final = 8
SUMMARY: Final = 6_000
"""The size of a summary in characters, for all ways."""
OLD: Final = 60
"""How many events old a fact is that is counted as old."""
REPLY_TOKENS: Final = 60
PAGE = Path(__file__).parents[1] / "docs" / "internals" / "COMPACTION.md"
PUBLISHED = PAGE.with_name("agents.json")
COMMAND: Final = "python -m benchmarks.agents --publish"

PRICES: Final[Mapping[str, tuple[float, float, float]]] = {
    "claude-sonnet-4-5": (3.75, 0.30, 15.0),
    "gpt-5.2": (1.75, 0.175, 14.0),
}
"""US dollars for a million tokens: written to the cache, read from the cache, of replies."""
AGENTS: Final[Mapping[str, tuple[int, int, int]]] = {
    "code": (30, 700, 25),
    "browser": (300, 1_300, 25),
    "chat": (10, 60, 3),
}
"""The least and the most tokens of a result, as an estimate, and how many turns are between two
requests.
"""
DISTANCES: Final = {(0, 5): 50, (6, 30): 25, (31, 100): 15, (101, TURNS): 10}
"""How many turns ago a fact was planted that a call uses, from and to, and how often of 100 times:
half of the time it was just read, and one time in ten long ago.
"""
USES_A_FACT: Final = 0.6
"""The part of the calls that use a fact again, if there is one at the drawn distance."""
FACTS_OF_RESULTS: Final = 0.12
FACTS_OF_PAGES: Final = 0.03
"""The part of the lines of a result that are facts. The long pages of a browser have few."""
KINDS: Final = ("names", "numbers", "words")
FILLER: Final = (
    *("queue", "value", "of", "retry", "when", "parser", "returns", "none", "because", "ticket"),
    *("state", "is", "stale", "and", "worker", "restarts", "then", "logs", "an", "error", "module"),
)
PLACES: Final = ("harbour", "attic", "cellar", "garden", "market", "bridge", "tower", "corner")
BIRDS: Final = ("falcon", "heron", "magpie", "raven", "bunting", "plover", "curlew", "osprey")
COLOURS: Final = ("teal", "amber", "violet", "cobalt", "scarlet", "olive", "maroon", "ivory")
MOODS: Final = ("brisk", "gentle", "solemn", "merry", "wary", "drowsy", "stern", "jolly")

FACT: Final = re.compile(
    r"\b(?:[a-z]+_[0-9a-f]{5} = \d{7}|the [a-z]+ [a-z]+ listens on [a-z]+ port \d{4}"
    r"|the [a-z]+ [a-z]+ turned [a-z]+ and [a-z]+)\b"
)
ASKED: Final = re.compile(r"Task \d+: [^\"\\\n]*")


class Fact(NamedTuple):
    kind: str
    text: str
    value: str
    turn: int


class Turn(NamedTuple):
    request: str
    command: str
    result: str
    needed: Sequence[Fact]


def plant_fact(rng: random.Random, kind: str, turn: int) -> Fact:
    """Return a new random fact of a kind, which the result or the request of ``turn`` contains."""
    place = rng.choice(PLACES)
    bird = rng.choice(BIRDS)
    if kind == "names":
        value = f"{rng.randrange(10**7):07d}"
        return Fact(
            kind,
            f"{rng.choice(('order', 'budget'))}_{rng.randrange(16**5):05x} = {value}",
            value,
            turn,
        )
    if kind == "numbers":
        value = f"{rng.choice(COLOURS)} port {rng.randrange(1_000, 9_999)}"
        return Fact(kind, f"the {place} {bird} listens on {value}", value, turn)
    value = f"{place} {bird} turned {rng.choice(COLOURS)} and {rng.choice(MOODS)}"
    return Fact(kind, f"the {value}", value, turn)


def work_of(agent: str, seed: int) -> list[Turn]:
    """Return the turns of an agent, the same for each way to compact."""
    least, most, between = AGENTS[agent]
    rng = random.Random(f"{agent} {seed}")
    facts: list[Fact] = []
    turns = []
    for number in range(TURNS):
        request = ""
        if number % between == 0:
            asked = plant_fact(rng, rng.choice(KINDS), number)
            facts.append(asked)
            request = (
                f"Task {number}: {' '.join(rng.choices(FILLER, k=25))}. Note that {asked.text}."
            )
        nearest, farthest = rng.choices([*DISTANCES], [*DISTANCES.values()])[0]
        candidates = [fact for fact in facts if nearest <= number - fact.turn <= farthest]
        needed = [rng.choice(candidates)] if candidates and rng.random() < USES_A_FACT else []
        path = f"src/m{rng.randrange(16**4):04x}/part_{rng.randrange(90)}.py"
        command = f"look at {path}" + "".join(f" as {fact.text}" for fact in needed)
        lines = []
        for _ in range(max(1, rng.randrange(least, most) // TOKENS_A_LINE)):
            if rng.random() < (FACTS_OF_PAGES if agent == "browser" else FACTS_OF_RESULTS):
                facts.append(plant_fact(rng, rng.choice(KINDS), number))
                lines.append(facts[-1].text)
            else:
                lines.append(" ".join(rng.choices(FILLER, k=9)))
        turns.append(Turn(request, command, "\n".join(lines), needed))
    return turns


# --- the server and the model behind summaries ---


@dataclass
class Server:
    """Counts the tokens that a provider bills: read from its cache, written to it, and replied."""

    read: int = 0
    written: int = 0
    replied: int = 0
    _recent: list[str] = field(default_factory=list)

    def ask(self, text: str, reply_tokens: int) -> None:
        shared = max((_shared(text, earlier) for earlier in self._recent), default=0)
        cached = shared // LETTERS_A_TOKEN // STEP * STEP
        self.read += cached
        self.written += len(text) // LETTERS_A_TOKEN - cached
        self.replied += reply_tokens
        self._recent = [*self._recent[1 - PROMPTS_CACHED :], text]

    def cost(self, model: str) -> float:
        written, read, reply = PRICES[model]
        return (self.written * written + self.read * read + self.replied * reply) / 1e6


def _shared(text: str, other: str) -> int:
    low = 0
    high = min(len(text), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if text[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def summary_of(text: str, length: int) -> str:
    """Return the text of an ideal model: a heading, the newest requests, and as many of the newest
    facts that requests and facts together have at most ``length`` characters.
    """
    text = text.replace("\\n", "\n")  # a prompt is JSON
    lines = [request[:200] for request in dict.fromkeys(ASKED.findall(text))][-6:]
    room = length - sum(map(len, lines))
    newest: list[str] = []
    for fact in dict.fromkeys(reversed(FACT.findall(text))):
        room -= len(fact) + 1
        if room < 0:
            break
        newest.append(fact)
    return "\n".join(("The state of the work.", *lines, *reversed(newest)))


@dataclass
class Model:
    """The agent's model, which also writes the summaries of ``length`` characters."""

    server: Server
    length: int = SUMMARY
    model = "claude-sonnet-4-5"
    max_input_tokens = WINDOW
    max_output_tokens = 8_000
    supports_function_calling = True
    supports_response_schema = False

    def complete(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Reply:
        text = json.dumps(options.get("tools", ())) + "".join(map(json.dumps, messages))
        self.server.ask(text, self.length // LETTERS_A_TOKEN)
        text = text[: _begins_rest(text, str(messages[-1]["content"]))]
        return Reply(text=summary_of(text, self.length), model=self.model, finish_reason="stop")

    def token_sums(self, view: View) -> list[int]:
        sums = [0] * (len(view) + 1)
        for message, places in view.rendered():
            sums[places[-1] + 1] += len(json.dumps(message)) // LETTERS_A_TOKEN
        return list(accumulate(sums))


def _begins_rest(text: str, wish: str) -> int | None:
    """Return where the part of a prompt begins that stays, if the wish for a summary quotes it."""
    quoted = _QUOTED.search(wish.partition("It begins with: ")[2])
    return None if quoted is None else text.index(quoted[0])


_QUOTED: Final = re.compile(r"src/m[0-9a-f]{4}/part_\d+\.py|Task \d+:")
"""Matches what occurs first in the call or request that begins a part."""


# --- the ways ---


SYSTEM: Final = "You are a careful engineer. " * 40
TOOLS: Final = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Use this tool to {name}." + " Look twice." * 60,
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
        },
    }
    for name in ("bash", "read", "edit", "grep")
]

Prompts = Iterator[tuple[str, int]]
"""The text of each prompt, and the number of compactions until then."""
Way = Callable[[Sequence[Turn], Server], Prompts]


def of_foldlog(make: Callable[[Model], Condenser], *, length: int = SUMMARY) -> Way:
    def prompts(turns: Sequence[Turn], server: Server) -> Prompts:
        model = Model(server, length)
        with foldlog.open("memory:", condenser=make(model), agent_llm=model) as histories:
            history = histories["run"]
            history.append(SystemMessage(content=SYSTEM, tools=tuple(TOOLS)))
            for number, turn in enumerate(turns):
                if turn.request:
                    history.append({"role": "user", "content": turn.request})
                view = history.prepare()
                made = len(view.condensations)
                yield json.dumps(TOOLS) + "".join(map(json.dumps, view.to_messages())), made
                history.append_reply(_call(number, turn))
                history.append_tool_result(f"c{number}", turn.result)

    return prompts


def _call(number: int, turn: Turn) -> dict[str, Any]:
    function = {"name": "bash", "arguments": json.dumps({"command": turn.command})}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


Messages = list[dict[str, Any]]


def by_hand(rule: Callable[[Messages, Server, dict[str, int]], tuple[Messages, Messages]]) -> Way:
    """``rule`` returns the messages to send and the messages that the client keeps."""

    def prompts(turns: Sequence[Turn], server: Server) -> Prompts:
        kept: Messages = [{"role": "system", "content": SYSTEM}]
        state: dict[str, int] = defaultdict(int)
        for number, turn in enumerate(turns):
            if turn.request:
                kept.append({"role": "user", "content": turn.request})
            sent, kept = rule(kept, server, state)
            yield json.dumps(TOOLS) + "".join(map(json.dumps, sent)), state["compactions"]
            kept.append(_call(number, turn))
            kept.append({"role": "tool", "tool_call_id": f"c{number}", "content": turn.result})

    return prompts


def _tokens(messages: Messages) -> int:
    return (
        len(json.dumps(TOOLS)) + sum(len(json.dumps(message)) for message in messages)
    ) // LETTERS_A_TOKEN


def clearing(trigger: int, keep: int, at_least: int) -> Way:
    """Anthropic's ``clear_tool_uses``: above ``trigger`` tokens, the server clears all results but
    the newest ``keep``, if this frees ``at_least`` tokens.
    """

    def rule(kept: Messages, server: Server, state: dict[str, int]) -> tuple[Messages, Messages]:
        results = [place for place, message in enumerate(kept) if message["role"] == "tool"]
        old_count = max(0, len(results) - keep)
        if _tokens(kept) > trigger:
            fresh = results[state["cleared"] : old_count]
            freed = sum(len(kept[place]["content"]) for place in fresh) // LETTERS_A_TOKEN
            if fresh and freed >= at_least:
                state["cleared"] = old_count
                state["compactions"] += 1
        cleared = {*results[: state["cleared"]]}
        sent = [
            {**each, "content": "[cleared]"} if place in cleared else each
            for place, each in enumerate(kept)
        ]
        return sent, kept

    return by_hand(rule)


def compacting(part: float, users: int) -> Way:
    """Codex' compaction: above a part of the window, the newest messages of the user (``users``
    tokens) and one summary take the place of everything after the system prompt.
    """

    def rule(kept: Messages, server: Server, state: dict[str, int]) -> tuple[Messages, Messages]:
        if _tokens(kept) <= part * WINDOW:
            return kept, kept
        text = json.dumps(TOOLS) + "".join(map(json.dumps, kept)) + "Summarize the work."
        server.ask(text, SUMMARY // LETTERS_A_TOKEN)
        requests: Messages = []
        room = users * LETTERS_A_TOKEN
        for each in reversed(kept[1:]):
            if each["role"] == "user" and not each["content"].startswith("The state of the work."):
                room -= len(each["content"])
                if room < 0:
                    break
                requests.insert(0, each)
        state["compactions"] += 1
        summary = {"role": "user", "content": summary_of(text, SUMMARY)}
        shorter = [kept[0], *requests, summary]
        return shorter, shorter

    return by_hand(rule)


def _configured(**config: Any) -> Way:
    return of_foldlog(lambda model: condenser_from_config(config))


def _continued(**settings: Any) -> Way:
    return of_foldlog(lambda model: LLMSummarizingCondenser(model, prompt="continue", **settings))


def _mixed(**settings: Any) -> Way:
    half = SUMMARY // 2
    return of_foldlog(
        lambda model: LLMSummarizingCondenser(
            model, prompt="continue", digest_length=half, **settings
        ),
        length=half,
    )


def _above_a_digest(**settings: Any) -> Way:
    """Return a text of the size of all summaries, and a digest below it, as Codex' way keeps the
    user's messages beside its summary.
    """
    return _continued(digest_length=SUMMARY // 2, **settings)


OURS: Final[Mapping[str, Way]] = {
    "digest, 40 events": _configured(type="digest", max_size=40, max_length=SUMMARY),
    "digest, 120 events": _configured(type="digest", max_size=120, max_length=SUMMARY),
    "llm, continue, 120 events": _continued(max_size=120),
    "llm, continue, 240 events": _continued(max_size=240),
    "llm, continue, 64k tokens": _continued(max_tokens=64_000),
    "llm, continue, 50 events to 0.1": _continued(max_size=50, keep_ratio=0.1),
    "llm, continue, 110 events to 0.1": _continued(max_size=110, keep_ratio=0.1),
    "llm, continue, 160 events to 0.3": _continued(max_size=160, keep_ratio=0.3),
    "llm, continue, 50k tokens to 0.2": _continued(max_tokens=50_000, keep_ratio=0.2),
    "llm, continue, 64k tokens to 0.1": _continued(max_tokens=64_000, keep_ratio=0.1),
    "llm, continue, 80k tokens to 0.3": _continued(max_tokens=80_000, keep_ratio=0.3),
    "llm, continue, when_cheaper": _continued(when_cheaper=True),
    "llm with a digest, 60 events": _mixed(max_size=60),
    "llm with a digest, 120 events": _mixed(max_size=120),
    "llm with a digest, 240 events": _mixed(max_size=240),
    "llm with a digest, when_cheaper": _mixed(when_cheaper=True),
    "llm above a digest, 110 events to 0.1": _above_a_digest(max_size=110, keep_ratio=0.1),
    "llm above a digest, 49.5k tokens to 0.2": _above_a_digest(max_tokens=49_500, keep_ratio=0.2),
    "llm above a digest, 55k tokens to 0.02": _above_a_digest(max_tokens=55_000, keep_ratio=0.02),
}
LARGER: Final[Mapping[str, Way]] = {
    f"digest, {size} events, 20,000 characters": _configured(type="digest", max_size=size)
    for size in (40, 120)
}
"""A digest of the default length. It costs no tokens of a reply, so it may be larger."""
THEIRS: Final[Mapping[str, Way]] = {
    "OpenHands, class default (240 events, 2)": of_foldlog(
        lambda model: LLMSummarizingCondenser(model, max_size=240, keep_first=2)
    ),
    "OpenHands, agent preset (80 events, 4)": of_foldlog(
        lambda model: LLMSummarizingCondenser(model, max_size=80, keep_first=4)
    ),
    "Anthropic, clear at 100k, keep 3": clearing(100_000, 3, 0),
    "Anthropic, clear at 30k, keep 3, at least 10k": clearing(30_000, 3, 10_000),
    "Codex, at 90 % of 64k": compacting(0.9 * 64_000 / WINDOW, 20_000),
}


# --- the figures ---


def measure_way(agent: str, way: Way, seed: int = 1) -> dict[str, Any]:
    """Return the costs of a way, and for each kind of facts how many were needed and shown."""
    server = Server()
    turns = work_of(agent, seed)
    recall: dict[str, list[int]] = {
        f"{age} {kind}": [0, 0] for age in ("all", "old") for kind in KINDS
    }
    made = 0
    for number, (turn, asked) in enumerate(zip(turns, way(turns, server), strict=True)):
        prompt, made = asked
        server.ask(prompt, REPLY_TOKENS)
        for fact in turn.needed:
            ages = ("all", "old") if 2 * (number - fact.turn) > OLD else ("all",)
            for age in ages:
                counts = recall[f"{age} {fact.kind}"]
                counts[0] += 1
                counts[1] += fact.value in prompt
    costs = {model: round(server.cost(model), 2) for model in PRICES}
    return {"compactions": made, "costs": costs, "recall": recall}


def join_runs(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean of the costs of several runs, and the sum of their facts."""
    count = len(runs)
    return {
        "compactions": round(sum(run["compactions"] for run in runs) / count),
        "costs": {
            model: round(sum(run["costs"][model] for run in runs) / count, 2) for model in PRICES
        },
        "recall": {
            facts: [sum(run["recall"][facts][place] for run in runs) for place in (0, 1)]
            for facts in runs[0]["recall"]
        },
    }


def beats(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Return whether a way costs less than another at each price, and shows as many facts of each
    kind.
    """
    is_cheaper = all(ours["costs"][model] < theirs["costs"][model] for model in PRICES)
    shows_as_many = all(
        shown >= theirs["recall"][facts][1] for facts, (_, shown) in ours["recall"].items()
    )
    return is_cheaper and shows_as_many


def table(rows: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return the figures as a table for each agent, and a table of the ways that beat others.
    ``rows`` maps an agent and a way to figures.
    """
    parts = [_agent_table(agent, ways) for agent, ways in rows.items()]
    heads = ["way of another program", "ours has", *rows]
    text = f"**The cheapest way of ours that beats it**\n\n| {' | '.join(heads)} |\n"
    text += f"|{'---|' * len(heads)}\n"
    for theirs in THEIRS:
        for size, ours in {"its size": OURS, "any size": {**OURS, **LARGER}}.items():
            cells = [theirs, size, *(_best_against(theirs, ours, ways) for ways in rows.values())]
            text += f"| {' | '.join(cells)} |\n"
    return "\n".join([*parts, text])


def _agent_table(agent: str, ways: Mapping[str, Mapping[str, Any]]) -> str:
    heads = ["way", "compactions", *(f"${model}" for model in PRICES)]
    heads += [f"{kind}, {age}" for kind in KINDS for age in ("all", "old")]
    text = f"**{agent}**\n\n| {' | '.join(heads)} |\n|---|{'---:|' * (len(heads) - 1)}\n"
    for way, figures in ways.items():
        cells = [way, str(figures["compactions"])]
        cells += [f"${cost:.2f}" for cost in figures["costs"].values()]
        for kind in KINDS:
            for age in ("all", "old"):
                needed, shown = figures["recall"][f"{age} {kind}"]
                cells.append(f"{100 * shown / needed:.0f} %" if needed else "–")
        text += f"| {' | '.join(cells)} |\n"
    return text


def _best_against(theirs: str, ours: Iterable[str], ways: Mapping[str, Mapping[str, Any]]) -> str:
    model, *_ = PRICES
    beating = [name for name in ours if beats(ways[name], ways[theirs])]
    if not beating:
        return "none"
    best = min(beating, key=lambda name: ways[name]["costs"][model])
    costs = (f"${ways[name]['costs'][model]:.2f}" for name in (best, theirs))
    return f"{best}: {' against '.join(costs)}"


def in_page(text: str, rows: Mapping[str, Any]) -> str:
    """Put the tables of docs/internals/agents.json into the page."""
    return with_part(text, COMMAND, table(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5, 6])
    parser.add_argument("--pieces", type=Path, help="a folder that keeps the figures of each run")
    parser.add_argument("--publish", action="store_true", help="write the page")
    options = parser.parse_args()
    pieces = Pieces(options.pieces, {"turns": TURNS})
    rows: dict[str, dict[str, Any]] = {}
    for agent in AGENTS:
        for name, way in {**OURS, **LARGER, **THEIRS}.items():
            runs = [
                pieces.figures(f"{agent}, {name}, {seed}", partial(measure_way, agent, way, seed))
                for seed in options.seeds
            ]
            rows.setdefault(agent, {})[name] = join_runs(runs)
            sys.stderr.write(f"{agent}, {name}: {rows[agent][name]}\n")
    sys.stdout.write(table(rows))
    if options.publish:
        PUBLISHED.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(in_page(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main()
