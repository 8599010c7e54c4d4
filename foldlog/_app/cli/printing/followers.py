"""Print how far the followers of a PostgreSQL store are behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foldlog._app.cli import terminal
from foldlog._app.cli.stores import open_existing
from foldlog._reports.words.gist import count

if TYPE_CHECKING:
    from foldlog._reports.answers.store import FollowersDocument


def list_followers(db: str) -> None:
    """Print how far the followers of a PostgreSQL store are behind, and which open transaction
    delays them.
    """
    from foldlog._reports.answers.store import FollowerDocument, FollowersDocument, HolderDocument
    from foldlog.eventstore import follower_status
    from foldlog.eventstore.files.written_files import is_a_copy

    with open_existing(db) as store:
        status = follower_status(store)
    lags = [lag for lag in status.followers if not is_a_copy(lag.follower)]
    holder = status.held_by
    document = FollowersDocument.of(
        status,
        horizon=str(status.horizon),
        last_position=str(status.last_position),
        held_by=None if holder is None else HolderDocument.of(holder),
        synchronous_standby_names=status.standbys,
        followers=tuple(FollowerDocument.of(lag, position=str(lag.position)) for lag in lags),
    )
    terminal.answer(document, lambda: _show_followers(document))


def _show_followers(status: FollowersDocument) -> None:
    """Print for which standbys a commit waits, what is held back, and how far followers are."""
    holder = status.held_by
    standbys = status.synchronous_standby_names or "no standby"
    terminal.say_wrapped(
        f"a commit waits for: {standbys} (synchronous_commit {status.synchronous_commit})"
    )
    held = (
        f"{count(status.held_back, 'event')} held back by a transaction that began"
        f" {count(status.horizon_age, 'transaction')} ago"
    )
    terminal.say_wrapped(held if status.horizon_age else "nothing is held back")
    if holder is not None:
        terminal.say_wrapped(
            f"  the transaction belongs to {holder.application or '?'}, pid {holder.pid or '-'},"
            f" {holder.state}, and began {holder.age_s:,.1f} s ago"
        )
    for lag in status.followers:
        terminal.say_wrapped(
            f"follower {lag.follower}: {count(lag.events, 'event')} behind, {lag.seconds:,.1f} s"
        )
