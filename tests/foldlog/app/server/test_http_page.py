"""The commands of ``docs/HTTP.md`` do what the page says, against a real server."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port

PAGE = (Path(__file__).parents[4] / "docs/HTTP.md").read_text()


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_turn_of_an_agent_in_curl(tmp_path):
    (tokens,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "tokens.toml"
    path.touch(0o600)
    path.write_text(tokens)
    port = free_port()
    foldlog = f"'{sys.executable}' -m foldlog serve"
    script = commands.replace("foldlog serve", foldlog).replace("8765", str(port))
    ended = subprocess.run(
        ["sh", "-c", f"{script}\nkill %1 2>/dev/null || kill $!"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    answers = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    assert [line for line in answers if '"status"' in line] == [], ended.stderr
    message, prepared, reply, begun, outcome, followed = answers
    assert '"messages":[{"role":"user","content":"Pay Ann."}]' in prepared
    assert '"next":"run"' in begun
    assert '"content":"paid"' in outcome
    assert followed.count('"id":') >= 4
    assert '"version":1' in message
    assert '"version":2' in reply
