"""Run worlds one after another, and find the shortest sequence of steps that still fails."""

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
from tests.simulation.checks import check_everything
from tests.simulation.steps import Steps
from tests.simulation.table import Step, draw_steps
from tests.simulation.world import Finding, World, sped_up

STEPS = 300
"""The steps of a world."""
_COLLECT_EVERY = 50
"""After so many worlds unreachable objects are freed."""
_REPORT_EVERY_S = 60


class Failure(NamedTuple):
    """A failure: its world, the steps up to it with a trace of them, and what differs."""

    seed: str
    recorder: str
    steps: Sequence[Step]
    label: str
    detail: str
    trace: Sequence[str]


def play(seed, recorder, steps, database=None):
    """Run these steps in a new world; return the first failure."""
    folder = Path(tempfile.mkdtemp(prefix="foldlog-simulation-", dir=in_memory()))
    world = World(seed, recorder, folder, database)
    count = 0
    try:
        runner = Steps(world)
        for step in steps:
            count += 1
            runner.run_step(step)
        rng = random.Random(f"end {seed}")
        for site in world.sites:
            if rng.random() < 0.1:
                world.trace.append(f"all of {site.name}")
                check_everything(site.processes[-1], rng)
        return None
    except Finding as finding:
        label = finding.label
        detail = finding.detail
    except Exception as error:  # noqa: BLE001 - an error that the model did not expect is a finding
        where = traceback.extract_tb(error.__traceback__)[-1]
        label = f"{type(error).__name__} in {Path(where.filename).name}:{where.name}"
        detail = traceback.format_exc()
    finally:
        world.close()
        shutil.rmtree(folder, ignore_errors=True)
    return Failure(seed, recorder, steps[:count], label, detail, world.trace)


def replay(seed, recorder, database=None):
    """Run the steps of one world again."""
    return play(seed, recorder, draw_steps(seed, STEPS), database)


def shorten(failure, patience_s=20, database=None):
    """Leave out steps, first many at once, as long as a failure with the same label remains."""
    until = time.process_time() + patience_s
    size = max(1, len(failure.steps) // 2)
    while size:
        start = 0
        is_shorter = False
        while start < len(failure.steps):
            if time.process_time() > until:
                return failure
            steps = [*failure.steps[:start], *failure.steps[start + size :]]
            other = play(failure.seed, failure.recorder, steps, database)
            if other is not None and other.label == failure.label:
                failure = other
                is_shorter = True
            else:
                start += size
        if not is_shorter or size > 1:
            size //= 2
    return failure


def run_worlds(
    seed, steps, seconds, recorder, database=None, *, first=0, every=1, report=lambda line: None
):
    """Run so many steps, in one world after another, until a world fails: the worlds ``first``,
    ``first + every`` and so on. Return the number of steps and the failure. ``report`` is called
    with a line each minute.
    """
    count = 0
    worlds = 0
    failure = None
    began = reported = time.monotonic()
    cpu_began = time.process_time()
    with sped_up():
        while count < steps and time.monotonic() < began + seconds and failure is None:
            name = f"{seed}/{first + worlds * every}"
            sequence = draw_steps(name, min(STEPS, steps - count))
            failure = play(name, recorder, sequence, database)
            count += len(sequence) if failure is None else len(failure.steps)
            worlds += 1
            if worlds % _COLLECT_EVERY == 0:
                gc.collect()
            if time.monotonic() > reported + _REPORT_EVERY_S:
                reported = time.monotonic()
                cpu = time.process_time() - cpu_began
                report(
                    f"{time.strftime('%H:%M:%S')} {count:,} steps in {reported - began:.0f} s,"
                    f" {count / cpu:,.0f} a second of processor time; next is world"
                    f" {seed}/{first + worlds * every}"
                )
    return count, failure
