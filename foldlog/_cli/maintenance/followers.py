"""The followers of a store on a PostgreSQL server, for ``foldlog list --followers``."""

from __future__ import annotations

from foldlog._cli import terminal
from foldlog._cli.outcome import DONE
from foldlog._cli.stores import open_existing
from foldlog._words.gist import count
from foldlog.eventstore.maintenance.status import follower_status


def list_followers(db: str, *, as_json: bool) -> int:
    """Show how far the followers of a PostgreSQL store lag, and which transaction holds them back."""
    with open_existing(db) as store:
        status = follower_status(store)
    holder = status.held_by
    if as_json:
        terminal.emit(
            {
                # Positions as text: they go beyond what a double holds.
                "horizon": str(status.horizon),
                "horizon_age": status.horizon_age,
                "last_position": str(status.last_position),
                "held_back": status.held_back,
                "held_by": None if holder is None else holder._asdict(),
                "synchronous_commit": status.synchronous_commit,
                "synchronous_standby_names": status.standbys,
                "followers": [{**lag._asdict(), "position": str(lag.position)} for lag in status.followers],
            }
        )
        return DONE
    console = terminal.console()
    standbys = status.standbys or "no standby"
    console.print(f"a commit waits for: {standbys} (synchronous_commit {status.synchronous_commit})")
    held = (
        f"{count(status.held_back, 'event')} held back by a transaction {count(status.horizon_age, 'transaction')} old"
    )
    console.print(held if status.horizon_age else "nothing is held back")
    if holder is not None:
        name = terminal.printable(holder.application or "?", one_line=True)
        console.print(
            f"  it is of {name}, pid {holder.pid or '-'}, {holder.state}, and began {holder.age_s:,.1f} s ago"
        )
    for lag in status.followers:
        name = terminal.printable(lag.follower, one_line=True)
        console.print(f"follower {name}: {count(lag.events, 'event')} behind, {lag.seconds:,.1f} s")
    return DONE
