"""Take each rule of the condensers out, one at a time, and see a test fail without it.

    python -m tests.attack.protections [NAME…]

prints a table, as ``tests.crash.protections`` does. Exit status 1 where a test passed all the same.
"""

from __future__ import annotations

import sys

from tests.crash.protections import Protection, main

_WINDOW = "tests/condensers/test_window.py"
_ATTENTION = "tests/condensers/test_attention.py"
_SUMMARIZING = "tests/condensers/test_summarizing.py"
_PLANS = "tests/condensers/test_plans.py"
_SUMMARIES = "condensers/strategies/summarizing.py"

PROTECTIONS = {
    "whole-units": Protection(
        "what a rule keeps is never lost by the extension to whole units",
        "condensers/selection.py",
        "if kept.isdisjoint(range(start, stop)):",
        "if start not in kept:",
        _WINDOW,
    ),
    "head-of-recent": Protection(
        "a head that ends in a unit costs the newest events no place: recent",
        "condensers/strategies/recent.py",
        "max(0, self.max_events - self.keep_first)",
        "max(0, self.max_events - next((c for c in view.cut_points if c >= self.keep_first), len(view)))",
        _WINDOW,
    ),
    "head-of-attention": Protection(
        "… and llm_attention",
        "condensers/strategies/llm_attention.py",
        "return self.max_size // 2 - min(self.keep_first, len(view))",
        "return max(1, self.max_size // 2 - next((c for c in view.cut_points if c >= self.keep_first), len(view)))",
        _ATTENTION,
    ),
    "unasked": Protection(
        "no model is asked where every unit stays whatever is chosen",
        "condensers/strategies/llm_attention.py",
        "if not _leaves_a_choice(view, set(choosable.values()), self.keep_first, places):",
        "if False:",
        _ATTENTION,
    ),
    "delivered-twice": Protection(
        "an observation delivered twice does not end the waiting of other calls",
        "projections/units.py",
        "followers = [position for position in found.seen if position not in orphans] if orphans else found.seen",
        "followers = found.seen",
        "tests/projections/test_view.py -k delivered_twice",
    ),
    "image": Protection(
        "a recall belongs to a first message with an image",
        "condensers/strategies/conversation_window.py",
        'texts = [part["text"] for part in event.content if isinstance(part.get("text"), str)]',
        'texts = [part.get("text", "[image]") for part in event.content]',
        _WINDOW,
    ),
    "running-loop": Protection(
        "a tool loop stays where only its observations are in the window",
        "condensers/strategies/conversation_window.py",
        "calls.intersection(index for loop in loops for index in loop)",
        "frozenset()",
        _WINDOW,
    ),
    "within-half": Protection(
        "V0's rule resets nothing within half of max_size",
        _SUMMARIES,
        "if self._has_nothing_to_do(view, agent_llm, self._overrun(view, agent_llm)):\n            return None",
        "if False:\n            return None",
        _SUMMARIZING,
    ),
    "fits": Protection(
        "the newest events stay where they and the summary fit",
        _SUMMARIES,
        "over.without(*spans[0]) < over.limit",
        "over.without(*spans[0]) < over.limit * 5 / 8",
        _SUMMARIZING,
    ),
    "does-not-fit": Protection(
        "more is forgotten where a summary does not fit",
        _SUMMARIES,
        "tokens is None or tokens <= over.limit\n",
        "True\n",
        _SUMMARIZING,
    ),
    "room": Protection(
        "a summary is shortened until there is room",
        _SUMMARIES,
        "_ROOM = 3 / 4",
        "_ROOM = 5 / 8",
        _SUMMARIZING,
    ),
    "open-loop": Protection(
        "a plan that has to do with the loop that later calls join is checked",
        "condensers/plans.py",
        "_open_loop(view) != _open_loop(after)",
        "False",
        _PLANS,
    ),
    "sent": Protection(
        "a plan holds if what stays is still sent",
        "condensers/plans.py",
        "(_sent(view) - ids - _sent(after))",
        "(_sent(view) & (after.left_behind - view.left_behind))",
        _PLANS,
    ),
    "failed-calls": Protection(
        "failed calls are reported if another condensation comes first",
        "condensers/handler.py",
        "            if reports:\n                self._drop(",
        "            if False:\n                self._drop(",
        "tests/condensers/test_handler.py -k another_condensation_answered",
    ),
    "masked": Protection(
        "a part of a pipeline that only masked leaves a request to those after it",
        "condensers/strategies/pipeline.py",
        "if not all(map(is_standing, error.reports)):",
        "if error.reports:",
        "tests/condensers/test_pipeline.py",
    ),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], PROTECTIONS))
