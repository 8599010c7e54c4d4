"""A process that is killed in a tool, and the next one: the tool does not run twice, and the model
knows.
"""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import foldlog

ROOT = Path(__file__).parents[2]


def check_killed_in_a_tool(keeps: Any, folder: Path) -> None:
    """Raise ``AssertionError`` unless the call is on disk when its tool runs, the tool runs once,
    and the model is told that it may have run.
    """
    store, bank = f"sqlite:///{folder}/history.db", folder / "bank"
    program = [sys.executable, "-m", "tests.adapters.paying"]
    command = [*program, type(keeps).__module__, store, str(bank)]
    printed = folder / "printed"  # a file: what a killed process started may hold a pipe open
    with printed.open("w") as output:
        killed = subprocess.run(
            [*command, "kill"], cwd=ROOT, stdout=output, stderr=output, timeout=300
        )
    assert killed.returncode == -signal.SIGKILL, printed.read_text()
    written = ["on disk: [('pay', 'unknown', 1)]", "paid ann"]
    assert bank.read_text().splitlines() == written, printed.read_text()
    with printed.open("w") as output:
        again = subprocess.run(
            command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, timeout=300
        )
    assert again.returncode == 0, printed.read_text()
    assert bank.read_text().splitlines() == written, printed.read_text()
    sent = next(
        line
        for line in printed.read_text().replace("\\", "").splitlines()
        if "may have run, key" in line
    )
    with foldlog.open(store) as histories:
        (doubt,) = [each for name in histories for each in histories[name].effects("unknown")]
        assert f'pay {{"to": "ann"}} may have run, key {doubt.key}' in sent
        history = next(histories[name] for name in histories if histories[name].effects())
        history.settle(doubt.key, "paid, says the bank")
        assert history.effects("unknown") == ()


def check_killed_while_it_adds(keeps: Any, folder: Path) -> None:
    """Raise ``AssertionError`` unless a process that is killed at some moment has added a beginning
    of its things, with all that it had printed as added, and another process goes on.
    """
    url = f"sqlite:///{folder}/history.db"
    command = [
        sys.executable,
        "-u",
        "-m",
        "tests.adapters.contract",
        type(keeps).__module__,
        url,
        "a",
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as adding:
        assert adding.stdout is not None
        printed = [adding.stdout.readline().strip() for _ in range(7)]
        adding.kill()
        printed += adding.stdout.read().split()
    names = asyncio.run(_names(keeps, url))
    assert names == [f"a-{n}" for n in range(len(names))]
    assert len(names) - len(printed) in (0, 1), (names, printed)
    assert (
        subprocess.run(
            [*command[:-1], "b"], cwd=ROOT, stdout=subprocess.DEVNULL, timeout=300
        ).returncode
        == 0
    )
    assert asyncio.run(_names(keeps, url)) == [*names, *(f"b-{n}" for n in range(20))]


async def _names(keeps: Any, url: str) -> list[str]:
    async with keeps.opened(url) as store:
        names: list[str] = await keeps.names(store)
        return names
