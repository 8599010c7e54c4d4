"""Ports of this machine, for programs that cannot choose one themselves."""

import socket


def free_port() -> int:
    """Return a port of this machine on which nobody listens now. Another program may take it first."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def listens(port: int) -> bool:
    """Return whether a program listens on a port."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
