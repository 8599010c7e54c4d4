"""``foldlog seal``: what is stored, brought to another compression or key."""

from __future__ import annotations

from foldlog.cli import terminal
from foldlog.cli.options import DEFAULT_DB, AsJson, Db, SomeConversations
from foldlog.cli.outcome import DONE, FINDINGS
from foldlog.cli.stores import open_existing

__all__ = ["run"]


def run(conversations: SomeConversations = None, db: Db = DEFAULT_DB, as_json: AsJson = False) -> int:
    """Bring histories to the compression and the key that the environment names, while others use the store.

    FOLDLOG_COMPRESSION is none, zlib or zstd. FOLDLOG_KEY, or the file that FOLDLOG_KEY_FILE names, holds keys: the
    first seals, the others only open, so a key is changed by putting the new one first, sealing, and then taking the
    old one away. Heads stay as they are. When it ends, what was stored before is gone from the file.
    """
    from eventstore.maintenance.rekey import Resealed
    from foldlog.cli.gist import count

    done: list[Resealed] = []
    with open_existing(db) as store, terminal.progress() as bars:
        bar = bars.add_task("sealing", unit="events", total=None)
        for name in dict.fromkeys(conversations) if conversations else [None]:
            for each in store.reseal(name):
                bars.advance(bar, each.rows)
                done.append(each)
    if as_json:
        terminal.emit({"db": db, "conversations": [{**each._asdict(), "damaged": list(each.damaged)} for each in done]})
    else:
        rows, keys = sum(each.rows for each in done), sum(each.key for each in done)
        histories = count(len(done), "history", "histories")
        terminal.console().print(f"{histories}: {count(rows, 'event')} stored anew, {count(keys, 'key')} wrapped anew.")
    for each in done:
        for event_id in each.damaged:
            terminal.warn(f"conversation {each.conversation!r}, event {event_id}: it is damaged, and was left as it is")
    return FINDINGS if any(each.damaged for each in done) else DONE
