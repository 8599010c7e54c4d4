"""The rules of the condensers: see ``tests.protections``."""

from __future__ import annotations

from tests.protections import Always, Gone, Instead, Never, Protection

_WINDOW = "tests/condensers/test_window.py"
_ATTENTION = "tests/condensers/test_attention.py"
_SUMMARIZING = "tests/condensers/test_summarizing.py"
_PLANS = "tests/condensers/test_plans.py"
PROTECTIONS = {
    "whole-units": Protection(
        "what a rule keeps is never lost by the extension to whole units",
        "condensers:events_to_forget",
        Instead(
            "bisect_right",
            "for unit in sorted({bisect_right(points, each) for each in kept if each in points}):",
        ),
        _WINDOW,
    ),
    "head-of-recent": Protection(
        "a head that ends in a unit costs the newest events no place: recent",
        "condensers:RecentEventsCondenser.step",
        Instead(
            "max",
            "kept = ends(view, self.keep_first, max(0, self.max_events - next((c for c in "
            "view.cut_points if c >= self.keep_first), len(view))))",
        ),
        _WINDOW,
    ),
    "head-of-attention": Protection(
        "… and llm_attention",
        "condensers:LLMAttentionCondenser._places",
        Instead(
            "keep_first",
            "return max(1, self.max_size // 2 - next((c for c in view.cut_points if c >="
            " self.keep_first), len(view)))",
        ),
        _ATTENTION,
    ),
    "unasked": Protection(
        "no model is asked where every unit stays whatever is chosen",
        "condensers:LLMAttentionCondenser.get_condensation",
        Never("_allows_a_choice"),
        _ATTENTION,
    ),
    "delivered-twice": Protection(
        "an observation delivered twice does not end the waiting of other calls",
        "projections:pending_positions",
        Instead("position", "followers = found.seen"),
        "tests/projections/test_view.py -k delivered_twice",
    ),
    "image": Protection(
        "a recall belongs to a first message with an image",
        "condensers.strategies.forgetting:_words",
        Instead("part", 'texts = [part.get("text", "[image]") for part in event.content]'),
        _WINDOW,
    ),
    "running-loop": Protection(
        "a tool loop stays where only its observations are in the window",
        "condensers:_windows",
        Instead("index", "return (calls, frozenset())"),
        _WINDOW,
    ),
    "room": Protection(
        "a summary is shortened until there is room",
        "condensers:_ROOM",
        Instead("_ROOM", "_ROOM = 5 / 8"),
        _SUMMARIZING,
    ),
    "own": Protection(
        "a condenser of one's own forgets only what may go",
        "condensers.base:_without_kept_events",
        Always("kept_from"),
        "tests/condensers/test_unseen.py -k ones_own",
    ),
    "sent": Protection(
        "a plan holds if what stays is still sent",
        "condensers.handler:planned_before",
        Never("without_kept"),
        _PLANS,
    ),
    "failed-calls": Protection(
        "failed calls are reported if another condensation comes first",
        "condensers:CondenseHandler._declined",
        Gone("_drop"),
        "tests/condensers/test_handler.py -k another_condensation_answered",
    ),
    "masked": Protection(
        "a part of a pipeline that only masked leaves a request to those after it",
        "condensers:PipelineCondenser.step",
        Instead("is_standing", "if error.reports:"),
        "tests/condensers/test_pipeline.py",
    ),
}
