"""Configurations of the documentation for nginx, on a machine that need not be the host they name."""

import re
import shutil
import subprocess
from pathlib import Path

PROGRAM = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def server_in(page: Path) -> str:
    """Return the only server block of a page."""
    (server,) = re.findall(r"^```nginx\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return server


def make_certificate(folder: Path) -> Path:
    """Make a certificate of ``logs.example`` and its key, and return the path of the certificate."""
    subprocess.run(
        (
            "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=logs.example"
            f" -addext subjectAltName=DNS:logs.example -keyout {folder}/key.pem"
            f" -out {folder}/certificate.pem"
        ).split(),
        check=True,
        capture_output=True,
    )
    return folder / "certificate.pem"


def write_configuration(folder: Path, server: str) -> list[str]:
    """Write a configuration with a server block, whose certificate is replaced by that of the folder.
    Return the command that runs nginx with it.
    """
    server = re.sub(r"/etc/ssl/\S+\.pem", str(folder / "certificate.pem"), server)
    server = re.sub(r"/etc/ssl/\S+\.key", str(folder / "key.pem"), server)
    folders = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in _TEMPORARY)
    file = folder / "nginx.conf"
    file.write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/errors; events {{}}\n"
        f"http {{ access_log off; {folders}\n{server}\n}}\n"
    )
    return [str(PROGRAM), "-c", str(file), "-e", str(folder / "errors")]
