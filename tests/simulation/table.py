"""Which steps a world takes: the table ``steps.txt``, and draws from it."""

import random
from pathlib import Path

Step = tuple[str, int]
"""A kind of step, and the seed of all that the step draws."""

_ROWS = [
    line.replace("-", "0").split()
    for line in Path(__file__).with_name("steps.txt").read_text().splitlines()[3:]
]
_WEIGHTS = {kind: float(weight) for kind, weight, *_ in _ROWS}
FAULTY = {kind for kind, _, fault, *_ in _ROWS if fault == "yes"}
MEETS = {kind: float(meets) for kind, _, _, meets, *_ in _ROWS}
BETWEEN = [kind for kind, *_, times, _ in _ROWS for _ in range(int(times))]
GROWING = {kind for kind, *_, grows in _ROWS if grows == "yes"}


def crowd():
    """Let another process take a step within each step that allows it, most often a redaction or an
    erasure.
    """
    MEETS.update((kind, 1.0) for kind, meets in MEETS.items() if meets)
    BETWEEN.extend(["redact"] * 8 + ["erase"] * 4 + ["fork"] * 2)


def draw_steps(seed, count):
    rng = random.Random(f"steps {seed}")
    kinds = rng.choices([*_WEIGHTS], [*_WEIGHTS.values()], k=count)
    return [(kind, rng.randrange(2**48)) for kind in kinds]
