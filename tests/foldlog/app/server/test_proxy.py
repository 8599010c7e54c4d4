"""The configuration of ``docs/how-to/proxy.md``, in a real nginx before a real ``foldlog
serve``.
"""

import http.client
import http.cookiejar
import json
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import foldlog
from tests.foldlog.app.server import nginx
from tests.ports import free_port
from tests.said import said
from tests.waiting import until

PAGE = Path(__file__).parents[4] / "docs/how-to/proxy.md"
TOKEN = "a token of enough length"


@pytest.mark.skipif(nginx.PROGRAM is None, reason="apt-get install nginx")
def test_the_page_is_served_through_nginx(tmp_path):
    behind = free_port()
    before = free_port()
    with foldlog.open(tmp_path / "s.db") as histories:
        histories["c1"].append(said("hi"))
    certificate = nginx.make_certificate(tmp_path)
    server = nginx.server_in(PAGE).replace("listen 443", f"listen 127.0.0.1:{before}")
    server = server.replace(":8765", f":{behind}")
    opener = urllib.request.build_opener(
        ToThisMachine(before, ssl.create_default_context(cafile=certificate)),
        urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()),
    )

    def get(path, **headers):
        request = urllib.request.Request(f"https://logs.example{path}", headers=headers)
        return opener.open(request, timeout=60)

    def is_up():
        with suppress(urllib.error.URLError, ConnectionError):
            return get("/healthz").read() == b"ok\n"
        return False

    serve = f"foldlog serve --db {tmp_path}/s.db --port {behind} --allow-host logs.example --token"
    serving = [sys.executable, "-m", *serve.split(), TOKEN]
    with running(serving), running(nginx.write_configuration(tmp_path, server)):
        until(is_up)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get("/api/conversations")
        assert b"foldlog_conversations 1" in get("/metrics", authorization=f"Bearer {TOKEN}").read()
        assert b"<title>foldlog" in get(f"/?token={TOKEN.replace(' ', '+')}").read()
        listed = json.load(get("/api/conversations"))  # by the cookie, from here on
        assert [row["conversation"] for row in listed["conversations"]] == ["c1"]
        with get("/api/follow?id=c1") as stream:
            lines = iter(stream.readline, b"")
            versions = (json.loads(line[5:])["version"] for line in lines if line[:4] == b"data")
            assert next(versions) == 1
            with foldlog.open(tmp_path / "s.db") as histories:
                histories["c1"].append(said("more"))
            assert next(versions) == 2


@contextmanager
def running(command):
    """Run a program during a block."""
    program = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        program.terminate()
        program.wait(60)


class ToThisMachine(urllib.request.HTTPSHandler):
    """Connects to a port of this machine, whatever the name of the host."""

    def __init__(self, port, context):
        super().__init__(context=context)
        self._port = port
        self._tls = context

    def https_open(self, request):
        return self.do_open(self._connection, request)

    def _connection(self, host, **options):
        connection = http.client.HTTPSConnection(host, context=self._tls, timeout=60)

        def connect_here(address, *arguments, **options):
            return socket.create_connection(("127.0.0.1", self._port), 60)

        connection._create_connection = connect_here
        return connection
