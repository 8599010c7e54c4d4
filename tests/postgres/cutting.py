"""A TCP proxy that cuts a connection at the moment when it hurts most: around a commit."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal

Cut = Literal["request", "answer"]


class CuttingProxy:
    """Passes everything on to a port of this machine. Each cut that is ordered is made once, at the
    next chunk that contains the mark. With ``"request"``, the chunk is lost before the server gets
    it. With ``"answer"``, the server does what the chunk asks, and its answer is lost. With
    ``linger``, the server is not told that its client has gone. ``turns`` is the number of round
    trips: how often a client spoke after the server had spoken.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._orders: list[tuple[bytes, Cut, bool]] = []
        self._links: list[_Link] = []
        self.cuts = 0
        self.turns = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def order(self, cut: Cut, *, mark: bytes = b"\0commit\0", linger: bool = False) -> None:
        self._orders.append((mark, cut, linger))

    def close(self) -> None:
        """Cut all connections, and accept no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        for link in self._links:
            link.shut()
            link.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target_port))
            self._links.append(_Link(self, client, server))

    def due(self, chunk: bytes) -> tuple[Cut, bool] | None:
        """Return the cut that must be made at this chunk, and whether it lingers. Return None if
        the chunk is passed on.
        """
        for order in self._orders:
            if order[0] in chunk:
                self._orders.remove(order)
                return order[1:]
        return None


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy: CuttingProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._server_spoke = True
        self._cutting = threading.Event()
        self._answered = threading.Event()
        self._threads = [
            threading.Thread(target=run, daemon=True) for run in (self._forward, self._back)
        ]
        for thread in self._threads:
            thread.start()

    def shut(self) -> None:
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                # A close alone would wait until the other thread leaves its ``recv``.
                end.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        self._client.close()
        self._server.close()

    def _forward(self) -> None:
        """Pass on what the client says, until the connection is to be cut."""
        with contextlib.suppress(OSError):
            while chunk := self._client.recv(1 << 16):
                is_end = chunk[:1] == b"X"
                self._proxy.turns += self._server_spoke and not is_end
                self._server_spoke = False
                due = self._proxy.due(chunk)
                if due is None:
                    self._server.sendall(chunk)
                    continue
                cut, linger = due
                self._cutting.set()
                if cut == "answer":
                    self._server.sendall(chunk)
                    self._answered.wait()
                self._proxy.cuts += 1
                if linger:
                    self._client.shutdown(socket.SHUT_RDWR)
                    return
                break
        self.shut()

    def _back(self) -> None:
        """Pass on what the server says, until the connection is being cut."""
        with contextlib.suppress(OSError):
            while chunk := self._server.recv(1 << 16):
                self._server_spoke = True
                if self._cutting.is_set():
                    self._answered.set()  # The server answers a commit when it is done.
                    return
                self._client.sendall(chunk)
        self._answered.set()
        self.shut()
