"""The socket of ``foldlog serve``, and the tools of coding agents."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.terminal import note, say
from foldlog.eventstore import Store

# The functions import what most programs need not load when they start.
if TYPE_CHECKING:
    from foldlog._app.coding_agents.mcp_server import MountedTools
    from foldlog._app.server.service.service import Service
    from foldlog._reports.figures.prices import Prices

_EVERYWHERE = ("0.0.0.0", "::")
"""The addresses of a server that all machines of the network reach."""
_NO_SUCH_HOST = (errno.EADDRNOTAVAIL, socket.EAI_NONAME, socket.EAI_AGAIN)
"""The errors of a wrong host, and not of a wrong port."""


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address. Port 0 is any free port. Raises ``Refused`` if
    the address cannot be used.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        wrong = "--host" if error.errno in _NO_SUCH_HOST else "--port"
        raise Refused(
            f"cannot listen at {host} port {port}: {error.strerror}; use another value of {wrong}"
        ) from error
    # An answer is sent in two parts. Without this option, which connections inherit, the second
    # part waits 40 ms for the client's acknowledgement of the first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def check_options_of_service(
    writes: bool,
    tokens: Path | None,
    without: bool,
    config: Path | None,
    origins: Sequence[str],
) -> None:
    """Raise ``Refused`` if the options of ``--write`` do not fit the other options."""
    options = {"--tokens": tokens, "--config": config, "--allow-origin": origins}
    given = [name for name, value in options.items() if value]
    if given and not writes:
        raise Refused(f"nothing uses {' and '.join(given)} without --write; add --write")
    if writes and without and tokens is None:
        raise Refused("--write needs tokens; leave out --no-token, or name --tokens FILE")


def writing_service(
    store: Store,
    tokens: Path | None,
    secret: str | None,
    condenser: Path | None,
    is_ending: Callable[[], bool],
    origins: Sequence[str] = (),
    prices: Prices | None = None,
) -> Service:
    """Return the operations below ``/v1``. ``secret`` is the token of the page, which may do
    everything if there is no file of tokens.
    """
    from foldlog._app.server.app import standing
    from foldlog._app.server.service.service import Service
    from foldlog._app.server.service.tokens import Tokens
    from foldlog._history.histories import Histories

    return Service(
        Histories(store, condenser=condenser),
        Tokens.of_one(secret or "") if tokens is None else Tokens.from_file(tokens),
        check=standing(store),
        is_ending=is_ending,
        origins=origins,
        prices=prices,
    )


def tools_loader(store: Store) -> Callable[[], MountedTools] | None:
    """Return a function that loads the tools of ``foldlog mcp``, or None if their extra is not
    installed. If the store is not read-only, the tools import transcripts that have grown.
    """
    if find_spec("mcp") is None:
        return None

    def load() -> MountedTools:
        from foldlog._app.coding_agents.asked_conversation import Asking
        from foldlog._app.coding_agents.mcp_server import mount
        from foldlog._app.coding_agents.mcp_tools import Answers

        may_import = store.database.recorder.writable
        return mount(Answers(store, Asking(store, {}, None, may_import=may_import)))

    return load


def say_address(host: str, port: int, names: Sequence[str], secret: str | None) -> None:
    """Print the address of the page, with its token."""
    everywhere = host in _EVERYWHERE
    address = next(iter(names), "localhost") if everywhere else host
    shown = f"[{address}]" if ":" in address else address
    query = "" if secret is None else f"?token={quote(secret, safe='')}"
    say(f"http://{shown}:{port}/{query}")
    sys.stdout.flush()
    note("open this address in a browser; Ctrl-C ends the server")
    if everywhere and not names:
        note(
            "other machines can use the IP address of this machine; to accept a host name, "
            "too, start the server with --allow-host NAME"
        )
