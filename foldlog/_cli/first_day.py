"""``foldlog`` without a command: the commands of the first day, and what is in this folder."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import islice

from foldlog._cli import terminal
from foldlog._cli.hints import DEFAULT_DB, DEMO_DB, command, existing_db, store_name, use_store
from foldlog._cli.stores import listed, open_existing
from foldlog._words.gist import count
from foldlog.eventstore.inside import as_url, parse_url

_COUNTED = 10_000


def welcome(commands: Mapping[str, str]) -> None:
    """Print these commands, each with the beginning of its help, and the store that they use without ``--db``."""
    for name, described in commands.items():
        terminal.say(f"  foldlog {name:<8}{re.split('[,:.]', described)[0]}")
    terminal.say("  foldlog --help  All commands")
    terminal.say()
    chosen = existing_db(os.environ.get("FOLDLOG_DB") or DEFAULT_DB)
    db = next((one for one in (chosen, DEMO_DB) if _is_there(one)), None)
    if db is None:
        terminal.say(
            f"There is no {store_name(chosen)} here: '{command('demo')}' makes a store to try, 'foldlog import PATH' "
            f"yours.",
            wraps=True,
        )
        return
    use_store(db)
    with open_existing(db) as store:
        found = sum(row.erased_at is None for row in islice(listed(store), _COUNTED))
    more = " or more" if found == _COUNTED else ""
    kept = f"{count(found, 'history', 'histories')}{more} in {store_name(db)}"
    terminal.say(f"{kept}: '{command('list')}'")


def _is_there(db: str) -> bool:
    location = parse_url(as_url(db))
    return location.scheme != "memory" and (location.scheme != "sqlite" or os.path.exists(location.path))
