"""Stores, their processes, a clock, and the model beside them: what a step acts on."""

from __future__ import annotations

import gc
import random
import threading
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import foldlog._web.conversations
import foldlog.eventstore.log.importing
from foldlog import Histories
from foldlog._web.conversations import ServedConversations
from foldlog._web.pages import Pages
from foldlog.condensers import condenser_from_config
from foldlog.eventstore import KeyRing, Store
from foldlog.eventstore.log import origins
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.maintenance import copy, erase, rekey_steps, verify
from foldlog.eventstore.opening import recorder_and_settings
from foldlog.eventstore.recorders.base import Recorder
from tests.simulation import model
from tests.simulation.seam import Seam

__all__ = ["Finding", "Process", "Site", "World", "sped_up"]

NAMES = ("a", "b", "c", "d", "\u00e9/1", "f")
WORDS = ("alpha", "beta", "gamma")
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_RINGS = {letter: letter * 64 for letter in "ab"}
CONDENSER = condenser_from_config({"type": "digest", "max_size": 14, "keep_first": 1})


class Finding(Exception):
    """The store answered otherwise than the model. ``label`` names the kind of answer."""

    def __init__(self, label, detail):
        super().__init__(f"{label}: {detail}")
        self.label, self.detail = label, detail


class _InThisThread(Executor):
    """Runs what it is given at once, so that a copy or a check takes the same way each time."""

    def __init__(self, jobs, name=""): ...

    def submit(self, work, /, *given, **named):
        future = Future()
        try:
            future.set_result(work(*given, **named))
        except Exception as error:  # noqa: BLE001 - the future hands it on
            future.set_exception(error)
        return future


class _NoTime:
    """A ``time`` that stands still, and in which nobody waits."""

    sleep = staticmethod(lambda seconds: None)
    monotonic = staticmethod(lambda: 0.0)


class _Idle(Exception):
    """The thread of a server's figures has nothing to do."""


class _InNoThread:
    """A ``threading`` whose threads do not run: ``figures`` does their work, in the step that asks
    for it.
    """

    Lock = threading.Lock

    class Thread:
        def __init__(self, **given): ...

        start = join = __init__

    class Event(threading.Event):
        def wait(self, timeout=None):
            if not self.is_set():
                raise _Idle
            return True


def figures(served):
    with suppress(_Idle):
        served._count()


@contextmanager
def sped_up():
    """Nothing sleeps, frees objects or runs beside the steps, and long work takes transactions with
    few events.
    """
    settings = (
        (foldlog.eventstore.log.importing, "CHUNK", 5),
        (erase, "_CHUNK", 4),
        (origins, "_CHUNK", 5),
        (rekey_steps, "_ROWS_MAX", 5),
        *(
            (each, "time", _NoTime)
            for each in (foldlog.eventstore.log.importing, erase, rekey_steps)
        ),
        (copy, "ThreadPoolExecutor", _InThisThread),
        (verify, "ThreadPoolExecutor", _InThisThread),
        (foldlog._web.conversations, "threading", _InNoThread),
    )
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in settings]
    for owner, name, value in settings:
        setattr(owner, name, value)
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
        for owner, name, value in before:
            setattr(owner, name, value)


class Process:
    """One process that has a store open, with its own caches, and the histories that it holds."""

    def __init__(self, site):
        self.site = site
        recorder, settings = site.open()
        self.seam = Seam(recorder, shared=site.shared is not None)
        self.histories = Histories(
            Store(self.seam, settings, clock=site.world.clock), condenser=CONDENSER
        )
        self.held = {}
        self.seen = {}

    def history(self, name):
        """A handle that only reads, always the same one of one conversation; and that of an erased
        one before it.
        """
        tag, (seen, of) = self.site.model.living[name].tag, self.seen.get(name, (None, None))
        if seen is None or of != tag:
            self.seen[name] = (self.histories[name], tag)
        return self.seen[name][0], None if of == tag else seen

    @property
    def store(self):
        return self.histories.store

    @cached_property
    def pages(self):
        return Pages(self.store)

    @cached_property
    def served(self):
        return ServedConversations(self.store)

    def close(self):
        self.held.clear()
        self.seam.arm()
        if not self.seam.dead:
            self.histories.close()
        else:
            self.seam.close()


@dataclass(eq=False)
class Site:
    """A store with its processes, and the store of the model."""

    world: World
    name: str
    url: str = ""
    path: Path | None = None
    shared: Recorder | None = None
    model: model.Store = field(default_factory=model.Store)
    ring: tuple[str, ...] = ()
    compression: Any = None
    processes: list[Process] = field(default_factory=list)
    backups: list[tuple[Path, model.Store, tuple[str, ...]]] = field(default_factory=list)
    followed: dict[str, dict[int, tuple[int, Any]]] = field(default_factory=dict)
    forks: dict[str, tuple[str, int]] = field(default_factory=dict)
    position: int = 0
    gone: set[str] = field(default_factory=set)
    """Words that were erased or redacted in this store."""
    unfinished: set[tuple[str, int]] = field(default_factory=set)
    """Names and tags of conversations whose erasure was stopped."""

    def open(self):
        keys = KeyRing([_RINGS[letter] for letter in self.ring]) if self.ring else None
        if self.shared is not None:
            return self.shared, WriteSettings.chosen(self.compression, keys)
        return recorder_and_settings(self.url, "relaxed", self.compression, keys)

    def reopen(self, number=None):
        for each in range(len(self.processes)) if number is None else [number]:
            self.processes[each].close()
        for each in range(len(self.processes)) if number is None else [number]:
            self.processes[each] = Process(self)

    def bury(self, process):
        """A process was killed: another one takes its place."""
        self.reopen(self.processes.index(process))


class World:
    """Everything of one sequence of steps."""

    def __init__(self, seed, recorder, folder, database=None):
        draw = random.Random(seed)
        self.long = draw.choice((8, 16, 40))
        """A conversation of so many events is not appended to, but for what is left to do there."""
        self.recorder, self.folder, self.database = recorder, folder, database
        self.seed = seed
        self.now = 0
        self.tokens = 0
        self.sources = []
        self.heads = {}
        self.told = []
        self.sites = []
        for name in ("source", "copy"):
            site = Site(self, name)
            if recorder == "memory":
                site.shared = recorder_and_settings("memory:")[0]
            elif recorder == "sqlite":
                site.path = folder / f"{name}.db"
                site.url = f"sqlite:///{site.path}"
            else:
                assert database is not None
                site.url = database()
            site.ring = draw.choice(((), (), ("a",)))
            for _ in range(draw.choice((1, 2, 2, 3)) if name == "source" else 1):
                site.processes.append(Process(site))
            self.sites.append(site)

    def clock(self):
        return _BEGIN + timedelta(microseconds=self.now)

    @property
    def at(self):
        """The present time, as the model has it."""
        return self.now

    def at_of(self, moment):
        return (moment - _BEGIN) // timedelta(microseconds=1)

    def token(self):
        """A word that no event had before."""
        self.tokens += 1
        return f"word{self.tokens:06d}q"

    def close(self):
        for site in self.sites:
            for process in site.processes:
                process.close()
            if site.shared is not None:
                site.shared.close()
