"""Run ``foldlog hook`` with few imports, because the calling program waits for it at every turn."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from foldlog._app.cli.hints import home_folder, make_folder_of, program_db

_PATIENCE_S = 5
_DB = "--db"
_REDACT = "--redact-secrets"


def is_hook(arguments: Sequence[str]) -> bool:
    """Return whether a program runs ``foldlog hook``. Its help needs Click."""
    is_called = bool(arguments) and arguments[0] == "hook"
    return is_called and not {"--help", "-h"}.intersection(arguments)


def options_in(options: Sequence[str]) -> tuple[str, bool]:
    """Return the store of a hook, and whether the hook redacts secrets. Raises ``ValueError`` for
    any other option.
    """
    rest = [option for option in options if option != _REDACT]
    if not rest:
        return program_db(), _REDACT in options
    if len(rest) == 1 and rest[0].startswith(f"{_DB}="):
        return rest[0].removeprefix(f"{_DB}="), _REDACT in options
    if len(rest) != 2 or rest[0] != _DB:
        raise ValueError(
            f"a hook has only the options {_DB} STORE and {_REDACT}, not {' '.join(rest)!r:.80};"
            " 'foldlog setup PROGRAM' writes the options"
        )
    return rest[1], _REDACT in options


def answer(options: Sequence[str]) -> None:
    """Read the JSON of a program from stdin, and print the answer. Errors are printed on stderr.
    The exit status is always 0, because any other status would stop the program.
    """
    answer = {}
    try:
        db, redact_secrets = options_in(options)
        from pathlib import Path

        from foldlog._app.coding_agents.hook import FIRED, answer_hook
        from foldlog._imports import makes_events
        from foldlog.eventstore import open_store
        from foldlog.eventstore.recorders.urls import as_url

        payload = json.load(sys.stdin)
        if not isinstance(payload, dict):
            raise TypeError(
                "a program sends a JSON object with the fields of its hook on stdin, not"
                f" {json.dumps(payload):.80}"
            )
        make_folder_of(db)
        is_secret = None
        if redact_secrets:
            from foldlog._reports.search.secrets import secret_finder

            is_secret = secret_finder()
        with makes_events(open_store(impatient(as_url(db)))) as store:
            answer = answer_hook(store, payload, Path(home_folder(), FIRED), is_secret)
    except BaseException as error:  # noqa: BLE001 - a hook that fails must not stop its program
        from foldlog._app.cli import terminal

        with _may_be_full_or_closed(2):
            terminal.complain(f"the hook failed: {type(error).__name__}: {error}")
            sys.stderr.flush()
    with _may_be_full_or_closed(1):
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


@contextmanager
def _may_be_full_or_closed(descriptor: int) -> Iterator[None]:
    """Ignore that stdout or stderr cannot be written. The text stays in Python's buffer, and Python
    writes it again at the end, so from now on the descriptor leads to the null device.
    """
    try:
        yield
    except (OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def impatient(url: str) -> str:
    """Return the URL of a store with the option to wait at most 5 s for other writers, because a
    coding agent kills a slow hook. A URL that already has this option stays unchanged.
    """
    if "patience_s=" in url or url.startswith("memory:"):
        return url
    return f"{url}{'&' if '?' in url else '?'}patience_s={_PATIENCE_S}"
