"""Words that people bring from other tools, and what foldlog calls the same thing."""

from __future__ import annotations

from typing import Final, NamedTuple


class Ours(NamedTuple):
    """What foldlog says: the command, and the method of a history or of histories."""

    command: str
    method: str


OURS: Final = {
    **dict.fromkeys(("delete", "remove", "forget"), Ours("erase ID --reason TEXT", "histories.erase")),
    **dict.fromkeys(("sessions", "threads", "conversations", "recent"), Ours("list", "histories.list")),
    **dict.fromkeys(("session", "thread", "conversation"), Ours("log ID", "histories[id]")),
    **dict.fromkeys(("compact", "compaction", "summarize"), Ours("condense ID", "history.condense")),
    **dict.fromkeys(("rewind", "rollback", "undo", "revert"), Ours("retract ID --to V", "history.retract")),
    **dict.fromkeys(("state", "artifacts"), Ours("documents ID", "history.documents")),
    "messages": Ours("view ID", "history.prepare().to_messages"),
    "branch": Ours("fork ID NEW", "history.fork"),
}
"""What foldlog calls a thing, by the word of other tools."""
