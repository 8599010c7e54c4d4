"""Replay a recorded history with another condenser; see ``docs/how-to/choosing.md``."""

from foldlog._reports.replays import Replay, replay

__all__ = ["Replay", "replay"]
