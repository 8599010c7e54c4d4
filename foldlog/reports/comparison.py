"""Strategies side by side, over the same history: the figures of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from condensers.replays import Replay

__all__ = ["comparison"]


def comparison(replays: Mapping[str, Replay], asks: Collection[int]) -> list[dict[str, Any]]:
    """Return one row of figures for each strategy, as JSON: what the model was shown, what it cost, what was lost.

    ``asks`` are the ids of the user's messages in the history. Figures that could not be counted are None.
    """
    return [
        {
            "strategy": name,
            "turns": len(replay.turns),
            "condensations": len(replay.condensations),
            "declined": replay.declined,
            "view_events_peak": max((turn.events for turn in replay.turns), default=0),
            "view_events_last": replay.turns[-1].events if replay.turns else 0,
            "tokens_sent": replay.tokens_sent,
            "tokens_peak": replay.tokens_peak,
            "condenser_tokens": replay.condenser_tokens,
            "condenser_cost": replay.condenser_cost,
            "condenser_failures": replay.condenser_failures,
            "events_hidden_last": replay.turns[-1].hidden if replay.turns else 0,
            "events_summarized": len(replay.summarized),
            "events_lost": len(replay.lost),
            "user_messages_lost": sorted(set(asks).intersection(replay.lost)),
        }
        for name, replay in replays.items()
    ]
