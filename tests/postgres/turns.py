"""A TCP proxy that counts round trips: how often the client speaks after the server has spoken."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

__all__ = ["Turns", "counting"]


class Turns:
    """``count`` is the number of round trips so far, over all connections."""

    def __init__(self, target_port: int) -> None:
        self.count = 0
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target_port))
                spoke = [server]
                for source, target in ((client, server), (server, client)):
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(
                        target=self._pass_on, args=(source, target, client, spoke), daemon=True
                    ).start()

    def _pass_on(
        self,
        source: socket.socket,
        target: socket.socket,
        client: socket.socket,
        spoke: list[socket.socket],
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(1 << 16):
                # X ends the session
                if source is client and spoke[0] is not client and chunk[:1] != b"X":
                    self.count += 1
                spoke[0] = source
                target.sendall(chunk)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def counting(target_port: int) -> Iterator[Turns]:
    turns = Turns(target_port)
    try:
        yield turns
    finally:
        turns.close()
