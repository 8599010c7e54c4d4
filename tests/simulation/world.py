"""What a step acts on: two stores, their processes, a clock, and a model of each store."""

from __future__ import annotations

import gc
import random
import threading
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import foldlog._app.server.conversations
import foldlog.eventstore.log.importing
from foldlog import Histories
from foldlog._app.server.conversations import ServedConversations
from foldlog._app.server.pages import Pages
from foldlog.condensers import condenser_from_config
from foldlog.eventstore import KeyRing, Store
from foldlog.eventstore.log import origins
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.maintenance import copy, erase, rekey_steps, verify
from foldlog.eventstore.opening import recorder_and_settings
from foldlog.eventstore.recorders.base import Recorder
from tests.simulation import model
from tests.simulation.seam import Seam

NAMES = ("a", "b", "c", "d", "\u00e9/1", "f")
WORDS = ("alpha", "beta", "gamma")
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_KEYS = {letter: letter * 64 for letter in "ab"}
CONDENSER = condenser_from_config({"type": "digest", "max_size": 14, "keep_first": 1})


class Finding(Exception):
    """The product and the model differ. ``label`` names the answer in which they differ."""

    def __init__(self, label, detail):
        super().__init__(f"{label}: {detail}")
        self.label = label
        self.detail = detail


class _InThisThread(Executor):
    """Runs each job at once, so that a copy or a check takes the same steps each time."""

    def __init__(self, jobs, name=""): ...

    def submit(self, work, /, *arguments, **options):
        future = Future()
        try:
            future.set_result(work(*arguments, **options))
        except Exception as error:  # noqa: BLE001 - the future hands it on
            future.set_exception(error)
        return future


class _NoTime:
    """Stands for the module ``time``: the clock stands still, and nobody waits."""

    sleep = staticmethod(lambda seconds: None)
    monotonic = staticmethod(lambda: 0.0)


class _Idle(Exception):
    """The thread of a server's figures has nothing to do."""


class _InNoThread:
    """Stands for the module ``threading``: no thread runs. ``count_figures`` does the work of the
    thread, within the step that reads the figures.
    """

    Lock = threading.Lock

    class Thread:
        def __init__(self, **options): ...

        def start(self): ...

        def join(self): ...

    class Event(threading.Event):
        def wait(self, timeout=None):
            if not self.is_set():
                raise _Idle
            return True


def count_figures(served):
    """Do the work of a server's thread until it has nothing to do."""
    with suppress(_Idle):
        served._count()


@contextmanager
def sped_up():
    """Let nothing sleep, free objects or run in another thread, and let long work take transactions
    of few events.
    """
    settings = (
        (foldlog.eventstore.log.importing, "CHUNK", 5),
        (erase, "_CHUNK", 4),
        (origins, "_CHUNK", 5),
        (rekey_steps, "_ROWS_MAX", 5),
        (foldlog.eventstore.log.importing, "time", _NoTime),
        (erase, "time", _NoTime),
        (rekey_steps, "time", _NoTime),
        (copy, "ThreadPoolExecutor", _InThisThread),
        (verify, "ThreadPoolExecutor", _InThisThread),
        (foldlog._app.server.conversations, "threading", _InNoThread),
    )
    with ExitStack() as patches:
        for setting in settings:
            patches.enter_context(mock.patch.object(*setting))
        gc.freeze()
        patches.callback(gc.unfreeze)
        gc.disable()
        patches.callback(gc.enable)
        yield


class Process:
    """One process that has a store open, with its own caches and histories."""

    def __init__(self, site):
        self.site = site
        recorder, settings = site.open()
        self.seam = Seam(recorder, shared=site.shared is not None)
        self.histories = Histories(
            Store(self.seam, settings, clock=site.world.clock), condenser=CONDENSER
        )
        self.writers = {}
        """Histories for appends, each with the tag of the conversation that it met first."""
        self._readers = {}

    def reader(self, name):
        """Return the history that reads a conversation, always the same one. Return with it the
        former history, if the conversation before was erased since the last call.
        """
        tag = self.site.model.living[name].tag
        former, former_tag = self._readers.get(name, (None, None))
        if former_tag == tag:
            return former, None
        self._readers[name] = (self.histories[name], tag)
        return self._readers[name][0], former

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
        self.writers.clear()
        self.seam.arm()
        if not self.seam.dead:
            self.histories.close()
        else:
            self.seam.close()


@dataclass
class Follower:
    """A follower of a store: its position, and the events that it has read."""

    position: int = 0
    events: dict[str, dict[int, tuple[int, Any]]] = field(default_factory=dict)
    """The events of each conversation with their positions; None for a redacted one."""
    forks: dict[str, tuple[str, int]] = field(default_factory=dict)


@dataclass(eq=False)
class Site:
    """A store with its processes, and the model of the store."""

    world: World
    name: str
    url: str = ""
    path: Path | None = None
    shared: Recorder | None = None
    """The recorder of a store in memory, which all processes share."""
    model: model.Store = field(default_factory=model.Store)
    ring: tuple[str, ...] = ()
    compression: Any = None
    processes: list[Process] = field(default_factory=list)
    backups: list[tuple[Path, model.Store, tuple[str, ...]]] = field(default_factory=list)
    follower: Follower = field(default_factory=Follower)
    erased_words: set[str] = field(default_factory=set)
    """Words that were erased or redacted in this store."""
    staged_words: set[str] = field(default_factory=set)
    """Words of imports that were stopped. Their events may be staged for an hour."""
    unfinished: set[tuple[str, int]] = field(default_factory=set)
    """Names and tags of conversations whose erasure was stopped."""

    def open(self):
        keys = KeyRing([_KEYS[letter] for letter in self.ring]) if self.ring else None
        if self.shared is not None:
            return self.shared, WriteSettings.chosen(self.compression, keys)
        return recorder_and_settings(self.url, "relaxed", self.compression, keys)

    def reopen(self, *numbers):
        """Close processes, all if no number is given, and start new ones in their places."""
        numbers = numbers or range(len(self.processes))
        for number in numbers:
            self.processes[number].close()
        for number in numbers:
            self.processes[number] = Process(self)


class World:
    """Everything that one sequence of steps acts on."""

    def __init__(self, seed, recorder, folder, database=None):
        rng = random.Random(seed)
        self.length_max = rng.choice((8, 16, 40))
        """The steps that make a conversation longer choose shorter ones than this."""
        self.seed = seed
        self.folder = folder
        self.now = 0
        """The present time, in microseconds."""
        self.words = 0
        self.sources = []
        """Histories to import, which grow."""
        self.logs = {}
        """The texts of the lines of each log, and its session, by the path of the log."""
        self.heads = {}
        """Maps the tag of an event to its head."""
        self.trace = []
        """A line for each thing that happened."""
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
            site.ring = rng.choice(((), (), ("a",)))
            count = rng.choice((1, 2, 2, 3)) if name == "source" else 1
            site.processes += [Process(site) for _ in range(count)]
            self.sites.append(site)

    def clock(self):
        return _BEGIN + timedelta(microseconds=self.now)

    def microseconds(self, moment):
        return (moment - _BEGIN) // timedelta(microseconds=1)

    def new_word(self):
        """Return a word that no event had before."""
        self.words += 1
        return f"word{self.words:06d}q"

    def close(self):
        for site in self.sites:
            for process in site.processes:
                process.close()
            if site.shared is not None:
                site.shared.close()
