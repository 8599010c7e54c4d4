"""An agent of each runtime. Its tool pays; the agent is killed in the tool, and started again.

    python -m tests.adapters.paying MODULE STORE BANK [kill]

The module has the class of the contract with its SDK. The bank is a file with a line for each
payment. The tool first opens the store by itself, and writes whether its call is there. With
``kill``, it kills its process when it has paid. The last printed line is what the model was sent.
"""

import asyncio
import importlib
import json
import os
import signal
import sys

import foldlog

MODULE, STORE, BANK, *KILL = sys.argv[1:]
CALL = f"call-{os.getpid()}"


def write_down(line: str) -> None:
    with open(BANK, "a", encoding="utf-8") as bank:
        bank.write(f"{line}\n")


@foldlog.effect()
def pay(to: str) -> str:
    """Pay somebody.

    Args:
        to: who is paid
    """
    with foldlog.open(STORE) as histories:
        begun = [
            effect for name in histories for effect in histories[name].effects() if effect.attempts
        ]
    write_down(f"on disk: {[(each.call.tool, each.state, each.attempts) for each in begun]}")
    write_down(f"paid {to}")
    if KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {to}"


if __name__ == "__main__":
    keeps = importlib.import_module(MODULE).TestKeeps()
    sent = asyncio.run(keeps.run_paying(STORE, pay, CALL))
    print(json.dumps(sent, default=repr))  # noqa: T201 - what its caller reads
