"""``foldlog store keep-up``: keep figures, lists and the search index up to date."""

from __future__ import annotations

from contextlib import suppress

from foldlog._app.cli import terminal
from foldlog._app.cli.options import flag, store_options
from foldlog._app.cli.stores import open_existing
from foldlog._reports.answers.store import KeptUpDocument


@flag("--once", "Stop once everything is up to date.")
@store_options
def run(once: bool, db: str) -> None:
    """Keep the figures of conversations, the list of conversations and the search index up to date,
    until Ctrl-C. Readers then wait for none of these. 'foldlog serve' does the same.

    Without this command, 'foldlog list', 'foldlog stats' and the page count a few new events
    themselves, and say what they lack. The command looks for new events every second, and several
    processes may run it. It makes no search index: see 'foldlog store index'.

    Example: foldlog store keep-up
    """
    from foldlog._app.cli.keeping_up import Keeper
    from foldlog._history.histories import Histories
    from foldlog._reports.search import index

    with open_existing(db) as store:
        with terminal.working("counting"):
            Histories(store).maintenance.keep_up()
        has_index = store.database.recorder.query(index.state_of).is_made
        kept = "figures, lists and the search index" if has_index else "figures and lists"
        terminal.answer(KeptUpDocument(db=db), f"{kept} are up to date")
        if not once:
            with suppress(KeyboardInterrupt):  # the usual end
                Keeper(store).run()
