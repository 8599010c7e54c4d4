"""Print digests of real histories, to be judged by eye against the rubric in
docs/internals/digest.md.

    python -m tests.condensers.digests FOLDER... [--of 20] [--length 11000]

Histories are taken from each folder in turn, those with the smallest hash of their name first, so
that two runs judge the same ones. The last ten events of a long history are left out, as a
condenser leaves out a tail.
"""

import argparse
import sys
from hashlib import sha256
from itertools import chain, islice, zip_longest
from pathlib import Path

from foldlog.condensers.strategies.digest import Digest
from foldlog.condensers.strategies.digest.layout import text_of
from foldlog.eventstore.events import Event, SystemMessage
from tests.imported import imported

LENGTHS = range(25, 2_000)
TAIL = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--of", type=int, default=20)
    parser.add_argument("--length", type=int, default=11_000)
    options = parser.parse_args()
    in_turn = chain.from_iterable(zip_longest(*map(_histories, options.folders)))
    for number, (name, events) in enumerate(islice(filter(None, in_turn), options.of), start=1):
        digest = Digest.of(events[:-TAIL] if len(events) > 4 * TAIL else events)
        sys.stdout.write(
            f"{'=' * 20} {number}: {name}, {len(events)}"
            f" events\n\n{text_of(digest, options.length)}\n\n"
        )


def _histories(folder: str) -> list[tuple[str, list[Event]]]:
    pairs = []
    for history in imported(Path(folder)):
        events = [
            event
            for event in history.events()
            if event.shown and not isinstance(event, SystemMessage)
        ]
        if len(events) in LENGTHS:
            pairs.append((history.id, events))
    return sorted(pairs, key=lambda each: sha256(each[0].encode()).digest())


if __name__ == "__main__":
    main()
