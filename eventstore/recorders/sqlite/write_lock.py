"""The lock that orders the writers of all processes. The lock file names the process that holds the
lock, and has a note from one holder to the next.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from os import pread
from typing import Final

from foldlog._base.telemetry import waits
from foldlog.eventstore.errors import StoreUnavailable
from foldlog.eventstore.recorders.sqlite.errors import is_ours

_NAME_BYTES_MAX: Final = 300
_NOTE_AT: Final = 512
"""The place of the note in the lock file, behind the name of the holder."""
_POLL_S: Final = 0.002
_AT_ONCE: Final = LOCK_EX | LOCK_NB
_SUFFIX: Final = "-queue"


def give_rights(file: int | str, model: str) -> None:
    """Give a file the owner, the group and the rights of the file ``model``, as far as this user
    may. Nobody gets the right to execute it.
    """
    with suppress(FileNotFoundError, PermissionError):
        status = os.stat(model)
        os.chmod(file, status.st_mode & 0o666)
        os.chown(file, status.st_uid, status.st_gid)


class WriteLock:
    """A lock on a file beside the database. One process at a time holds the write lock. The kernel
    frees the lock when its holder dies.

    The write lock only orders writers. If processes do not share the lock file, for example because
    it was deleted, SQLite's own lock still separates their writes. Only one thread of a process at
    a time, the leader, may use the lock.

    The kernel gives the lock to processes nearly in the order in which they began to wait. The call
    that waits for the kernel's lock has no time limit. A separate thread therefore makes this call,
    and the leader waits for the thread for a limited time.
    """

    def __init__(self, path: str, patience_s: float) -> None:
        self._path = f"{path}{_SUFFIX}"
        self._patience_s = patience_s
        self._file = -1
        self._name = b""
        """The name of this process. The holder of the lock writes its name to the beginning of the
        lock file.
        """
        self._pending: _Pending | None = None
        """The thread that waits until the kernel grants the lock. The present leader or an earlier
        leader started the thread.
        """

    def open(self) -> None:
        self._file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        if os.fstat(self._file).st_size == 0:
            give_rights(self._file, self._path.removesuffix(_SUFFIX))
        self._name = f"{os.getpid()} {os.uname().nodename}".encode()[: _NAME_BYTES_MAX - 1] + b"\n"

    def take(self, deadline: float) -> None:
        """Take the lock, and name this process in the file. Raises the error of ``waited`` if the
        deadline passes.
        """
        if self._file < 0:
            self.open()
        try:
            if self._pending is None:
                flock(self._file, _AT_ONCE)
            else:
                # The waiting thread keeps its place in the kernel's queue. This descriptor must not
                # get the lock, because the thread would then wait for its own process.
                self._wait(deadline)
        except BlockingIOError:
            self._wait(deadline)
        # Do not map the file into memory: if the file was truncated, or the disk is full, an access
        # would end the process.
        if pread(self._file, len(self._name), 0) != self._name:
            self._write_name()

    def release(self) -> None:
        if self._pending is not None:
            self._pending.abandon()
        if self._file >= 0:
            flock(self._file, LOCK_UN)

    def close(self) -> None:
        # Closing the file also releases the lock.
        pending = self._pending
        self._pending = None
        file = self._file
        self._file = -1
        if pending is not None:
            pending.abandon()
        if file >= 0:
            os.close(file)

    __del__ = close

    def renew_in_child(self) -> None:
        """Close the lock file after a fork. If the child kept the inherited descriptor, it would
        hold the parent's lock.
        """
        pending = self._pending
        self._pending = None
        file = self._file
        self._file = -1
        for inherited in (file, -1 if pending is None else pending.file):
            if inherited >= 0:
                os.close(inherited)

    def waited(self, leader: str | None = None) -> StoreUnavailable:
        """Return the error of a wait that was too long. ``leader`` is the name of the thread of
        this process that writes, if there is one.
        """
        holder = self._holder()
        if leader is not None and (holder is None or holder[0] == os.getpid()):
            who = (
                f"thread {leader!r} of this process (process {os.getpid()} on host"
                f" {os.uname().nodename}) holds the lock"
            )
        elif holder is None:
            who = "a process that did not write its name into that file holds the lock"
        else:
            pid, host = holder
            who = (
                f"process {pid} on host {host} holds the lock; if that process is stopped,"
                f" continue it (kill -CONT {pid}) or end it"
            )
        return StoreUnavailable(
            f"waited {self._patience_s:g} s for the write lock {self._path}, and nothing was"
            f" written: {who}. To wait longer, set patience_s in the URL",
            kind="busy",
        )

    def read_note(self, size: int) -> bytes:
        """Return the note that a holder of the lock left to the next ones, or nothing if there is
        none. Call ``read_note`` and ``write_note`` only while this process holds the lock.
        """
        return pread(self._file, size, _NOTE_AT)

    def write_note(self, note: bytes) -> None:
        self._write(note, _NOTE_AT)

    def _write_name(self) -> None:
        self._write(self._name, 0)

    def _write(self, text: bytes, place: int) -> None:
        try:
            os.pwrite(self._file, text, place)
        except OSError as error:
            if not is_ours(error):  # the error comes from a signal handler
                raise
            # The disk may be full, which does no harm. Without the name, the errors of other
            # processes cannot name the holder. Without the note, other processes read again what
            # they remember.

    @waits
    def _wait(self, until: float) -> None:
        """Wait for the thread that gets the lock, or raise the error of ``waited``."""
        pending = self._pending
        if pending is None or not pending.resume():
            # Store the thread before starting it: if a signal handler raises, the process must
            # still know the thread that may get the lock.
            pending = self._pending = _Pending(os.open(self._path, os.O_RDWR | os.O_NOFOLLOW))
            try:
                pending.start()
            except RuntimeError:  # the program is ending, so no thread can be started
                self._pending = None
                pending.close()
                self._poll(until)
                return
        if not pending.wait(until):
            pending.abandon()
            raise self.waited()
        old = self._file
        self._file = pending.file
        self._pending = None
        pending.file = -1
        os.close(old)

    def _poll(self, until: float) -> None:
        while True:
            try:
                return flock(self._file, _AT_ONCE)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise self.waited() from None
            time.sleep(_POLL_S)

    def _holder(self) -> tuple[int, str] | None:
        """Return the process and the host that the lock file names. Return None if it names none,
        or if another thread has closed the lock.
        """
        if self._file < 0:
            return None
        line, _, _ = os.pread(self._file, _NAME_BYTES_MAX, 0).partition(b"\n")
        pid, _, host = line.decode(errors="replace").partition(" ")
        return (int(pid), host) if pid.isdecimal() else None


class _Pending(threading.Thread):
    """A thread that waits for the lock, with its own open file. After ``wait`` has returned True,
    the file of the thread holds the lock.
    """

    def __init__(self, file: int) -> None:
        super().__init__(name="foldlog-write-lock", daemon=True)
        self.file = file
        # a finalizer may close the lock while this thread holds the mutex
        self._mutex = threading.RLock()
        self._granted = threading.Lock()
        self._granted.acquire()
        self._is_wanted = True
        """Whether this process still wants the lock. An unwanted lock is released as soon as the
        kernel grants it.
        """
        self._has_ended = False
        self._error: OSError | None = None

    def wait(self, until: float) -> bool:
        self._granted.acquire(timeout=max(until - time.monotonic(), 0.0))
        with self._mutex:
            if self._error is not None:
                raise self._error
            # If the wait was too long, ``_has_ended`` is false. If a signal handler has just
            # released the lock, ``_is_wanted`` is false.
            return self._has_ended and self._is_wanted

    def abandon(self) -> None:
        # A lock that the kernel grants later is released.
        with self._mutex:
            self._is_wanted = False
            if self._has_ended:
                self.close()

    def resume(self) -> bool:
        with self._mutex:
            if self._has_ended:
                return False
            self._is_wanted = True
            return True

    def close(self) -> None:
        file = self.file
        self.file = -1
        if file >= 0:
            os.close(file)

    def run(self) -> None:
        try:
            flock(self.file, LOCK_EX)
        except OSError as error:
            self._error = error
        with self._mutex:
            self._has_ended = True
            if not self._is_wanted:
                self.close()
        self._granted.release()
