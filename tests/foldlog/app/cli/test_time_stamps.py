"""Time stamps of checkpoints, signed by OpenSSL as the authority on this machine."""

import shutil
import subprocess
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import foldlog as api
from tests.said import said
from tests.waiting import in_thread

pytest.importorskip("rfc3161_client")

CONFIG = """
[req]
distinguished_name = name
[name]
[tsa]
extendedKeyUsage = critical, timeStamping
[tsa_config]
serial = serial
signer_digest = sha256
default_policy = 1.2.3.4
digests = sha256
ess_cert_id_alg = sha256
[refusing]
serial = serial
digests = sha512
default_policy = 1.2.3.4
signer_digest = sha256
"""


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an authority's key and certificates, and with certificates of a stranger."""
    if shutil.which("openssl") is None:
        pytest.skip("OpenSSL is not installed, and signs the time stamps")
    folder = tmp_path_factory.mktemp("authority")
    (folder / "config").write_text(CONFIG)
    new = ("req", "-config", "config", "-x509", "-newkey", "ec", "-pkeyopt")
    curve = ("ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    for name in ("ca", "stranger"):
        openssl(
            folder, *new, *curve, "-subj", f"/CN={name}", "-keyout", f"{name}.key",
            "-out", f"{name}.pem",
        )  # fmt: skip
    openssl(
        folder, *new, *curve, "-subj", "/CN=clock", "-keyout", "tsa.key", "-out", "tsa.pem",
        "-extensions", "tsa", "-CA", "ca.pem", "-CAkey", "ca.key",
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def url(folder):
    class Authority(BaseHTTPRequestHandler):
        def do_POST(self):
            (folder / "query").write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/stale":
                body = (folder / "reply").read_bytes()
            elif self.path == "/no":
                body = b"no"
            else:
                openssl(
                    folder, "ts", "-reply", "-queryfile", "query", "-out", "reply",
                    "-signer", "tsa.pem", "-inkey", "tsa.key", "-config", "config",
                    "-section", "refusing" if self.path == "/refuse" else "tsa_config",
                )  # fmt: skip
                body = (folder / "reply").read_bytes()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *values):
            pass

    with (
        HTTPServer(("127.0.0.1", 0), Authority) as server,
        in_thread(server.serve_forever, server.shutdown),
    ):
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def stamp(foldlog, tmp_path):
    """A function that asks a server for a time stamp of the checkpoint of a store."""
    with api.open("foldlog.db") as histories:
        histories["a"].append(said("one"))
        (tmp_path / "checkpoint.txt").write_text(str(histories.maintenance.checkpoint()))
    return lambda url: foldlog(f"store checkpoint --in checkpoint.txt --time-stamp {url}")


VERIFY = "store verify --against checkpoint.txt"


def test_a_stamp_says_when_the_checkpoint_existed(stamp, foldlog, tmp_path, folder, url):
    ran = stamp(url)
    assert (ran.status, "checkpoint.txt.tsr" in ran.err) == (0, True)
    verified = foldlog(VERIFY, "--ca", folder / "ca.pem")
    assert (verified.status, "The checkpoint existed at 20" in verified.out) == (0, True)
    stamped_at = foldlog(f"{VERIFY} --json --ca", folder / "ca.pem").document["stamped_at"]
    assert datetime.fromisoformat(stamped_at).year > 2025
    assert foldlog(f"{VERIFY} --json").document["stamped_at"] is None
    assert "was not checked; add --ca" in foldlog(VERIFY).err
    openssl(
        folder, "ts", "-verify", "-data", tmp_path / "checkpoint.txt",
        "-in", tmp_path / "checkpoint.txt.tsr", "-CAfile", "ca.pem",
    )  # fmt: skip
    assert "an older time stamp proves more" in stamp(url).err


def test_a_false_stamp_is_refused(stamp, foldlog, tmp_path, folder, url):
    assert "cannot be read" in foldlog(VERIFY, "--ca", folder / "ca.pem").err
    stamp(url)
    stranger = foldlog(VERIFY, "--ca", folder / "stranger.pem")
    assert (stranger.status, "not a time stamp of the file" in stranger.err) == (2, True)
    with (tmp_path / "checkpoint.txt").open("a") as text:
        text.write("\n")
    changed = foldlog(VERIFY, "--ca", folder / "ca.pem")
    assert (changed.status, "Mismatch between messages" in changed.err) == (2, True)


@pytest.mark.parametrize(
    "path, problem",
    [
        ("/stale", "answered another request"),
        ("/no", "is not a time stamp"),
        (
            "/refuse",
            "foldlog: the time stamping authority refused the request: Message digest algorithm is"
            " not supported",
        ),
    ],
)
def test_a_false_answer_is_not_stored(stamp, tmp_path, url, path, problem):
    stamp(url)
    (tmp_path / "checkpoint.txt.tsr").unlink()
    refused = stamp(url + path)
    assert (refused.status, problem in refused.err) == (2, True)
    assert not (tmp_path / "checkpoint.txt.tsr").exists()


def test_a_server_that_is_not_there_is_named(stamp):
    assert "http://127.0.0.1:1 cannot be asked" in stamp("http://127.0.0.1:1").err
