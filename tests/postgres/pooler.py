"""pgbouncer in transaction mode before a server, for runs with ``$FOLDLOG_PGBOUNCER`` (the path of
its program). From version 1.21 on it is used with prepared statements.
"""

import re
import shutil
import subprocess

from tests.ports import free_port, listens
from tests.postgres.servers import UNPRIVILEGED, Address, Server
from tests.waiting import until


class Pooler:
    """Gives every transaction (or session, or statement) another of a few connections to
    ``server``.
    """

    def __init__(self, program: str, server: Server, pool_mode: str = "transaction") -> None:
        folder = server.folder / f"pooler-{pool_mode}"
        self.folder = folder
        folder.mkdir()
        self.port = free_port()
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": pool_mode,
            "default_pool_size": 20,
            "max_client_conn": 500,
            "server_round_robin": 1,
            "server_reset_query_always": 0,
            "logfile": folder / "log",
        }
        version = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=True
        ).stdout
        numbers = re.search(r"(\d+)\.(\d+)", version)
        assert numbers is not None, version
        self.mode = "prepared" if (int(numbers[1]), int(numbers[2])) >= (1, 21) else "transaction"
        if self.mode == "prepared":
            settings["max_prepared_statements"] = 1_000
        lines = [f"{name} = {value}" for name, value in settings.items()]
        target = f"* = host=127.0.0.1 port={server.port} user=postgres"
        configuration = folder / "pgbouncer.ini"
        configuration.write_text("\n".join(["[databases]", target, "[pgbouncer]", *lines, ""]))
        if UNPRIVILEGED:
            for path in (folder, configuration):
                shutil.chown(path, "nobody", "nogroup")
        self._process = subprocess.Popen([program, "-q", configuration], cwd="/", **UNPRIVILEGED)
        try:
            until(lambda: listens(self.port))
        except BaseException:
            self.stop()
            raise

    def url(self, **options: str) -> str:
        address = Address(f"postgresql://postgres@127.0.0.1:{self.port}/postgres")
        return address.url(**options, pooler=self.mode)

    def stop(self) -> None:
        self._process.kill()  # from 1.23 on it would wait for its clients
        self._process.wait()
