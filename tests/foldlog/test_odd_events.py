"""Events that no program should write, and some do: none of them makes a command or a method fail
for a whole store.

Commands and methods are found in the application and in the classes, so a new one is tried by
itself. ``COMMANDS`` and ``argument_values`` have values for what they require. ``BY_A_CALLER`` names
the methods that require another value.
"""

import inspect
import json
import shlex
import shutil
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import reduce
from pathlib import Path

import pytest

import foldlog as api
from foldlog import Action, EventStoreError, Message, SystemMessage
from foldlog._reports.words.safe_text import json_text
from foldlog.condensers import NoCondensationAvailable
from foldlog.eventstore import InvalidArgument, UnknownEvent, open_store
from foldlog.formats import UnknownFormat
from foldlog.formats.registry import formats
from foldlog.projections import View
from tests.commands import NAMES, command_named
from tests.foldlog.records import GOLDEN
from tests.golden.rows import made_events, with_bytes
from tests.said import replied
from tests.web_client import asking_store

WORD = "zebrafinch"
STEERS = "\x1b]0;pwned\x07\x1b[2J\u202e\r\n\x00"


def nested(depth):
    value = WORD
    for number in range(depth):
        value = [value] if number % 2 else {"k": value}
    return value


def user_message(content=WORD, **fields):
    return Message(source="user", content=content, **fields)


def called(arguments, **fields):
    return Action(**{"tool": "t", "call_id": "1", "arguments": arguments, **fields})


WORDS = (("<word>", WORD), ("<steers>", json.dumps(STEERS)[1:-1]))


def value_of(written):
    """Return a value that no JSON file holds, of the map that describes it."""
    match written:
        case {"nested": depth}:
            return nested(depth)
        case {"text": str(text), "times": times}:
            return text * times
        case {"power of ten": exponent}:
            return 10**exponent
        case {"made": event}:
            return next(made_events([event]))
        case {"digits": count}:
            return f'{{"v": {"9" * count}}}'
    return with_bytes(written)


TEXT = reduce(
    lambda text, word: text.replace(*word), WORDS, (GOLDEN / "odd_events.json").read_text("utf-8")
)
ODD = json.loads(TEXT, object_hook=value_of)
"""The events of each case. The first case hides what is before it."""


IDS = [
    "one",
    f"steers {STEERS}",
    "\ud800",
    "../../up",
    "x" * 3_000,
    "--help",
    "a b'\"$(c)",
    "一" * 50,
]
"""Ids of conversations that hold one message each."""
REFUSED = {
    "time before year 1",
    "time after year 9999",
    "too deep",
    "not a number, native",
    "rest of bytes",
    "unknown kind of no JSON",
    "unknown kind of a list",
    "cause that is later",
    "condensation of nothing",
}
"""What is refused when it is appended."""
STRUCTURAL = "unknown structural kind"
"""No View can be made of a conversation with it: see ``UnknownEvent``."""
ALL = "all"


def fill(path, names):
    """Append each odd event between others to a separate conversation, and to one with all. Return
    the accepted events.
    """
    accepted = []
    with api.open(path) as histories:
        for number, name in enumerate(names):
            history = histories[f"odd {number}"]
            history.append([SystemMessage(content="a prompt"), user_message("before")])
            with suppress(EventStoreError):
                history.append([*made_events(ODD[name])])
                accepted.append(name)
            history.append(replied(f"after {WORD}"))
            if name in accepted:
                histories[ALL].append([*made_events(ODD[name])])
        for name in IDS:
            histories.create(name, {"title": STEERS, "user": name, STEERS: STEERS}).append(
                user_message()
            )
        unknown = UnknownEvent(
            stored_kind="of.tomorrow", stored_schema=1, body=b"{}", is_structural=True
        )
        histories[STRUCTURAL].append([user_message(), unknown, user_message()])
    return accepted


# -- commands
# --------------------------------------------------------------------------------------------------

COMMANDS = json.loads((GOLDEN / "lines_of_commands.json").read_text("utf-8").replace(*WORDS[0]))
"""By name, the commands that are ``left out``: ``serve`` waits (see
``test_no_page_fails_because_of_one_event``), ``mcp`` and ``hook`` read stdin, and others read no
conversation. The commands that work on the ``whole store`` where they are given no conversation:
they must succeed. The commands that come ``last``, because they change what the others look at.
``more`` lines with options. ``values`` of arguments and of required options, by the name that the
help gives them; None leaves it out.
"""


def lines_of(name):
    """Yield the lines that try a command: for the whole store if it can, for one conversation, and
    with options.
    """
    parameters = command_named(name).params
    words = []
    for parameter in parameters:
        named = str(parameter.metavar or parameter.name.upper()).strip("{}[].")
        if parameter.param_type_name == "argument":
            words.append(COMMANDS["values"][named])  # a new name needs a value there
        elif parameter.required or parameter.name == "reason":
            words.append(f"{parameter.opts[0]} {COMMANDS['values'][named]!r}")
        elif parameter.name in ("yes", "once"):  # the command waits for nobody
            words.append(parameter.opts[0])
    if name in COMMANDS["whole store"]:
        yield " ".join(word for word in words if word and word != ALL)
    if name not in COMMANDS["whole store"] or ALL in words:
        yield " ".join(filter(None, words))
    yield from COMMANDS["more"].get(name, ())


WRITTEN = ("copy.db", "target.db", "audit.db", "all.html")


def failures(foldlog, names, *forms):
    """Return the lines that fail, each with its error."""
    failed = []
    for name in names:
        for line in lines_of(name):
            for form in forms:
                for path in WRITTEN:  # by an earlier line
                    Path(path).unlink(missing_ok=True)
                ran = foldlog(*name.split(), *shlex.split(f"{line} {form}"))
                is_whole = name in COMMANDS["whole store"] and ALL not in line
                if "unexpected" in ran.err or ran.status not in ((0, 1) if is_whole else (0, 1, 2)):
                    failed.append(f"{name} {line} {form}: {ran.status} {ran.err[-300:]}")
    return failed


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A store with all odd events that is copied, and the conversations in it."""
    path = tmp_path_factory.mktemp("odd") / "odd.db"
    return path, fill(path, [*ODD])


def add_other_files():
    Path("chat.jsonl").write_text(f"{json.dumps({'role': 'user', 'content': WORD})}\n")
    with api.open("good.db") as histories:
        histories["one"].append(user_message())


COMMAND_NAMES = sorted(
    (name for name in NAMES if name not in COMMANDS["left out"]),
    key=lambda name: name in COMMANDS["last"],
)


@pytest.mark.parametrize("name", ["search", "stats", "store redact"])
def test_no_command_for_a_whole_store_fails(foldlog, odd, name):
    path, accepted = odd
    assert {name for name in ODD if name not in accepted} == REFUSED
    shutil.copy(path, "foldlog.db")
    assert failures(foldlog, [name], "") == []


@pytest.mark.long
def test_no_command_fails_because_of_one_event(foldlog, odd):
    shutil.copy(odd[0], "foldlog.db")
    add_other_files()
    assert failures(foldlog, COMMAND_NAMES, "", "--json") == []


# -- methods
# --------------------------------------------------------------------------------------------------

CHANGES = {
    "retract",
    "pop",
    "condense",
    "request_condensation",
    "close_open_calls",
    "redact",
    "redact_matching",
    "erase",
    "expire",
    "archive",
    "rekey",
    "vacuum",
    "fork",
    "create",
    "import_",
    "copy_from",
    "back_up",
}
"""Called after those that read."""
BY_A_CALLER = {
    "append",
    "append_records",
    "append_reply",
    "append_tool_result",
    "ask_approval",
    "begin_child",
    "close",
    "continue_in",
    "decide",
    "extend",
    "hand_overs",
    "ingest",
    "lease",
    "once",
    "project",
    "query",
    "recorded",
    "register",
    "run",
    "settle",
    "verify_against",
}
"""What takes events, calls, keys or functions of the caller, or ends the test."""
NOT_OF_AN_EVENT = {
    "step": (NoCondensationAvailable,),
    "prepare": (NoCondensationAvailable,),
    "condense": (NoCondensationAvailable,),
    "export": (UnknownFormat,),
    "sent_request": (InvalidArgument,),
}
"""What a method raises of a sound conversation too."""


def argument_values(folder, other):
    """Return a value for each required parameter, by its name, or by the names of its method and
    its own.
    """
    return {
        "conversation": ALL,
        "words": WORD,
        "source_id": 7,
        "format": "openai-chat",
        "path": str(folder / "backup.db"),
        "import_ path": str(folder / "chat.jsonl"),
        "create conversation": "created",
        "erase conversation": "odd 0",
        "source": other,
        "older_than": timedelta(days=9_999),
        "archive older_than": timedelta(),
        "to": f"file://{folder}/objects",
        "text": WORD,
        "reason": "asked for",
        "version": 40,
        "event_id": 1,
        "before": 1,
        "after": 3,
        "at": 3,
        "new_id": "fork of methods",
        "name": "attributes",
        "event": 1,
        "count": 3,
    }


def methods(of):
    names = [name for name in dir(of) if not name.startswith("_") and name not in BY_A_CALLER]
    return sorted(names, key=lambda name: (name in CHANGES, name))


_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def value_for(name, argument, values):
    """Return the value for an argument of this method, or the value for all methods."""
    own = f"{name} {argument}"
    return values[own if own in values else argument]


def call(of, name, values):
    """Call a method with the least that it takes, and read all that it returns. Raises ``KeyError``
    if there is no value for a required parameter.
    """
    result = getattr(of, name)
    if callable(result):
        required = [
            parameter.name
            for parameter in inspect.signature(result).parameters.values()
            if parameter.default is parameter.empty and parameter.kind not in _VARIABLE
        ]
        arguments = {argument: value_for(name, argument, values) for argument in required}
        result = result(**arguments)
    if isinstance(result, Iterator):
        deque(result, maxlen=0)
    elif isinstance(result, View):
        result.to_messages()


def test_no_method_fails_because_of_one_event(tmp_path, odd):
    shutil.copy(odd[0], tmp_path / "odd.db")
    (tmp_path / "chat.jsonl").write_text(f"{json.dumps({'role': 'user', 'content': WORD})}\n")
    failed = []
    with api.open(tmp_path / "odd.db") as histories, api.open(tmp_path / "other.db") as others:
        others["one"].append(user_message())
        values = argument_values(tmp_path, others.store)
        for of in (histories.store, histories, histories[ALL], histories.maintenance):
            for name in methods(type(of)):
                try:
                    call(of, name, values)
                except NOT_OF_AN_EVENT.get(name, ()):
                    pass
                except Exception as error:  # noqa: BLE001 - each is a failure to be shown
                    failed.append((type(of).__name__, name, repr(error)[:300]))
    assert not failed, "\n".join(map(str, failed))


DOORS = json.loads((GOLDEN / "too_deep.json").read_text("utf-8"))
"""Methods of a history with their arguments and options."""


@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses_deep_values(history, door):
    """A result of a tool is stored without the value, because the tool has run."""
    history.append(called({}))
    text = json.dumps(DOORS[door])
    method, arguments, options = json.loads(text, object_hook=value_of)
    if door == "result":
        recorded = history.append_tool_result(*arguments)
        assert recorded.event.content == "(nested too deeply to be shown)"
    else:
        with pytest.raises((EventStoreError, TypeError, ValueError)):
            getattr(history, method)(*arguments, **options)
    history.append(user_message())
    history.view().to_messages()


@pytest.mark.parametrize("view", [False, True])
def test_no_export_fails_because_of_one_event(odd, view):
    with api.open(odd[0]) as histories:
        for format in formats().values():
            with suppress(UnknownFormat):
                exported = histories[ALL].export(format.name, view=view, notes=lambda note: None)
                json_text((format.document or list)([*exported]), exact=True)


def test_no_page_fails_because_of_one_event(tmp_path, odd):
    shutil.copy(odd[0], tmp_path / "odd.db")
    with open_store(f"sqlite:///{tmp_path}/odd.db") as store, asking_store(store) as client:
        requests = [("conversations", {}), ("search", {"words": WORD})]
        requests += [("event", {"id": ALL, "event": id_}) for id_ in range(store.version(ALL))]
        for row in store.iter_conversations():
            if row.id != STRUCTURAL and row.id.isprintable():
                requests += [("history", {"id": row.id}), ("events", {"id": row.id, "start": 0})]
        for path, params in requests:
            answer = client.get(f"/api/{path}", params)
            assert answer.status == 200, (path, params, answer.text[:300])
        assert client.get("/metrics").status == 200
