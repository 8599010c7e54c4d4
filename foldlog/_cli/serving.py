"""The socket of ``foldlog serve``, and the tools of coding agents."""

from __future__ import annotations

import errno
import os
import socket
from importlib.util import find_spec
from typing import TYPE_CHECKING

from foldlog._cli.outcome import Refused
from foldlog.eventstore import Store

if TYPE_CHECKING:
    from foldlog._programs.server import MountedTools

_NO_SUCH_HOST = (errno.EADDRNOTAVAIL, socket.EAI_NONAME, socket.EAI_AGAIN)


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address. Port 0 is any free port. Raises ``Refused`` if
    the address cannot be used.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        wrong = "--host" if error.errno in _NO_SUCH_HOST else "--port"
        raise Refused(
            f"cannot listen at {host} port {port}: {error.strerror}; use another value of {wrong}"
        ) from error


def mounted_tools(store: Store) -> MountedTools | None:
    """Return the tools of ``foldlog mcp``, or None if their extra is not installed. If the store is
    not read-only, the tools import transcripts that have grown.
    """
    if find_spec("mcp") is None:
        return None
    from foldlog._programs.answers import Answers
    from foldlog._programs.asking import Asking
    from foldlog._programs.server import mount

    may_import = store.path is None or os.access(store.path, os.W_OK)
    answers = Answers(store, Asking(store, {}, None, may_import=may_import))
    return mount(answers)
