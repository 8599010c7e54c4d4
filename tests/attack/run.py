"""One attack: conversations with random condensers and careless agents, each turn held against the law."""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import foldlog
from foldlog.condensers import Condensation, NoCondensationAvailable
from foldlog.eventstore.events import CondensationAction, Event
from foldlog.projections import View
from tests.attack import choices
from tests.attack.checks import (
    SHOWING,
    attempts_reported,
    chat_problems,
    condensation_problems,
    masked_by_law,
    shown_problems,
    turn_problems,
)
from tests.attack.law import Shown, cut_points, folded, item_of, sent
from tests.attack.replies import Given, good, nasty
from tests.attack.runtime import Runtime
from tests.condensers.openai_server import Answer, OpenAIServer, Request, Text, ToolCall

MARK = re.compile(r"<<\d+>>")


KINDS = (
    *("recent", "amortized", "conversation_window", "observation_masking", "digest", "structured", "pipeline"),
    *("clear_tool_uses", "clear_thinking"),
    *("llm", "llm", "llm", "llm_attention", "llm_attention", "llm_attention"),
)


@dataclass(frozen=True)
class Finding:
    """What differs from the law, in the turn after which the conversation had this many events."""

    seed: int
    version: int
    spec: str
    problem: str

    def __str__(self) -> str:
        return f"conversation {self.seed}, version {self.version}, {self.spec}: {self.problem}"


@dataclass
class Tally:
    """What an attack did."""

    turns: int = 0
    conversations: int = 0
    replies: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)


class TokenAgent:
    """An agent's model to which a token is four characters of text."""

    model = "attacked"
    max_output_tokens = None

    def __init__(self, max_input_tokens: int) -> None:
        self.max_input_tokens = max_input_tokens

    def token_sums(self, view: View) -> Sequence[int]:
        sums = [0]
        for item in filter(None, map(item_of, view.events)):
            sums.append(sums[-1] + choices.tokens(item))
        return sums


def spec_of(draw: Random, url: str, *, slow: bool) -> dict[str, Any]:
    """A condenser's configuration, and what the law has to know of it beside."""
    kind = draw.choice(KINDS)
    size = draw.choice([4, 6, 8, 12, 20])
    head = draw.randrange(0, min(4, size // 2 - 1))
    model = {
        "model": "openai/gpt-4o-mini",
        "base_url": url,
        "api_key": "a key",
        "retries": 0,
        "timeout_s": 0.4 if slow else 60.0,
        "function_calling": True,
        "response_schema": True,
        "max_input_tokens": 1_000_000,
    }
    config: dict[str, Any] = {"type": kind}
    law: dict[str, Any] = {"counts": ["event"], "keep_first": head, "max_size": size}
    match kind:
        case "recent":
            config |= {"max_events": size, "keep_first": head}
            law |= {"counts": [], "max_events": size}
        case "observation_masking":
            config |= {"attention_window": draw.randrange(1, 6)}
            law |= {"counts": [], "attention_window": config["attention_window"]}
        case "clear_tool_uses":
            config |= {"trigger": draw.choice([50, 200]), "keep": draw.randrange(4), "clear_tool_inputs": head % 2 == 0}
            law |= {"counts": [], **config}
        case "clear_thinking":
            law["counts"] = []
        case "conversation_window":
            law["counts"] = []
        case "pipeline":
            parts = draw.choice([["digest"], ["conversation_window", "digest"], ["conversation_window", "llm"]])
            masks = draw.choice([[], ["observation_masking"], ["recent"], ["clear_thinking", "clear_tool_uses"]])
            config["condensers"] = [_part(part, size, head, model) for part in (*masks, *parts)]
        case _:
            config |= {"max_size": size, "keep_first": head}
    if kind in ("digest", "llm", "structured"):
        progress = draw.choice([0.01, 0.1, 0.3])
        config |= {"minimum_progress": progress}
        config |= {"token_margin_ratio": 0.0, "hard_context_reset_max_retries": draw.choice([1, 2, 5])}
        law |= {"counts": ["event", "token"], "minimum_progress": progress}
    if kind in ("llm", "structured", "llm_attention"):
        config["llm_config"] = model
    return {**law, "type": kind, "config": config, "limit": draw.choice([None, None, 40, 60, 90, 120, 200])}


def _part(kind: str, size: int, head: int, model: dict[str, Any]) -> dict[str, Any]:
    match kind:
        case "observation_masking":
            return {"type": kind, "attention_window": 3}
        case "recent":
            return {"type": kind, "max_events": size, "keep_first": head}
        case "conversation_window" | "clear_thinking":
            return {"type": kind}
        case "clear_tool_uses":
            return {"type": kind, "trigger": 100, "clear_at_least": 50}
        case "llm":
            return {"type": kind, "max_size": size, "keep_first": head, "llm_config": model}
    return {"type": kind, "max_size": size, "keep_first": head}


class Conversation:
    """One conversation: its agent, its condenser, and the server's replies to it."""

    def __init__(self, path: Path, server: OpenAIServer, seed: int) -> None:
        self.draw = Random(seed)
        self.seed = seed
        self.slow = self.draw.random() < 0.01
        self.badness = self.draw.choice([0.0, 0.2, 0.5, 1.0])
        self.spec = spec_of(self.draw, server.url, slow=self.slow)
        self.limit = self.spec["limit"] if "token" in self.spec["counts"] else None
        agent = TokenAgent(self.limit) if self.limit else None
        self.url = f"sqlite:///{path}"
        self.open = partial(
            foldlog.open, self.url, condenser=self.spec["config"], agent_llm=agent, durability="relaxed"
        )
        self.histories = self.open()
        self.history = self.histories[f"c{seed}"]
        self.runtime = Runtime(self.histories.store, self.history.id, self.draw)
        self.given: list[Given] = []
        self.came_between = 0
        self.law = Shown()
        self.events: list[Event] = []
        self.asked_in_vain_at = -1_000
        server.respond(self._reply)

    def close(self) -> None:
        self.histories.close()

    def reopen(self) -> None:
        """Go on as another process would, which remembers nothing. What was not reported yet is lost to it."""
        self.histories.close()
        self.histories = self.open()
        self.history = self.histories[self.history.id]
        self.runtime.store = self.histories.store

    def _reply(self, request: Request) -> Answer:
        if self.draw.random() < 0.15:  # others go on while the model thinks
            before = self.runtime.version
            others = [self.runtime.turn, self.runtime.turn, self.runtime.request, self.forget_by_hand]
            self.draw.choice(others)()
            self.came_between += self.runtime.version - before
        kind = "llm" if self.spec["type"] in ("pipeline", "digest") else self.spec["type"]
        mark = f"SUMMARY-{len(self.given)}-OF-{self.seed}"
        bad = self.draw.random() < self.badness
        given = nasty(kind, mark, self.draw, slow=self.slow) if bad else good(kind, mark, self.draw, self.law.ids())
        self.given.append(given)
        return given.answer

    # --- turns ---

    def play(self, turns: int) -> Iterator[str]:
        """Take turns, and yield what differs from the law after each."""
        self.runtime.begin()
        for _ in range(turns):
            self.runtime.turn()
            if self.draw.random() < 0.04:
                self.runtime.request()
            if self.draw.random() < 0.02:
                self.catch_up()
                self.forget_by_hand()
            if self.draw.random() < 0.02:
                self.reopen()
            yield from self.step()

    def forget_by_hand(self) -> None:
        self.runtime.forget_by_hand([event_id for event_id in self.law.ids() if event_id >= 0])

    def catch_up(self) -> list[Event]:
        """The events that are new since the last time, folded into the law's View."""
        new = list(self.history.events(self.law.version)) if self.runtime.version else []
        self.law = folded(self.law, new)
        self.events += new
        return new

    def step(self) -> Iterator[str]:
        for _ in range(STEPS_MAX):
            self.catch_up()
            before, given_before = self.law, len(self.given)
            self.came_between = 0
            try:
                result: View | Condensation | None = self.history.step()
            except NoCondensationAvailable:
                result = None
            except Exception:  # noqa: BLE001  any other error is a finding
                yield f"a step raised {traceback.format_exc(limit=-3)}"
                return
            new = self.catch_up()
            yield from self._judge(before, result, new, self.given[given_before:])
            if not isinstance(result, Condensation):
                break
        else:
            yield f"{STEPS_MAX} condensations followed one another"
        yield from self._judge_view(result)

    def _judge(
        self, before: Shown, result: View | Condensation | None, new: list[Event], given: list[Given]
    ) -> Iterator[str]:
        made = [event for event in new if isinstance(event, CondensationAction) and "condenser" in event.metadata]
        for action in made:
            planned = self._view_at(action.metadata.get("planned_at", action.id))
            yield from condensation_problems(self.spec, self.limit, planned, self._view_at(action.id), action, given)
        if given and all(action.metadata["outcome"] == "declined" for action in made):
            self.asked_in_vain_at = self.law.version
        yield from self._account(new, made, result is None, given)
        if not self.came_between:
            lately = self.law.version - self.asked_in_vain_at < SPARING_MAX
            yield from turn_problems(self.spec, self.limit, before, result, made, given, lately=lately)

    def _account(
        self, new: Sequence[Event], made: Sequence[Event], raised: bool, given: Sequence[Given]
    ) -> Iterator[str]:
        """Every call of a model is reported, whatever came of it. Only those that cost nothing, of a step that raises
        again what it raised before, are not.
        """
        free = 0
        if raised and not made:
            free = sum(not isinstance(each.answer, Text | ToolCall) for each in given)
        reported = attempts_reported(new)
        if not len(given) - free <= reported <= len(given):
            yield f"{len(given)} calls of the model, and {reported} are reported"

    def _view_at(self, version: int) -> Shown:
        return folded(Shown(), self.events[:version])

    def _judge_view(self, result: View | Condensation | None) -> Iterator[str]:
        """What the product shows is what the law shows, cold and warm, as events and as messages."""
        view = self.history.view()
        if [event.id for event in view] != self.law.ids():
            yield f"the View shows {[event.id for event in view]}, the law {self.law.ids()}"
            return
        if view.unhandled_condensation_request != self.law.requested:
            yield f"the flag is {view.unhandled_condensation_request}"
        if set(view.left_behind) != set(self.law.left_behind):
            yield f"left behind are {sorted(view.left_behind)}, by the law {sorted(self.law.left_behind)}"
        if list(view.cut_points) != cut_points(self.law):
            yield f"the cut points are {view.cut_points}, by the law {cut_points(self.law)}"
        yield from chat_problems(view.to_messages(), self.law, sent(self.law))
        if isinstance(result, View):
            yield from shown_problems(self.law, result)
            if self.spec["type"] in SHOWING:
                yield from masked_by_law(self.spec, self.law, result)
        if self.draw.random() < 0.02:
            with foldlog.open(self.url) as cold:
                ids = [event.id for event in cold[self.history.id].view()]
                if ids != self.law.ids():
                    yield f"another process would see {ids}, by the law {self.law.ids()}"


STEPS_MAX = 12
SPARING_MAX = 400
"""In events: for at most this long a condenser may leave its model alone after a failure."""


def attack(folder: Path, *, turns: int, seed: int = 0, tell: Any = lambda _: None) -> Tally:
    """Take so many turns, in conversations of some sixty, and return what they showed."""
    tally = Tally()
    with OpenAIServer() as server:
        while tally.turns < turns:
            number = seed + tally.conversations
            conversation = Conversation(folder / f"{number % 5}.db", server, number)
            try:
                length = min(turns - tally.turns, conversation.draw.randrange(20, 100))
                for problem in conversation.play(length):
                    version, config = conversation.law.version, str(conversation.spec["config"])
                    finding = Finding(number, version, config[:160], problem)
                    tally.findings.append(finding)
                    tell(str(finding))
                    break
                tally.turns += length
                tally.replies += len(conversation.given)
                for event in conversation.events:
                    if isinstance(event, CondensationAction):
                        outcome = event.metadata.get("outcome", "by hand")
                        tally.outcomes[f"{conversation.spec['type']}: {outcome}"] += 1
            finally:
                conversation.close()
            tally.conversations += 1
            if tally.conversations % 50 == 0:
                tell(f"{tally.turns} turns, {tally.replies} replies, {len(tally.findings)} findings")
    return tally
