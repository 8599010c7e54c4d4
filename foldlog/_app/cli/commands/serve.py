"""``foldlog serve``: show the pages of all conversations, live, in a browser."""

from __future__ import annotations

import logging
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from foldlog._app.cli.agent_model import agent_model_option, named_model
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.hints import complete_commands
from foldlog._app.cli.options import WholeNumber, db_option, flag, option, prices_option
from foldlog._app.cli.serving import (
    check_options_of_service,
    listening,
    say_address,
    tools_loader,
    writing_service,
)
from foldlog._app.cli.stores import open_existing, open_or_create
from foldlog._app.cli.terminal import note
from foldlog.eventstore.errors import install_command

_SWITCH_S = 0.0005
"""The time after which a computing thread gives the interpreter's lock to another one.

An append takes the lock some ten times. Beside threads that compute, as searches do, each time
would take 5 ms with Python's default. Without such threads, an append takes as much CPU as with
5 ms.
"""
_TOKEN_CHARACTERS_MIN = 8
_LOCAL = ("localhost", "127.0.0.1", "::1")
_SETTINGS: Final[dict[str, Any]] = {
    "log_level": "warning",
    "access_log": False,
    "timeout_graceful_shutdown": 1,
    "server_header": False,
    "lifespan": "on",
    "loop": "uvloop",
    "ws": "none",
    "proxy_headers": False,
}
"""The settings of uvicorn."""


@option(
    "--port",
    "PORT",
    "The port; 0 chooses a free port.",
    type=WholeNumber(min=0, max=65535),
    default=8765,
)
@option("--host", "ADDRESS", "The address that the server listens at.", default="127.0.0.1")
@option(
    "--token",
    "TOKEN",
    "The token that requests need.",
    envvar="FOLDLOG_TOKEN",
    show_envvar=True,
    show_default="a new one",
)
@flag(
    "--no-token",
    "Require no token. Then every user of the machine can read all conversations, so "
    "this is allowed only at localhost.",
)
@option("--allow-host", "NAME", "A host name of this server, besides localhost.", multiple=True)
@flag("--write", "Serve the operations below /v1 too: append, lease, View, follow (docs/HTTP.md).")
@option(
    "--tokens",
    "FILE",
    "A TOML file with the tokens of /v1, with scopes and filters.",
    show_default="the token of the page, which may do everything",
)
@option(
    "--allow-origin",
    "ORIGIN",
    "A site whose pages may use /v1 with a token, such as https://example.com.",
    multiple=True,
)
@flag("--search-index", "Make a search index if the store has none; see 'foldlog store index'.")
@option("--config", "FILE", "A TOML file with the [condenser] of /v1.")
@agent_model_option
@prices_option
@db_option
def run(
    port: int,
    host: str,
    token: str | None,
    no_token: bool,
    allow_host: tuple[str, ...],
    write: bool,
    tokens: Path | None,
    allow_origin: tuple[str, ...],
    search_index: bool,
    config: Path | None,
    agent: str | None,
    prices: Path | None,
    db: str,
) -> None:
    """Serve the pages of all conversations, and show new events when they are appended. When the
    server first reads an imported conversation, it makes the events.

    Open the printed address in a browser. The address contains the token. Needs the extra 'web'.
    With the extra 'mcp', a coding agent can call the tools of 'foldlog mcp' at /mcp, with the token
    as bearer token.

    Example: foldlog serve --port 8080
    """
    _check_token(host, token, is_needed=not no_token)
    try:
        import starlette  # noqa: F401 - fail before the store is opened
        import uvicorn

        from foldlog._app.server.allocator import return_large_blocks
        from foldlog._app.server.http_protocol import GuardedProtocol
    except ImportError as error:
        raise Refused(
            f"the server needs {error.name}, which is not installed: {install_command('web')}"
        ) from error
    from foldlog._app.cli.keeping_up import Keeper
    from foldlog._app.server.access import Gate
    from foldlog._app.server.app import application
    from foldlog._app.server.documents import Shown
    from foldlog._reports.figures.prices import Prices
    from foldlog._reports.search.index import is_missed, make_if_missing

    check_options_of_service(write, tokens, no_token, config, allow_origin)
    secret = None if no_token else token or secrets.token_urlsafe(24)
    model = named_model(agent)
    opened = open_or_create(db, may_be_empty=True) if write else open_existing(db)
    with opened as store, listening(host, port) as listener:
        if search_index:
            make_if_missing(store)
        port = listener.getsockname()[1]
        service = None
        if write:
            service = writing_service(
                store,
                tokens,
                secret,
                config,
                lambda: server.should_exit,
                allow_origin,
                Prices(prices),
            )
        app = application(
            store,
            gate=Gate(secret, [*allow_host, host], port),
            shown=Shown(
                None if model is None else model.max_input_tokens,
                model,
                Prices(prices),
                complete_commands,
            ),
            is_ending=lambda: server.should_exit,
            tools=tools_loader(store),
            service=service,
        )
        say_address(host, port, allow_host, secret)
        if is_missed(store):
            note(
                "the store has no search index, so a search may read all events; start the server"
                " with --search-index to make one"
            )
        server = uvicorn.Server(uvicorn.Config(app, http=GuardedProtocol, **_SETTINGS))
        # A second Ctrl-C cuts the server off, which is no error.
        logging.getLogger("uvicorn.error").addFilter(lambda record: not server.force_exit)
        return_large_blocks()
        sys.setswitchinterval(_SWITCH_S)
        with suppress(KeyboardInterrupt), Keeper(store):  # Ctrl-C is the usual end of a server
            server.run(sockets=[listener])


def _check_token(host: str, token: str | None, *, is_needed: bool) -> None:
    """Raise ``Refused`` for a token that is too short or that no header can have, for a token that
    would not be needed, and for a server without a token that other machines can reach.
    """
    if not is_needed and host not in _LOCAL:
        raise Refused(f"--no-token is for localhost only; at {host} a token is required")
    if not is_needed and token is not None:
        raise Refused(
            "--no-token contradicts the token that --token or FOLDLOG_TOKEN sets; leave out"
            " --no-token, or set no token"
        )
    if token is not None and len(token) < _TOKEN_CHARACTERS_MIN:
        raise Refused(
            f"the token has {len(token)} characters; use at least {_TOKEN_CHARACTERS_MIN}, or leave"
            " out --token to get a new token"
        )
    if token is not None and not (
        token.isascii() and token.isprintable() and token == token.strip()
    ):
        raise Refused(
            "the token begins or ends with a blank, or has a character outside of printable ASCII,"
            " which clients cannot send in a header; choose another token, or leave out --token to"
            " get a new token"
        )
