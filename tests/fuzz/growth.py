"""Let logs grow, and compare what comes of it with one import.

    python -m tests.fuzz.growth [--places 20000] [--seed 1] [--format pi] [--records 300]

Prints a table of three tests, each with its number of wrong places. The exit status is 1 if a place
is wrong.

damaged   A decoder continues from its state at places of damaged logs: lines are repeated,
          exchanged, missing, or have the values of earlier lines.
real      A decoder continues at each record of each real log in the shared data.
imports   A store imports a real log, or a long example log, after each record, with a View each
          time. At some records, another store imports the same log once. Events, heads, Views,
          figures, attributes and bytes must be equal.
"""

import argparse
import contextlib
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from foldlog import Histories
from foldlog.formats import resuming
from tests.beside import SAMPLES
from tests.foldlog.formats.test_resuming import (
    NAMES,
    REAL_LOGS,
    Growth,
    damaged,
    long_logs,
    rounds,
)
from tests.foldlog.imports.imports import imported, new_store
from tests.foldlog.imports.test_growth import LOGS
from tests.foldlog.records import records_of
from tests.fuzz.growing_files import outcome_of

_WINDOWS = (2, 7, 16, 40)
_PLACES_OF_A_LOG = 40
_COMPARED = 6
"""The number of records of a log after which the stores are compared."""
_RECORDS_MAX = 300


def real_logs():
    for log in REAL_LOGS:
        name, path = log.values
        if name:
            yield name, path


def values_in(path):
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def outcome_at(growth, number):
    try:
        return growth.grown_at(number)
    except AssertionError as error:
        print(f"wrong at record {number}: {error}"[:300], file=sys.stderr)
        return "wrong"


def damaged_logs(name, places, chance):
    """Test ``places`` places of damaged logs of a format."""
    logs = [*long_logs(name)]
    logs += [[*values_in(path)] for of, path in real_logs() if of == name]
    outcomes = Counter()
    while outcomes.total() < places:
        resuming.WINDOW_MAX = chance.choice(_WINDOWS)
        log = chance.choice(logs)
        first = chance.randrange(max(len(log) - _RECORDS_MAX, 1))
        records = damaged(log[first : first + _RECORDS_MAX], chance)
        if len(records) > 1:
            growth = Growth(name, records)
            at_most = min(_PLACES_OF_A_LOG, len(records) - 1, places - outcomes.total())
            numbers = chance.sample(range(1, len(records)), at_most)
            outcomes.update(outcome_at(growth, number) for number in numbers)
    return outcomes


def real_places(name, windows):
    """Test each record of the real logs of a format."""
    outcomes = Counter()
    for window in windows:
        resuming.WINDOW_MAX = window
        for of, path in real_logs():
            if of == name:
                growth = Growth(name, [*values_in(path)])
                numbers = range(1, len(growth.records))
                outcomes.update(outcome_at(growth, number) for number in numbers)
    return outcomes


def one_log(name, lines, chance):
    """Import a log after each record, and compare the store with others after some records."""
    outcomes = Counter()
    compared = {len(lines), *chance.sample(range(1, len(lines) + 1), min(_COMPARED, len(lines)))}
    with tempfile.TemporaryDirectory() as folder, new_store() as store:
        path = Path(folder) / "log.jsonl"
        for number, line in enumerate(lines, 1):
            with path.open("ab") as file:
                file.write(line + b"\n")
            try:
                conversation = imported(store, path, name).conversation
            except AssertionError:
                outcomes["no history yet"] += 1
                continue
            Histories(store)[conversation].view()
            outcomes["imported"] += 1
            if number in compared:
                with new_store() as target:
                    once = imported(target, path, name).conversation
                    outcome = outcome_of(store, conversation, target, once)
                outcomes[outcome] += 1
                if outcome == "wrong":
                    print(f"wrong: {name}, {number} records of {len(lines)}", file=sys.stderr)
    return outcomes


def imports_of(name, chance, records):
    outcomes = Counter()
    logs = [path.read_bytes().splitlines() for of, path in real_logs() if of == name]
    logs.append([json.dumps(record).encode() for record in rounds(name, records_of(name))])
    for lines in logs:
        outcomes += one_log(name, lines[:records], chance)
    return outcomes


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--places", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--test", choices=("damaged", "real", "imports"))
    parser.add_argument("--format", choices=NAMES)
    parser.add_argument("--records", type=int, default=_RECORDS_MAX, help="of a log to import")
    arguments = parser.parse_args()
    if not any(real_logs()):
        print(f"{SAMPLES} has no logs, so only example logs are tested")
    window = resuming.WINDOW_MAX
    total = Counter()
    for test in ("damaged", "real", "imports"):
        if arguments.test not in (None, test):
            continue
        for name in (arguments.format,) if arguments.format else NAMES:
            chance = random.Random(f"{arguments.seed} {name}")
            if test == "damaged":
                outcomes = damaged_logs(name, -(-arguments.places // len(NAMES)), chance)
            elif test == "real":
                outcomes = real_places(name, _WINDOWS)
            else:
                resuming.WINDOW_MAX = window
                outcomes = (
                    imports_of(name, chance, arguments.records) if name in LOGS else Counter()
                )
            if outcomes:
                outcomes["wrong"] += 0
                counts = ", ".join(f"{count:,} {what}" for what, count in sorted(outcomes.items()))
                print(f"| {test} | {name} | {counts} |", flush=True)
            total += outcomes
    print(f"{total['wrong']} wrong")
    sys.exit(total["wrong"] > 0)


if __name__ == "__main__":
    main()
