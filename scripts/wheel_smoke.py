"""Uses an installed foldlog as a newcomer does. ``scripts/test-wheel`` runs this file."""

import asyncio
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import foldlog
import foldlog.aio
from foldlog import Condensation, Message

assert foldlog.__version__ == version("foldlog")
assert Path(foldlog.__file__).is_relative_to(sys.prefix), (
    f"{foldlog.__file__} was imported, which is not in the environment {sys.prefix}"
)

with foldlog.open("history.db", condenser={"type": "digest", "max_size": 12}) as histories:
    history = histories["c1"]
    history.append(Message(source="user", content="Count the files."))
    for number in range(10):
        call = {"id": f"k{number}", "function": {"name": "run", "arguments": '{"command": "ls"}'}}
        history.append_reply({"role": "assistant", "content": None, "tool_calls": [call]})
        history.append_tool_result(f"k{number}", f"{number} files")
    assert isinstance(history.step(), Condensation)
    assert len(history.prepare()) < len(history)
    assert history.why(2).reason


async def main() -> None:
    async with foldlog.aio.open("history.db") as histories:
        await histories["c1"].append(Message(source="agent", content="Nine."))
        assert len((await histories["c1"].view()).to_messages()) > 1


asyncio.run(main())

# An application may have packages of its own by the names of ours.
for name in ("condensers", "eventstore", "projections"):
    Path(name).mkdir()
    Path(name, "__init__.py").write_text("OWN = True\n")
own = (
    "import condensers, eventstore, projections\nassert condensers.OWN and eventstore.OWN and"
    " projections.OWN\n"
)
use = "import foldlog\nwith foldlog.open('history.db') as histories:\n    histories['c1'].step()"
subprocess.run([sys.executable, "-c", own + use], check=True)

for command in (
    ["--version"],
    ["demo"],
    ["list", "--db", "history.db"],
    ["view", "c1", "--db", "history.db"],
    ["store", "verify", "--db", "history.db"],
):
    subprocess.run(["foldlog", *command], check=True, stdout=subprocess.DEVNULL)
print("foldlog", foldlog.__version__, "works with Python", sys.version.split()[0])
