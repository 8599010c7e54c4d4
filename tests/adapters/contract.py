"""The promises of every adapter: nothing that a program of its SDK adds to a conversation is lost, and
runs of its agents go on after kills and redactions.

The tests of an adapter have a subclass of one of these classes, named ``TestKeeps``, which calls its
SDK. Some tests start this module as a program that uses the subclass in MODULE: ``python -m
tests.adapters.contract MODULE URL NAME`` adds 20 things, and ``… MODULE URL`` runs an agent that is
killed.
"""

import ast
import asyncio
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import foldlog
from foldlog._testing.calls import recorded_calls
from foldlog.condensers import is_masked
from foldlog.eventstore import (
    Action,
    Annotation,
    CannotRedact,
    CondensationAction,
    DocumentChanges,
    Message,
    Observation,
    Retraction,
)
from foldlog.eventstore.log.redacted import can_be_redacted
from foldlog.runtimes import companion_of
from tests.adapters.model_server import Refused
from tests.sound import assert_sound

ROOT = Path(__file__).parents[2]


@contextmanager
def counted(histories: foldlog.Histories) -> Iterator[list[object]]:
    """Collect the queries that a store runs."""
    recorder = histories.store.database.recorder
    queries = list[object]()
    query = recorder.query

    def collect(read: Callable[[Any], Any]) -> Any:
        queries.append(read)
        return query(read)

    recorder.query = collect  # type: ignore[method-assign]
    try:
        yield queries
    finally:
        recorder.query = query  # type: ignore[method-assign]


def condensations(history: foldlog.History) -> list[CondensationAction]:
    return [event for event in history.events() if isinstance(event, CondensationAction)]


def history_of(store: Any) -> foldlog.History:
    """Return the only history of an adapter's store that is not the runtime's own."""
    (conversation,) = (
        row.id for row in store.histories.sync.list().conversations if not companion_of(row.id)
    )
    return store.histories.sync[conversation]


def holding(history: foldlog.History, text: str) -> list[int]:
    """Return the ids of the events that have a text."""
    return [event.id for event in history.events() if text in repr(event)]


def own_events(histories: foldlog.Histories) -> list[tuple[str, Any]]:
    """Return all events of a store with the names of their conversations. A shared event comes
    once.
    """
    rows = list(histories.store.iter_conversations())
    store = histories.store
    own = [
        (row.id, store.query(row.id, lambda read: read.events(read.state.begins, read.version)))
        for row in rows
    ]
    return [(name, event) for name, events in own for event in events]


def redacted_one_by_one(url: str, folder: Path) -> Iterator[tuple[str, str, Any]]:
    """Yield the URLs of copies of a store that is closed, in each of which another event is
    redacted, and that event. A value of a document goes with the later ones that are stored as
    differences to it.
    """
    source = Path(url.removeprefix("sqlite:///"))
    with foldlog.open(url) as histories:
        events = [(name, each) for name, each in own_events(histories) if can_be_redacted(each)]
    for name, event in events:
        copy = folder / f"{source.name}-redacted"
        shutil.copy(source, copy)
        with foldlog.open(f"sqlite:///{copy}") as histories:
            history = histories[name]
            try:
                history.redact(event.id, reason="asked to")
            except CannotRedact:
                for later in list(history.events(event.id))[::-1]:
                    if isinstance(later, DocumentChanges):
                        history.redact(later.id, reason="asked to")
        yield f"sqlite:///{copy}", name, event


class Keeps:
    """Promises of what an SDK adds to one conversation: messages, entries or events, by their names."""

    runtime: str
    """The first part of the ids of conversations."""

    def opened(self, url: str, **options: Any) -> AbstractAsyncContextManager[Any]:
        """Open what the SDK is given, with these options of the adapter."""
        raise NotImplementedError

    async def add(self, store: Any, *names: str) -> None:
        """Add things with these names by one call, and again where another program was quicker."""
        raise NotImplementedError

    async def names(self, store: Any) -> list[str]:
        """Return the names of all things, in their order. Fails where a thing is not whole."""
        raise NotImplementedError

    def program(self, url: str) -> list[str]:
        """Return the command of a program beside the test, as this module has it."""
        return [sys.executable, "-um", "tests.adapters.contract", type(self).__module__, url]

    async def test_a_cancelled_call_is_stored_whole_or_absent(self, url):
        async with self.opened(url) as store:
            await self.add(store, "first")
            for number in range(20):
                before = await self.names(store)
                added = [f"{number}-{n}" for n in range(3)]
                adding = asyncio.ensure_future(self.add(store, *added))
                await asyncio.sleep(number / 4_000)
                adding.cancel()
                await asyncio.gather(adding, return_exceptions=True)
                now = await self.names(store)
                assert now in (before, [*before, *added])
                await asyncio.sleep(0.002)
                assert await self.names(store) == now, "the call is over"

    @pytest.mark.parametrize("opens", [20, pytest.param(500, marks=pytest.mark.long)])
    async def test_closing_ends_threads_and_connections(self, file_url, opens):
        before = {thread for thread in threading.enumerate() if thread.name.startswith("foldlog")}
        for number in range(opens):
            store = self.opened(file_url)
            if hasattr(store, "__enter__") and number % 2:
                with store:
                    await self.add(store, str(number))
            else:
                async with store as opened:
                    await self.add(opened, str(number))
        for thread in threading.enumerate():
            if thread.name.startswith("foldlog") and thread not in before:
                await asyncio.to_thread(thread.join, 60)
                assert not thread.is_alive()
        opened = [os.path.realpath(path) for path in Path("/proc/self/fd").glob("*")]
        assert not [path for path in opened if path.startswith(file_url.removeprefix("sqlite:///"))]

    async def test_conversations_have_the_attributes_of_the_adapter(self, url):
        attributes = {"tenant": "acme", "tags": ["billing"]}
        async with self.opened(url) as store:
            await self.add(store, "first", "second")
            histories = store.histories.sync
            without = {name: histories[name].attributes() for name in histories}
            for name in without:
                histories.erase(name, reason="another test")
        async with self.opened(url, attributes=attributes) as store:
            histories = store.histories.sync
            # the first ones have the ids of erased conversations
            names = list[str]()
            for opened, added in (
                (store, ["third", "fourth"]),
                (self.opened(histories, attributes=attributes), ["fifth"]),
            ):
                names += added
                await self.add(opened, *added)
                assert await self.names(store) == names
                assert {name: histories[name].attributes() for name in histories} == {
                    name: {**attributes, **before} for name, before in without.items()
                }
            assert histories.list({"tenant": "acme"}, age_max_s=0).conversations
            expired = histories.maintenance.expire(
                timedelta(0), {"tenant": "acme"}, reason="asked to"
            ).conversations
            assert {row.id for row in expired} == without.keys()

    async def test_what_a_program_began_stays(self, url):
        """A runtime's own view of its messages rewinds no attribute and no link to a parent."""
        begun = {"customer": "ann", "parent": "task", "parent_call": "call-1"}
        async with self.opened(url) as store:
            await self.add(store, "first")
            histories = store.histories.sync
            own = [name for name in histories if "/" in name and not companion_of(name)]
            assert own
            for name in list(histories):
                histories.erase(name, reason="another test")
            for name in own:
                histories.create(name, begun, replace_erased=True)
            again = self.opened(histories, attributes={"customer": "nobody", "team": "b"})
            await self.add(again, "second")
            await self.add(again, "third")
            assert await self.names(again) == ["second", "third"]
            for name in own:
                assert begun.items() <= histories[name].attributes().items()
                assert not any(isinstance(event, Retraction) for event in histories[name].events())
            chosen = {"customer": "ann", "parent": "task"}
            listed = histories.list(chosen, age_max_s=0).conversations
            assert {row.id for row in listed} == {*own}

    async def test_an_expired_conversation_begins_again(self, url):
        async with self.opened(url) as store:
            await self.add(store, "first", "second")
            histories = store.histories.sync
            name = next(name for name in histories if "/" in name)
            assert name.partition("/")[0] == self.runtime
            expire = histories.maintenance.expire
            assert expire(timedelta(0), detach_forks=True).conversations
            again = self.opened(histories)
            await self.add(again, "third")
            assert await self.names(again) == ["third"]
            assert not expire(timedelta(hours=1)).conversations

    @pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
    async def test_two_processes_on_one_conversation_lose_nothing(self, url):
        async with self.opened(url) as store:
            await self.add(store, "first")
        writers = [subprocess.Popen([*self.program(url), name], cwd=ROOT) for name in "ab"]
        assert [writer.wait(timeout=300) for writer in writers] == [0, 0]
        async with self.opened(url) as store:
            names = (await self.names(store))[1:]
        assert sorted(names, key=lambda name: name[0]) == [*names_of("a"), *names_of("b")]

    async def test_a_server_that_restarts_costs_nothing(self, restartable):
        async with self.opened(restartable.url(schema="s", patience_s="60")) as store:
            for number in range(20):
                if number == 10:
                    restartable.stop("immediate")
                adding = asyncio.ensure_future(self.add(store, str(number)))
                if number == 10:
                    await asyncio.sleep(0.3)  # it waits for the server now
                    restartable.start()
                await adding
            assert await self.names(store) == [str(number) for number in range(20)]


def names_of(writer: str) -> list[str]:
    """Return the names of the things that a program adds."""
    return [f"{writer}-{number}" for number in range(20)]


class Survives(Keeps):
    """The SDK has no agents, so a program that adds things is killed."""

    async def test_things_survive_a_kill(self, file_url):
        command = [*self.program(file_url), "a"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as adding:
            assert adding.stdout is not None
            printed = [adding.stdout.readline().strip() for _ in range(7)]
            adding.kill()
            printed += adding.stdout.read().split()
        async with self.opened(file_url) as store:
            names = await self.names(store)
        assert names == names_of("a")[: len(names)]
        assert len(names) - len(printed) in (0, 1), (names, printed)
        subprocess.run(
            [*self.program(file_url), "b"],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            timeout=300,
            check=True,
        )
        async with self.opened(file_url) as store:
            assert await self.names(store) == [*names, *names_of("b")]


class Pays(Keeps):
    async def run_paying(self, url: str, pay: Any, call_id: str) -> Any:
        """Run an agent that calls ``pay`` once, for ``tests.adapters.paying``. Return what its
        model was sent at last.
        """
        raise NotImplementedError

    def test_a_tool_killed_midway_does_not_run_again(self, tmp_path):
        """The call is on disk when its tool runs, and the next model is told that it may have
        run.
        """
        store = f"sqlite:///{tmp_path}/history.db"
        bank = tmp_path / "bank"
        program = [sys.executable, "-m", "tests.adapters.paying"]
        command = [*program, type(self).__module__, store, str(bank)]
        printed = tmp_path / "printed"  # a file: what a killed process started may hold a pipe open
        for arguments, status in ((["kill"], -signal.SIGKILL), ([], 0)):
            with printed.open("w") as output:
                ran = subprocess.run(
                    [*command, *arguments], cwd=ROOT, stdout=output, stderr=output, timeout=300
                )
            assert ran.returncode == status, printed.read_text()
            written = bank.read_text()
            paid_once = "on disk: [('pay', 'unknown', 1)]\npaid ann\n"
            assert written == paid_once, f"{written}\n{printed.read_text()}"
        with foldlog.open(store) as histories:
            history = next(histories[name] for name in histories if histories[name].effects())
            (doubt,) = history.effects("unknown")
            asked = f'pay {{"to": "ann"}} may have run, key {doubt.key}'
            assert asked in printed.read_text().replace("\\", "")
            history.settle(doubt.key, "paid, says the bank")
            assert history.effects("unknown") == ()


class Lists(Keeps):
    async def listed(self, store: Any) -> Sequence[Any]:
        """Return the SDK's list of all conversations."""
        raise NotImplementedError

    async def add_to(self, store: Any, name: str) -> None:
        """Begin another conversation, or go on with it."""
        raise NotImplementedError

    async def test_queries_of_a_list_do_not_grow(self, url):
        async with self.opened(url) as store:
            counts = []
            for many in (5, 40):
                for number in range(many):
                    await self.add_to(store, f"c{number:02}")
                assert len(await self.listed(store)) == many
                with counted(store.histories.sync) as queries:
                    assert len(await self.listed(store)) == many
                counts.append(len(queries))
            assert counts[1] <= counts[0] + 2
            await self.add_to(store, "c07")
            with counted(store.histories.sync) as queries:
                assert len(await self.listed(store)) == many
            assert len(queries) - counts[1] <= 16, "only what has changed is read"


def check_prompt(
    messages: Iterable[tuple[list[str], list[str]]], messages_max: int | None = None
) -> None:
    """Raise ``Refused`` for messages that a model's server refuses. A message is given by the ids of
    its calls, and the ids of the calls that it answers. The messages right after a call must answer
    it, each call once, and nothing else.
    """
    waiting = set[str]()
    count = 0
    for place, (calls, results) in enumerate(messages):
        count += 1
        if not waiting.issuperset(results) or len(set(results)) < len(results):
            raise Refused(f"message {place} answers {results}, and {sorted(waiting)} are asked")
        waiting.difference_update(results)
        if waiting and not results:
            raise Refused(f"message {place} comes before the answers to {sorted(waiting)}")
        if len(set(calls)) < len(calls) or waiting.intersection(calls):
            raise Refused(f"message {place} has a call twice")
        waiting.update(calls)
    if messages_max is not None and count > messages_max:
        raise Refused(f"{count} messages, the context takes {messages_max}")
    if waiting:
        raise Refused(f"{sorted(waiting)} are not answered")


Calls = list[str | tuple[str, str, dict[str, Any]]]
Script = Callable[[int], str | Calls]
"""What a model says at a call: a text, or calls, each with a tool, an id and arguments, perhaps
behind a text.
"""


_MASKS = {"type": "observation_masking", "attention_window": 3}
_DIGEST = {"type": "digest", "max_size": 12, "keep_first": 1}
STRATEGIES: dict[str, dict[str, Any]] = {
    "digest": _DIGEST,
    "amortized": {"type": "amortized_forgetting", "max_size": 12},
    "recent": {"type": "recent_events", "max_events": 8},
    "masks": _MASKS,
    "cleared": {"type": "clear_tool_uses", "trigger": 200, "keep": 1, "clear_tool_inputs": True},
    "masks, then a digest": {"type": "pipeline", "condensers": [_MASKS, _DIGEST]},
    "shortened": {"type": "digest", "max_tokens": 1_500},
}


def steps(choice: random.Random, calls_max: int = 3) -> Script:
    """Return a script with random turns of tools, and with a text before some of them."""

    def script(number: int) -> str | Calls:
        if choice.random() < 0.5:
            return f"finished {number}"
        many = range(choice.randrange(1, calls_max))
        calls: Calls = [("measure", f"c{number}-{n}", {"unit": "km"}) for n in many]
        return ["let me see", *calls] if choice.random() < 0.3 else calls

    return script


def measure(n: int) -> str:
    """Measure."""
    return f"{n} km " * (4_000 if n in (50, 180) else 20)


def _text_of(event: Any) -> Any:
    if not isinstance(event, Action):
        return event.content
    return json.loads(event.arguments) if isinstance(event.arguments, str) else event.arguments


class Runs(Pays):
    """Promises of runs of the SDK's agents."""

    killed_parts = 2
    """The parts of a reply that are stored if the program was killed in its two calls."""
    prints = "4 of them are shown to the model"
    """The end of the line that the adapter's example prints in its second run."""

    def model(self, script: Script) -> Any:
        """Return a model of the SDK, or what stands for one. ``prompts`` are what it was sent, call
        by call.
        """
        raise NotImplementedError

    async def run(self, store: Any, model: Any, prompt: str, *tools: Any) -> None:
        """Run an agent with these functions as tools. It goes on with calls that have no
        results.
        """
        raise NotImplementedError

    def parts(self, prompt: Any) -> list[Any]:
        """Return what a model was sent, part by part."""
        raise NotImplementedError

    async def stored_parts(self, store: Any) -> list[Any]:
        """Return the stored conversation, in the form of ``parts``."""
        raise NotImplementedError

    refuses: type[Exception] | None = None
    """The error of a run that gets an old copy of its conversation."""

    def killed(self, url: str) -> list[Any]:
        """Run an agent that is killed by its tool. Return what its model was sent before, part by
        part.
        """
        died = subprocess.run(
            self.program(url), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
        )
        assert died.returncode == -9, died.stderr[-2_000:]
        sent: list[Any] = ast.literal_eval(died.stdout.splitlines()[-1])
        return sent

    @pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
    async def test_a_killed_agent_goes_on_without_loss(self, url):
        sent = self.killed(url)
        async with self.opened(url) as store:
            stored = await self.stored_parts(store)
            assert stored[: len(sent)] == sent, "all that the last model call was sent"
            assert len(stored) == len(sent) + self.killed_parts, stored[len(sent) :]
            model = self.model(lambda number: "finished")
            await self.run(store, model, "go on", work)
            assert self.parts(model.prompts[0])[: len(sent)] == sent
            assert "finished" in str((await self.stored_parts(store))[-1])
            assert_sound(store.histories.sync.store)

    async def run_paying(self, url: str, pay: Any, call_id: str) -> Any:
        def script(number: int) -> str | Calls:
            asks = number == 0 and "may have run" not in repr(model.prompts[-1])
            return [("pay", call_id, {"to": "ann"})] if asks else "done"

        model = self.model(script)
        async with self.opened(url) as store:
            await self.run(store, model, "pay ann", pay)
        return self.parts(model.prompts[-1]), model.prompts[-1]

    async def test_a_conversation_goes_on_after_any_redaction(self, file_url, tmp_path):
        async with self.opened(file_url) as store:
            model = self.model(
                lambda number: "x" if number else [("work", f"c{n}", {}) for n in (0, 1)]
            )
            await self.run(store, model, "go", work)
            before = await self.stored_parts(store)
        for copy, name, event in redacted_one_by_one(file_url, tmp_path):
            async with self.opened(copy) as store:
                stored = await self.stored_parts(store)
                which = (name, event.id)
                assert len(stored) == len(before) or isinstance(event, DocumentChanges), which
                model = self.model(lambda number: "finished")
                await self.run(store, model, "go on", work)
                if not model.prompts:  # it did what was left of the last run
                    stored = await self.stored_parts(store)
                    await self.run(store, model, "go on", work)
                assert len(self.parts(model.prompts[0])) == len(stored) + 1, which
                assert "finished" in str((await self.stored_parts(store))[-1])

    async def hold(self, store: Any) -> Any:
        """Return the arguments of ``run`` with which a program hands over its own copy of the
        conversation, or None if the SDK always reads the conversation again.
        """

    async def test_redacted_text_does_not_return_from_memory(self):
        def tell(n: str) -> str:
            """Tell."""
            return "the third secret"

        texts = [f"the {each} secret" for each in ("first", "second", "third", "fourth")]
        prompt, argument, _, reply = texts
        call = [("tell", "c", {"n": argument})]
        for secret in texts:
            with foldlog.open("memory:") as histories:
                store = self.opened(histories)
                model = self.model(lambda number: reply if number else call)
                await self.run(store, model, prompt, tell)
                held = await self.hold(store)
                history = history_of(store)
                for event_id in holding(history, secret):
                    history.redact(event_id, reason="asked to")
                model = self.model(lambda number: "finished")
                with pytest.raises(self.refuses) if self.refuses else nullcontext():
                    await self.run(store, model, "go on", tell, **held or {})
                assert secret not in repr([*history.events(), history.documents()])
                assert (
                    not model.prompts
                    if self.refuses
                    else "finished" in str((await self.stored_parts(store))[-1])
                )

    async def test_the_recall_tool_finds_forgotten_text(self, file_url, recall):
        model = self.model(lambda number: "x" if number else [("recall", "c", {"query": "xyzzy"})])
        async with self.opened(file_url) as store:
            await self.run(store, model, "go", recall)
        assert "it is xyzzy" in f"{model.prompts[-1]} {self.parts(model.prompts[-1])}"

    async def test_usage_is_kept(self, file_url):
        model = self.model(lambda number: [("work", f"c{number}", {})] if number < 2 else "x")
        async with self.opened(file_url) as store:
            await self.run(store, model, "go", work)
            (usage,) = history_of(store).stats().models.values()
        tokens = usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens
        assert (usage.calls, tokens) == (3, (30, 12, 6))

    async def test_the_example_runs(self, example, capsys):
        for _ in range(2):
            ran = example["main"]("hello", self.model(lambda number: "finished"))
            if ran is not None:
                await ran
        assert capsys.readouterr().out.splitlines()[-1].endswith(self.prints)


class Answers(Runs):
    """The SDK appends a reply to the conversation in which others may have appended since the
    prompt.
    """

    async def test_a_reply_notes_events_appended_meanwhile(self):
        def script(number: int) -> str:
            if number == 1:
                history_of(store).append(Message(source="user", content="stop"))
            return f"answer {number}"

        with foldlog.open("memory:") as histories:
            store = self.opened(histories)
            model = self.model(script)
            for prompt in ("go", "go on"):
                await self.run(store, model, prompt, measure)
            history = history_of(store)
            (late,) = holding(history, "stop")
            first, second = (
                event for event in history.events() if getattr(event, "source", None) == "agent"
            )
            assert "shown_version" not in first.meta
            assert second.meta["shown_version"] <= late < second.id


class Condenses(Runs):
    condense = False
    """Whether ``opened`` and ``run`` condense."""
    keeps_late = False
    """Whether the SDK gives a store what is new in a prompt only after the reply."""

    def texts(self, prompt: Any) -> list[Any]:
        """Return the texts that a model was sent, in order: of a call its arguments."""
        raise NotImplementedError

    @pytest.mark.parametrize("strategy", STRATEGIES)
    async def test_prompts_equal_what_the_history_shows(self, strategy):
        self.condense = True
        compared = list[tuple[list[Any], list[Any]]]()

        def script(number: int) -> str | Calls:
            prompt = self.texts(model.prompts[-1])
            shown = history_of(store).sent() if number or not self.keeps_late else ()
            says = [_text_of(event) for event in shown if not isinstance(event, Annotation)]
            new = len(prompt) - len(says) if self.keeps_late else 0
            compared.append((says, prompt[: len(prompt) - new]))
            assert new <= 2
            if number in (9, 19):
                return f"answer {number}"
            many = range(1 + number % 2)
            return [("measure", f"c{number}-{n}", {"n": 10 * number + n}) for n in many]

        model = self.model(script)
        with foldlog.open("memory:", condenser=STRATEGIES[strategy]) as histories:
            store = self.opened(histories)
            for prompt in ("go", "go on"):
                await self.run(store, model, prompt, measure)
            assert len(compared) == 20
            for says, prompt in compared:
                assert prompt == says
            history = history_of(store)
            shown = history.sent()
            count = sum(
                isinstance(event, Message | Action | Observation) for event in history.events()
            )
            assert len(shown) < count or any(map(is_masked, shown)), "the prompt is condensed"
            assert_sound(histories.store)


def work() -> str:
    """Work."""
    return "done"


async def _write(keeps: Any, url: str, name: str) -> None:
    async with keeps.opened(url) as store:
        for added in names_of(name):
            await keeps.add(store, added)
            print(added)  # noqa: T201 - what its caller reads


async def _die(keeps: Any, url: str) -> None:
    """Run an agent whose tool kills it in its fourth call. Print what its model was sent before."""

    def work() -> str:
        """Work."""
        if len(model.prompts) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    def script(number: int) -> Calls:
        print(repr(keeps.parts(model.prompts[-1])), flush=True)  # noqa: T201 - what its caller reads
        return [("work", f"c{number}-{n}", {}) for n in (0, 1)]

    model = keeps.model(script)
    async with keeps.opened(url) as store:
        await keeps.run(store, model, "go", work)


# -- a history as JSON that the SDK reads, and what it writes as a history

VALUES: list[Any] = [
    *(None, True, 0, -1, 1.5, 2**70, "", "a\x00b", "\ud800", "é"),
    *([], {}, [{"a": [None, "\x00"]}], {"$x": 1}),
]
"""Values of JSON of every kind."""
IMAGE = b"\xff\xfe\xfb\x00"
FILE = b"%PDF"
"""The bytes of an image, which the two alphabets of base64 write in two ways, and of a file."""
IMAGE_URL = "data:image/png;base64,//77AA=="


def check_import(histories: foldlog.Histories, format: str, written: str, images: int) -> None:
    """Check that the View of what an SDK wrote has so many images and no bytes as text, and is
    exported as it was.
    """
    history = histories["theirs"]
    records = json.loads(written)
    history.append_records(records, format=format)
    shown = repr([getattr(event, "content", None) for event in history.view()])
    image = f"'image_url': {{'url': '{IMAGE_URL}'"
    assert shown.count(image) == shown.count("77AA") == images
    assert [*history.export(format=format)] == records


# -- requests


def requests_of(history: foldlog.History) -> list[Any]:
    """Return the request of each reply, with whether its bytes are known."""
    return [history.sent_request(each.reply[0].id) for each in recorded_calls(history)]


def check_requests(history: foldlog.History) -> list[Any]:
    """Check that each of two replies names its request, with the instructions and the tool
    ``measure``. Return the requests.
    """
    sent = requests_of(history)
    assert [str(each) for each in sent] == ["the same bytes"] * 2
    for each in sent:
        assert "You measure." in each.request.parameters["instructions"]
        assert [tool["function"]["name"] for tool in each.request.tools] == ["measure"]
    return sent


# -- approvals


def asked(tool: str, *, to: str | None = None, **arguments: Any) -> dict[str, Any]:
    return {"asked": to, "shown": {"tool": tool, "arguments": arguments}}


def decided(approved: bool, *, by: str | None = None, reason: str = "") -> dict[str, Any]:
    return {"approved": approved, "by": by, "reason": reason, "until": None}


def approvals_of(history: foldlog.History) -> dict[str | None, list[Any]]:
    """Map the id of each call to what was asked and decided about it."""
    calls = {event.id: event.call_id for event in history.events() if isinstance(event, Action)}
    approvals = dict[str | None, list[Any]]()
    for event in history.events():
        if isinstance(event, Annotation) and event.name == "foldlog.approval":
            approvals.setdefault(calls[event.cause], []).append(event.data)
    return approvals


if __name__ == "__main__":
    module, *arguments = sys.argv[1:]
    keeps = importlib.import_module(module).TestKeeps()
    asyncio.run(_die(keeps, *arguments) if len(arguments) == 1 else _write(keeps, *arguments))
