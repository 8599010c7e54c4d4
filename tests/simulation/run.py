"""Worlds one after another, and the shortest sequence of steps that shows what failed."""

from __future__ import annotations

import gc
import random
import shutil
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.in_memory import in_memory
from tests.simulation.checks import everything
from tests.simulation.steps import Step, Steps, drawn
from tests.simulation.world import Finding, World, sped_up

__all__ = ["STEPS", "Failure", "again", "play", "shortened", "worlds"]

STEPS = 300
"""The steps of a world."""
_COLLECTED = 50
"""After so many worlds unreachable objects are freed."""
_TOLD_S = 60


class Failure(NamedTuple):
    """What failed, in which world, and the steps up to there with what each did."""

    seed: str
    recorder: str
    steps: Sequence[Step]
    label: str
    detail: str
    told: Sequence[str]


def play(seed, recorder, steps, database=None):
    """Take these steps in a new world; return what failed first."""
    folder = Path(tempfile.mkdtemp(prefix="foldlog-simulation-", dir=in_memory()))
    world = World(seed, recorder, folder, database)
    done = 0
    try:
        taking = Steps(world)
        for step in steps:
            done += 1
            taking.take(step)
        rng = random.Random(f"end {seed}")
        for site in world.sites:
            if rng.random() < 0.2:
                world.told.append(f"all of {site.name}")
                everything(site.processes[-1], rng)
    except Finding as finding:
        return Failure(seed, recorder, steps[:done], finding.label, finding.detail, world.told)
    except Exception as error:  # noqa: BLE001 - an error that the model did not expect is a finding
        where = traceback.extract_tb(error.__traceback__)[-1]
        label = f"{type(error).__name__} in {Path(where.filename).name}:{where.name}"
        return Failure(seed, recorder, steps[:done], label, traceback.format_exc(), world.told)
    finally:
        world.close()
        shutil.rmtree(folder, ignore_errors=True)
    return None


def again(seed, recorder, database=None):
    return play(seed, recorder, drawn(seed, STEPS), database)


def shortened(failure, patience_s=20, database=None):
    """Leave out steps as long as the same kind of answer fails."""
    until = time.process_time() + patience_s
    best, size = failure, max(1, len(failure.steps) // 2)
    while size:
        start, found = 0, False
        while start < len(best.steps):
            if time.process_time() > until:
                return best
            fewer = [*best.steps[:start], *best.steps[start + size :]]
            failed = play(best.seed, best.recorder, fewer, database)
            if failed is not None and failed.label == failure.label:
                best, found = failed, True
            else:
                start += size
        if not found or size > 1:
            size //= 2
    return best


def worlds(seed, steps, seconds, recorder, database=None, *, first=0, tell=lambda line: None):
    """Take so many steps, in one world after another from the ``first`` on, until one fails. Return
    how many were taken, and what failed. How far it came is told each minute.
    """
    taken, number = 0, first
    failed = None
    began = told = time.monotonic()
    ran = time.process_time()
    with sped_up():
        while taken < steps and time.monotonic() < began + seconds and failed is None:
            name = f"{seed}/{number}"
            sequence = drawn(name, min(STEPS, steps - taken))
            failed = play(name, recorder, sequence, database)
            taken += len(sequence) if failed is None else len(failed.steps)
            number += 1
            if number % _COLLECTED == 0:
                gc.collect()
            if time.monotonic() > told + _TOLD_S:
                told, cpu = time.monotonic(), time.process_time() - ran
                tell(
                    f"{time.strftime('%H:%M:%S')} {taken:,} steps in {told - began:.0f} s,"
                    f" {taken / cpu:,.0f} a second of processor time; next is world {seed}/{number}"
                )
    return taken, failed
