"""Print digests of real histories, to be judged by eye against the rules below.

    python -m tests.condensers.digests FOLDER... [--of 20] [--length 11000]

Histories are taken from each folder in turn, those with the smallest hash of their name first, so
that two runs judge the same ones. The last ten events of a long history are left out, as a
condenser leaves out a tail.

A reviewer checks each digest against these rules:

1. Asked. Each line under Asked by the user is what a person asked, in that person's words.
2. Newest. The newest request is complete, or shows its beginning, its end and the number of omitted
   characters.
3. Older. Each older request still says what was asked.
4. Said. Each line under Said by the agent is a statement of the agent.
5. Errors. Each line under Errors without a later success names an error of a step that did not
   succeed later. A prompt of the shell, a note about the end of a command, or the frame around an
   output is not an error.
6. Files. Each file under Files changed was changed, and each file under Read, searched and printed
   was read.
7. Commands. A reader learns which commands ran. The digest also says how each command ended, if the
   history says so.
8. Bounds. The digest is not longer than its limit, and says what it omitted.
9. Use. Someone who knows only this digest knows what the task is and how far the work has come.
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
