"""The configuration of ``docs/how-to/proxy.md``, in a real nginx before a real ``foldlog
serve``.
"""

import http.client
import http.cookiejar
import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import foldlog
from tests.said import said

CONFIGURATION = re.search(
    r"^```nginx\n(.*?)^```",
    (Path(__file__).parents[4] / "docs/how-to/proxy.md").read_text(),
    re.MULTILINE | re.DOTALL,
)[1]
TOKEN = "a token of enough length"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.skipif(NGINX is None, reason="apt-get install nginx")
def test_the_page_is_served_through_nginx(tmp_path):
    behind = free_port()
    before = free_port()
    with foldlog.open(tmp_path / "s.db") as histories:
        histories["c1"].append(said("hi"))
    key = tmp_path / "key.pem"
    certificate = tmp_path / "certificate.pem"
    made = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=logs.example"
        f" -addext subjectAltName=DNS:logs.example -keyout {key} -out {certificate}"
    )
    subprocess.run(made.split(), check=True, capture_output=True)
    server = CONFIGURATION.replace("listen 443", f"listen 127.0.0.1:{before}").replace(
        ":8765", f":{behind}"
    )
    server = re.sub(r"/etc/ssl/\S+\.pem", str(certificate), server)
    server = re.sub(r"/etc/ssl/\S+\.key", str(key), server)
    places = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/errors; events {{}}\n"
        f"http {{ access_log off; {places}\n{server}\n}}\n"
    )
    opener = urllib.request.build_opener(
        ToThisMachine(before, ssl.create_default_context(cafile=certificate)),
        urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()),
    )

    def get(path, **headers):
        request = urllib.request.Request(f"https://logs.example{path}", headers=headers)
        return opener.open(request, timeout=10)

    serve = f"foldlog serve --db {tmp_path}/s.db --port {behind} --allow-host logs.example --token"
    serving = [sys.executable, "-m", *serve.split(), TOKEN]
    programs = [
        subprocess.Popen(serving, stdout=subprocess.DEVNULL),
        subprocess.Popen([NGINX, "-c", tmp_path / "nginx.conf", "-e", tmp_path / "errors"]),
    ]
    try:
        for _ in range(600):
            try:
                assert get("/healthz").read() == b"ok\n"
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
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
    finally:
        for program in programs:
            program.terminate()
        for program in programs:
            program.wait(20)


class ToThisMachine(urllib.request.HTTPSHandler):
    """Connects to a port of this machine, whatever the name of the host."""

    def __init__(self, port, context):
        super().__init__(context=context)
        self._port = port
        self._tls = context

    def https_open(self, request):
        return self.do_open(self._connection, request)

    def _connection(self, host, **how):
        connection = http.client.HTTPSConnection(host, context=self._tls, timeout=10)
        connection._create_connection = lambda address, *arguments, **more: (
            socket.create_connection(("127.0.0.1", self._port), 10)
        )
        return connection
