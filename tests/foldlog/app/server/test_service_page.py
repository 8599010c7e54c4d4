"""nginx takes the configuration of ``docs/how-to/service.md``."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.foldlog.app.server import nginx

PAGE = Path(__file__).parents[4] / "docs/how-to/service.md"


@pytest.mark.skipif(nginx.PROGRAM is None, reason="apt-get install nginx")
def test_nginx_takes_the_configuration(tmp_path):
    nginx.make_certificate(tmp_path)
    # Only root may bind the ports of the page.
    server = re.sub(r"listen (443|80)\b", r"listen 2\1", nginx.server_in(PAGE))
    command = [*nginx.write_configuration(tmp_path, server), "-t"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stderr
    assert "warn" not in tried.stderr
