"""Replay a recorded history with another condenser. ``docs/CONDENSERS.md`` says how to read the
result.
"""

from foldlog._reports.replays import Replay, replay

__all__ = ["Replay", "replay"]
