"""A port for a program that cannot choose one itself."""

import socket


def free_port() -> int:
    """Return a port of this machine on which nobody listens now. Another program may take it first."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
