"""Each kind of check of the simulation finds a fault: a method of the product that is wrong."""

from collections.abc import Callable
from dataclasses import replace
from secrets import token_bytes
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from msgspec import Struct, structs

from foldlog import Histories, History, View
from foldlog._app.server.conversations import ServedConversations
from foldlog._app.server.pages import Pages
from foldlog._history.streamed_reply import StreamedReply
from foldlog.eventstore import Store
from foldlog.maintenance import Maintenance
from tests.simulation import checks, imports, stores
from tests.simulation.steps import Steps
from tests.simulation.table import draw_steps
from tests.simulation.world import Finding, World, sped_up

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Fault(NamedTuple):
    owner: Any
    name: str
    wrong: Callable[..., Any]
    """Takes the right method and its arguments, and answers in its place."""
    steps: str
    """The kinds of the steps that find it."""
    label: str
    """The label of the finding."""
    recorder: str = "memory"


def without_last(right, *arguments, **options):
    return (*right(*arguments, **options),)[:-1]


def without_first(right, *arguments, **options):
    return (*right(*arguments, **options),)[1:]


def nothing(right, *arguments, **options):
    return ()


def one_more(right, *arguments, **options):
    return right(*arguments, **options) + 1


def an_older_view(right, history):
    view = right(history)
    return history.at(max(view.version - 1, 0))


def the_present_view(right, history, version):
    return history.view()


def the_first_event(right, pages, name, event_id):
    return right(pages, name, 0)


def with_fields(**fields):
    def wrong(right, *arguments, **options):
        answer = right(*arguments, **options)
        match answer:
            case Struct():
                return structs.replace(answer, **fields)
            case tuple():
                return answer._replace(**fields)
        return replace(answer, **fields)

    return wrong


def nothing_restored(right, *arguments, **options):
    return SimpleNamespace(erased_since=())


def with_other_heads(right, *arguments, **options):
    return (row._replace(head=token_bytes(32)) for row in right(*arguments, **options))


def import_without_last_line(right, store, paths):
    lines = paths[0].read_text().splitlines(keepends=True)
    paths[0].write_text("".join(lines[:-1]))
    return right(store, paths)


def once(right, store, path):
    """Make the audit file, and never bring it up to date."""
    if not path.exists():
        right(store, path)


FAULTS = [
    Fault(Store, "version", one_more, "request", "version"),
    Fault(History, "tail", without_last, "request", "tail"),
    Fault(History, "view", an_older_view, "request", "version of the View"),
    Fault(History, "at", the_present_view, "read", "View"),
    Fault(View, "tail", without_last, "read", "tail of the View"),
    Fault(View, "to_messages", without_last, "read", "words of the messages"),
    Fault(Store, "log", without_first, "read", "events"),
    Fault(History, "events", without_first, "read", "events backwards"),
    Fault(History, "documents", lambda right, *a: {}, "read", "documents"),
    Fault(History, "why", with_fields(fate="lost"), "read", "why"),
    Fault(History, "difference", with_fields(entered=()), "read", "entered"),
    Fault(History, "append", without_last, "append", "recorded"),
    Fault(History, "pop", without_last, "pop", "popped"),
    Fault(History, "set_attributes", lambda right, *a, **k: {}, "attributes", "attributes"),
    Fault(History, "close_open_calls", nothing, "close_open_calls", "close_open_calls"),
    Fault(History, "retract", nothing, "retract", "change: error"),
    Fault(StreamedReply, "feed", nothing, "stream", "streamed"),
    Fault(History, "redact", nothing, "redact", "redacted"),
    Fault(Histories, "create", nothing, "create", "create: error"),
    Fault(Histories, "erase", nothing, "erase", "erased"),
    Fault(Store, "fork", nothing, "fork", "fork: error"),
    Fault(Store, "ingest", nothing, "ingest", "ingest: error"),
    Fault(imports, "Import", import_without_last_line, "import_log", "import"),
    Fault(Store, "iter_conversations", without_last, "verify", "ids in the list"),
    Fault(Store, "iter_conversations", with_other_heads, "verify", "head"),
    Fault(Histories, "list", with_fields(conversations=()), "recent", "recent"),
    Fault(Histories, "search", nothing, "search", "search"),
    Fault(Store, "follow", without_first, "follow", "follow"),
    Fault(Maintenance, "verify", nothing, "verify", "conversations that were verified"),
    Fault(checks, "audit", with_fields(missing=1), "audit", "audit"),
    Fault(checks, "overview_of", with_fields(events=-1), "report", "overview"),
    Fault(checks, "spent_by", with_fields(cost=-1), "report", "cost"),
    Fault(checks, "update", once, "append report", "events of the audit file"),
    Fault(Pages, "find", with_fields(hits=()), "serve", "find on the page"),
    Fault(Pages, "event", the_first_event, "serve", "text of the page"),
    Fault(ServedConversations, "list", with_fields(conversations=()), "serve", "served list"),
    Fault(Maintenance, "copy_from", nothing, "copy", "copied"),
    Fault(Maintenance, "rekey", nothing, "rekey", "keys"),
    Fault(Maintenance, "vacuum", nothing, "erase vacuum", "bytes pending", "sqlite"),
    Fault(
        stores,
        "restore_store",
        nothing_restored,
        "back_up append restore",
        "append to a file that was replaced",
        "sqlite",
    ),
]


def find(fault, folder, monkeypatch):
    """Take some steps, and then steps that must find the fault. Return what they find."""
    world = World("faults", fault.recorder, folder)
    runner = Steps(world)
    try:
        with sped_up(), monkeypatch.context() as patching:
            for step in draw_steps("faults 1", 80):
                runner.run_step(step)
            right = getattr(fault.owner, fault.name)
            patching.setattr(fault.owner, fault.name, lambda *a, **k: fault.wrong(right, *a, **k))
            for number in range(200):
                for kind in fault.steps.split():
                    runner.run_step((kind, number))
    except Finding as finding:
        return finding.label
    finally:
        world.close()
    return "nothing"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.label)
def test_a_check_finds_its_fault(fault, tmp_path, monkeypatch):
    assert find(fault, tmp_path, monkeypatch) == fault.label
