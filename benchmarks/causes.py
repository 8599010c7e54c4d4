"""Break what a store depends on, and show what each operation then says: ``python -m
benchmarks.causes [NAME …]``.

Each line has the fault, the operation, its seconds, and its result or error. An operation must
return, or raise an error of the store that names the cause. Where waiting cannot help, it must do
so within 5 seconds, though the patience is the default (60 s). The exit status is 1 if an operation
does neither.

    languages    a wrong password, no password, no such role, no such database, on a server that
                 speaks five languages
    standby      a standby, with and without mode=ro
    limit        a role that may have one connection
    pgbouncer    PgBouncer in transaction mode: without ``pooler``, and with ``pooler=prepared``
                 (which needs version 1.21) and ``pooler=transaction``
    timeouts     a role whose statement_timeout is 1, 20 or 200 ms, behind PgBouncer
    objects      an object store that answers with other bytes or not at all, while conversations
                 are archived
    citus        Citus: each operation while a worker is killed, with ``patience_s=3``, then once
                 more with the worker back. Every second worker, with 1 and 4 stores

The programs of the server are the ones in ``$FOLDLOG_POSTGRES_BIN``, else Debian's, else the
tests' own. PgBouncer is the one of ``$FOLDLOG_PGBOUNCER``, else Debian's. A fault that needs
PgBouncer, Citus or a language that is not installed is left out, and a line says so.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path

import click
import psycopg

import foldlog
from benchmarks.postgres_citus import Citus
from foldlog import Histories
from foldlog.eventstore import EventStoreError
from tests.object_server import BUCKET, Fault, InMemory, ObjectServer
from tests.postgres.every_operation import operations, write_source
from tests.postgres.pooler import Pooler
from tests.postgres.servers import Server, ServerUnavailable, new_primary

_LIMIT_S = 5.0
"""The time in which an error must come, if waiting cannot help."""
_CITUS_PATIENCE_S = 3
_LANGUAGES = {"German": "de_DE", "French": "fr_FR", "Spanish": "es_ES", "Japanese": "ja_JP"}
_LANGUAGES["Russian"] = "ru_RU"
_SHOWN = 150
"""The number of characters of an error that a line shows."""

Act = Callable[[], object]


class Report:
    """Prints a line for each operation, and counts the operations that are wrong."""

    def __init__(self) -> None:
        self.operations = 0
        self.wrong: list[str] = []
        self.longest_s = 0.0

    def attempt(
        self,
        fault: str,
        operation: str,
        act: Act,
        cause: str | None = None,
        *,
        limit_s: float = _LIMIT_S,
        may_return: bool = False,
    ) -> Exception | None:
        """Run an operation. If ``cause`` is None, it must return. Otherwise, it must raise an error
        of the store whose text matches ``cause``; with ``may_return``, it may return too.
        """
        began = time.monotonic()
        error = None
        try:
            act()
        except Exception as raised:  # noqa: BLE001 - a wrong error is a line of the table
            error = raised
        took = time.monotonic() - began
        problem = ""
        if error is None:
            if cause is not None and not may_return:
                problem = "it returned"
        elif cause is None:
            problem = "it must return"
        elif not isinstance(error, EventStoreError):
            problem = "not an error of the store"
        elif not re.search(cause, str(error), re.DOTALL):
            problem = "the cause is missing"
        if took > limit_s:
            problem = f"{problem} it took more than {limit_s:g} s".strip()
        self.operations += 1
        self.longest_s = max(self.longest_s, took)
        self._print(fault, operation, took, error, problem)
        return error

    def leave_out(self, fault: str, reason: str) -> None:
        print(f"{fault:36} left out: {reason}", flush=True)

    def _print(
        self, fault: str, operation: str, took: float, error: Exception | None, problem: str
    ) -> None:
        text = "ok"
        if error is not None:
            kind = getattr(error, "kind", "")
            text = f"{type(error).__name__}({kind}): {' '.join(str(error).split())}"
        if problem:
            text = f"WRONG ({problem}) {text}"
            self.wrong.append(f"{fault}: {operation}: {text}")
        elif len(text) > _SHOWN:
            text = f"{text[:_SHOWN]}…"
        print(f"{fault:36} {operation:24} {took:6.2f} s  {text}", flush=True)


def _open(url: str) -> Act:
    return lambda: foldlog.open(url).close()


def _every_operation(report: Report, fault: str, url: str) -> None:
    """Run every public operation, each of which must return."""
    with (
        tempfile.TemporaryDirectory() as folder,
        foldlog.open(url, condenser={"type": "recent", "max_events": 6}) as histories,
    ):
        write_source(Path(folder))
        for name, act in operations(histories, Path(folder)):
            report.attempt(fault, name, act)


# -- refusals in other languages


def languages(report: Report, folder: Path) -> None:
    locales = folder / "locales"
    locales.mkdir()
    locales.chmod(0o755)
    server = Server(folder / "server", environment={"LOCPATH": str(locales)})
    server.initialize()
    server.start()
    address = f"@127.0.0.1:{server.port}"
    try:
        server.sql("CREATE ROLE app LOGIN PASSWORD 'right'")
        (server.data / "pg_hba.conf").write_text(
            "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        )
        server.reload()
        for language, name in _LANGUAGES.items():
            if not _has_messages(server, locales, f"{name}.UTF-8"):
                report.leave_out(language, "no locale or no messages in this language")
                continue
            for fault, url in {
                "wrong password": f"app:wrong{address}/postgres",
                "no password": f"app{address}/postgres",
                "no such role": f"nobody:right{address}/postgres",
                "no such database": f"app:right{address}/nowhere",
            }.items():
                cause = r"28P01|28000|3D000|password"
                report.attempt(f"{language}: {fault}", "open", _open(f"postgresql://{url}"), cause)
    finally:
        server.stop("immediate")


def _has_messages(server: Server, locales: Path, locale: str) -> bool:
    """Make a locale, and return whether the server then speaks its language."""
    if shutil.which("localedef"):
        name = locale.partition(".")[0]
        command = ["localedef", "-c", "-i", name, "-f", "UTF-8", locales / locale]
        subprocess.run(command, capture_output=True, check=False)
    server.configure({"lc_messages": locale if (locales / locale).exists() else "C"})
    server.stop()
    server.start()
    try:
        server.sql("SELECT * FROM nowhere")
    except psycopg.Error as error:
        return "does not exist" not in str(error)
    return False


# -- a standby, and a role with one connection


def standby(report: Report, folder: Path) -> None:
    primary = new_primary(folder / "primary")
    other = Server(folder / "standby")
    try:
        with foldlog.open(primary.url()) as histories:
            histories["c1"].append([{"role": "user", "content": "hello"}])
        other.follow(primary, "standby")
        other.start()
        cause = "standby.*mode=ro"
        report.attempt("standby", "open", _open(other.url()), cause)
        report.attempt("standby, mode=rw", "open", _open(other.url(mode="rw")), cause)
        fault = "standby, mode=ro"
        with foldlog.open(other.url(mode="ro")) as histories:
            history = histories["c1"]
            for name, act in _reads(histories).items():
                report.attempt(fault, name, act)
            report.attempt(fault, "append", lambda: history.append(_MESSAGE), "mode=ro")
            report.attempt(fault, "erase", lambda: histories.erase("c1", reason="x"), "mode=ro")
            report.attempt(fault, "vacuum", histories.maintenance.vacuum, "mode=ro")
            report.attempt(fault, "index", histories.maintenance.index, "mode=ro")
    finally:
        for server in (other, primary):
            with contextlib.suppress(ServerUnavailable):  # it did not start
                server.stop("immediate")


_MESSAGE = {"role": "user", "content": "more"}


def _reads(histories: Histories) -> dict[str, Act]:
    history = histories["c1"]
    return {
        "View": lambda: len(history.view()),
        "list": lambda: list(histories.list()),
        "search": lambda: list(histories.search("hello")),
        "figures": history.stats,
        "follow": lambda: list(histories.store.follow(0)),
        "verify": lambda: list(histories.maintenance.verify()),
    }


def limit(report: Report, folder: Path) -> None:
    server = new_primary(folder / "server")
    try:
        server.sql(
            "CREATE ROLE app LOGIN CONNECTION LIMIT 1; GRANT CREATE ON DATABASE postgres TO app"
        )
        _every_operation(report, "role limit 1", server.url(user="app"))
    finally:
        server.stop("immediate")


# -- PgBouncer


def _pgbouncer() -> str | None:
    return os.environ.get("FOLDLOG_PGBOUNCER") or shutil.which("pgbouncer", path="/usr/sbin")


@contextlib.contextmanager
def _pooled(folder: Path) -> Iterator[tuple[Server, Pooler]]:
    program = _pgbouncer()
    assert program is not None
    server = new_primary(folder / "server")
    with contextlib.ExitStack() as ending:
        ending.callback(server.stop, "immediate")
        pooler = Pooler(program, server, "transaction")
        ending.callback(pooler.stop)
        yield server, pooler


def pgbouncer(report: Report, folder: Path) -> None:
    program = _pgbouncer()
    if program is None:
        report.leave_out("pgbouncer", "PgBouncer is not installed")
        return
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    name = version.stdout.split("\n")[0]
    with _pooled(folder) as (_, pooler):
        plain = f"postgresql://postgres@127.0.0.1:{pooler.port}/postgres"
        report.attempt(name, "open", _open(plain), "pooler=prepared")
        if pooler.mode == "prepared":
            _every_operation(report, f"{name}, pooler=prepared", f"{plain}?pooler=prepared")
        else:
            fault = f"{name}, pooler=prepared"
            url = f"{plain}?pooler=prepared"
            report.attempt(fault, "open", _open(url), "1.21.*pooler=transaction")
        url = f"{plain}?pooler=transaction&schema=unprepared"
        _every_operation(report, f"{name}, pooler=transaction", url)


def timeouts(report: Report, folder: Path) -> None:
    if _pgbouncer() is None:
        report.leave_out("timeouts", "PgBouncer is not installed")
        return
    with _pooled(folder) as (server, pooler):
        server.sql("CREATE DATABASE hasty")
        for timeout in ("1ms", "20ms", "200ms"):
            url = pooler.url(schema=f"within_{timeout}").replace("/postgres?", "/hasty?")
            _set_timeout(server, "0")
            foldlog.open(url).close()
            _set_timeout(server, timeout)
            fault = f"statement_timeout {timeout}, pooled"
            new = url.replace("within_", "new_")
            report.attempt(fault, "open a new store", _open(new), _TIMEOUT, may_return=True)
            _until_timeout(report, url, fault)


_TIMEOUT = "statement_timeout.*ALTER ROLE"


def _set_timeout(server: Server, timeout: str) -> None:
    server.sql(f"ALTER DATABASE hasty SET statement_timeout = '{timeout}'")
    sessions = "FROM pg_stat_activity WHERE datname = 'hasty'"
    server.sql(f"SELECT pg_terminate_backend(pid, 5000) {sessions}")


def _until_timeout(report: Report, url: str, fault: str) -> None:
    """Run each operation, which may be too long for the timeout, but then has to name it."""
    if report.attempt(fault, "open", _open(url), _TIMEOUT, may_return=True) is not None:
        return
    with (
        tempfile.TemporaryDirectory() as place,
        foldlog.open(url, condenser={"type": "recent", "max_events": 6}) as histories,
    ):
        write_source(Path(place))
        for name, act in operations(histories, Path(place)):
            report.attempt(fault, name, act, _TIMEOUT, may_return=True)


# -- an object store


def objects(report: Report, folder: Path) -> None:
    server = ObjectServer(InMemory())
    os.environ.update(server.environment)
    names = [f"c{number:02}" for number in range(40)]
    try:
        with foldlog.open(folder / "store.db") as histories:
            for name in names:
                histories[name].append(
                    [{"role": "user", "content": f"{name} {n}"} for n in range(9)]
                )
            archive = histories.maintenance.archive

            def check(archived: int, named: int) -> None:
                outcomes = archive(timedelta(), f"s3://{BUCKET}/objects")
                wrong = [
                    item for item in outcomes if "does not have the bytes" in (item.stays or "")
                ]
                assert (len(outcomes) - len(wrong), len(wrong)) == (archived, named), outcomes

            def read_all() -> None:
                assert all(len(histories[name].view()) == 9 for name in names)

            fault = "8 of 40 objects read back wrong"
            gets = count(1)

            def spoil_each_fifth_get(method: str) -> Fault | None:
                return Fault.OTHER_BYTES if method == "GET" and next(gets) % 5 == 0 else None

            server.choose_fault = spoil_each_fifth_get
            report.attempt(fault, "archive of 40", lambda: check(32, 8), limit_s=60)
            server.choose_fault = None
            report.attempt(fault, "archive again", lambda: check(8, 0), limit_s=60)
            report.attempt(fault, "read all", read_all, limit_s=60)
            again = timedelta(), f"s3://{BUCKET}/again"
            cause = "try again when the object store answers"
            for kind in (Fault.UNAVAILABLE, Fault.CUT_BEFORE):
                server.fail(kind)
                fault = f"object store: always {kind.value}"
                # foldlog repeats each request for a minute
                report.attempt(fault, "archive", lambda: archive(*again), cause, limit_s=75)
            server.fail(Fault.UNAVAILABLE, times=20)
            report.attempt(
                "object store: 20 times 5xx", "archive", lambda: archive(*again), limit_s=75
            )
    finally:
        server.close()
        for name in server.environment:
            os.environ.pop(name, None)


# -- Citus


def citus(report: Report, folder: Path) -> None:
    try:
        cluster = Citus(folder)
    except (ServerUnavailable, psycopg.Error) as error:
        report.leave_out("citus", " ".join(str(error).split())[:_SHOWN])
        return
    try:
        for stores in (1, 4):
            for number, worker in enumerate(cluster.workers):
                options = {"stores": str(stores)} if stores > 1 else {}
                url = cluster.coordinator.url(schema=f"s{stores}_{number}", **options)
                _without_worker(
                    report, url, worker, f"Citus, stores={stores}, worker {number} away"
                )
    finally:
        cluster.stop()


def _without_worker(report: Report, url: str, worker: Server, fault: str) -> None:
    """Run each operation while a worker is killed. If the operation failed, run it again with the
    worker and the default patience, and it must return.
    """
    condenser = {"type": "recent", "max_events": 6}
    hasty_url = f"{url}&patience_s={_CITUS_PATIENCE_S}"
    with (
        tempfile.TemporaryDirectory() as place,
        foldlog.open(url, condenser=condenser) as patient,
        foldlog.open(hasty_url, condenser=condenser) as hasty,
    ):
        write_source(Path(place))
        pairs = zip(operations(hasty, Path(place)), operations(patient, Path(place)), strict=True)
        for (name, act), (_, act_again) in pairs:
            worker.kill()
            # an operation may wait for the worker more than once
            limit_s = 5 * _CITUS_PATIENCE_S
            cause = r"127\.0\.0\.1|worker"
            error = report.attempt(fault, name, act, cause, limit_s=limit_s, may_return=True)
            worker.start()
            if error is not None:
                report.attempt(fault, f"{name}: again", act_again, limit_s=60)


FAULTS: dict[str, Callable[[Report, Path], None]] = {
    "languages": languages,
    "standby": standby,
    "limit": limit,
    "pgbouncer": pgbouncer,
    "timeouts": timeouts,
    "objects": objects,
    "citus": citus,
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*FAULTS]))
def main(names: Sequence[str]) -> None:
    """Break what a store depends on, and show what each operation says."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if "FOLDLOG_POSTGRES_BIN" not in os.environ and debian:
        os.environ["FOLDLOG_POSTGRES_BIN"] = str(debian[-1].parent)
    report = Report()
    for name in names or FAULTS:
        folder = Path(tempfile.mkdtemp(prefix="foldlog-causes-"))
        folder.chmod(0o755)
        try:
            FAULTS[name](report, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{report.operations} operations, longest {report.longest_s:.2f} s, {len(report.wrong)} wrong"
    )
    for line in report.wrong:
        print(f"wrong: {line}")
    if report.wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
