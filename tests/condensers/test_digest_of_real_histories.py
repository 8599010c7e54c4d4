"""Digests of real histories, at several limits: no later digest knows less than an earlier one, and
names with their words take a quarter where others need the room.
"""

from __future__ import annotations

import re

import pytest

import foldlog
from foldlog._reports.replays import replay
from foldlog.condensers import ESTIMATE, DigestCondenser
from tests.beside import SAMPLES, needs_samples

LIMITS = [
    4_000,
    6_000,
    8_000,
    10_000,
    12_000,
    16_000,
    20_000,
    24_000,
    32_000,
    48_000,
    64_000,
    96_000,
]
_LEFT_OUT = re.compile(r"\((\d+) earlier left out\)")


def section(text: str, heading: str) -> str:
    return text.partition(f"\n## {heading}\n")[2].partition("\n\n")[0]


def files_known(text: str) -> int:
    lines = section(text, "Files changed").splitlines()
    omitted = sum(int(found[1]) - 1 for line in lines if (found := _LEFT_OUT.search(line)))
    return len(lines) + omitted


class Watched(DigestCondenser):
    """A digest that notes each text it makes."""

    def get_condensation(self, view, agent_llm=None):
        return self.noted(super().get_condensation(view, agent_llm))

    def hard_context_reset(self, view, agent_llm=None):
        return self.noted(super().hard_context_reset(view, agent_llm))

    def noted(self, made):
        if made is not None:
            vars(self).setdefault("texts", []).append(made.action.summary)
        return made


def digests(events, limit: int) -> list[str]:
    condenser = Watched(max_tokens=limit)
    replay(events, condenser, ESTIMATE)
    return vars(condenser).get("texts", [])


def check(folder: str, limits: list[int]) -> None:
    with foldlog.open("memory:") as histories:
        histories.import_(SAMPLES / folder)
        for conversation in histories:
            events = list(histories[conversation].events())
            for limit in limits:
                known = 0
                for text in digests(events, limit):
                    assert files_known(text) >= known, (conversation, limit)
                    known = files_known(text)
                    others, _, names = text.partition("\n## Lines with names\n")
                    assert "left out)" not in others or len(names) <= 0.25 * len(text)


@needs_samples
def test_no_later_digest_knows_less_than_an_earlier_one():
    check("claude_code/entire_8b418ea5_154l.jsonl", [6_000, 12_000])


@pytest.mark.long
@needs_samples
@pytest.mark.parametrize("limit", LIMITS)
def test_no_later_digest_of_any_history_knows_less_than_an_earlier_one(limit):
    check(".", [limit])
