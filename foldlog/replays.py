"""Replay a recorded history with another condenser. ``docs/how-to/choosing.md`` has examples."""

from foldlog._reports.replays import Replay, replay

__all__ = ["Replay", "replay"]
