"""Kill a program while its model writes a reply."""

import subprocess
import sys

from tests.adapters.contract import ROOT


def killed_in_reply(program, url, pieces=3):
    """Run a program that prints each piece of a reply when it gets it, and kill it after some
    pieces. Return what it printed.
    """
    command = [sys.executable, "-c", program, url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as worker:
        printed = [worker.stdout.readline() for _ in range(pieces)]
        worker.kill()
        printed.append(worker.stdout.read())
    text = "".join("".join(printed).splitlines())
    assert text, "the program ended before its reply began"
    return text
