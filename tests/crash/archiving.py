"""A process that archives, restores and vacuums until it is killed. It prints a line when it begins.

python -m tests.crash.archiving URL TO
"""

import sys
from datetime import timedelta

import foldlog

NAMES = ("a", "b", "c")


def run(url, to, rounds=1_000):
    with foldlog.open(url) as histories:
        maintenance = histories.maintenance
        print("begun", flush=True)
        for number in range(rounds):
            maintenance.archive(timedelta(), to)
            name = NAMES[number % len(NAMES)]
            histories[name].append({"role": "user", "content": f"round {number}"})
            list(histories.store.events(NAMES[number % 2]))  # restores the conversation
            if number % 3 == 2:
                maintenance.vacuum()


if __name__ == "__main__":
    run(*sys.argv[1:])
