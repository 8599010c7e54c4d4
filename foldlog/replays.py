"""What another condenser would have done over a recorded history: ``docs/how-to/choosing.md``."""

from foldlog._reports.replays import Replay, replay

__all__ = ["Replay", "replay"]
