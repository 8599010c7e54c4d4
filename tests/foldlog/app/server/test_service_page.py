"""The configuration of ``docs/how-to/service.md``."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[4] / "docs/how-to/service.md").read_text()
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")


@pytest.mark.skipif(NGINX is None, reason="apt-get install nginx")
def test_nginx_takes_the_configuration(tmp_path):
    server = re.search(r"^```nginx\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]
    key = tmp_path / "key.pem"
    certificate = tmp_path / "certificate.pem"
    made = f"openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=x -keyout {key} -out {certificate}"
    subprocess.run(made.split(), check=True, capture_output=True)
    server = re.sub(r"/etc/ssl/\S+\.pem", str(certificate), server)
    server = re.sub(r"/etc/ssl/\S+\.key", str(key), server)
    # Only root may bind the ports of the page.
    server = re.sub(r"listen (443|80)\b", r"listen 2\1", server)
    places = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file = tmp_path / "nginx.conf"
    file.write_text(
        f"pid {tmp_path}/pid; error_log {tmp_path}/errors; events {{}}\n"
        f"http {{ access_log off; {places}\n{server}\n}}\n"
    )
    tried = subprocess.run(
        [NGINX, "-t", "-c", file, "-e", tmp_path / "errors"], capture_output=True, text=True
    )
    assert tried.returncode == 0, tried.stderr
    assert "warn" not in tried.stderr
