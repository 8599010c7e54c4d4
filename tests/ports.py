"""Ports of this machine, for programs that cannot choose one themselves."""

import socket


def free_port() -> int:
    """Return a port of this machine on which nobody listens, and which no test running beside this
    one gets until this process ends. A program that sets ``SO_REUSEADDR``, as servers do, may
    listen there, also several times one after another.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    port = int(holder.getsockname()[1])
    # The descriptor stays open. While it is, the system gives its port to nobody who asks for any
    # port, whether to listen or to connect.
    holder.detach()
    return port


def listens(port: int) -> bool:
    """Return whether a program listens on a port."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
