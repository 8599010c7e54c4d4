"""The readers that get hostile inputs, and what each of them may do with an input. A target raises
``AssertionError``, or lets an error of the reader through that is not foldlog's, if the reader does
something else.
"""

import contextlib
import io
import json
import os
import random
import re
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import zstandard

from foldlog.condensers import condenser_from_config, load_condenser
from foldlog.condensers.errors import InvalidCondenser
from foldlog.eventstore import (
    ANY_VERSION,
    DELETED,
    CorruptEvent,
    DocumentChanges,
    Documents,
    DocumentsChanged,
    InvalidArgument,
    InvalidEvent,
    InvalidOption,
    KeyRing,
    KeyUnavailable,
    Message,
    UnknownEventType,
    codec,
    open_store,
)
from foldlog.eventstore.codec_json import Undecodable
from foldlog.eventstore.log.row import NotAsWritten
from foldlog.eventstore.log.seal import decompress
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders import urls
from foldlog.formats import FORMATS, UnknownFormat, decode, encode
from tests.commands import NAMES, run_foldlog
from tests.foldlog.formats.test_detection import mixture
from tests.foldlog.imports.imports import Failed, Import, open_with_imports
from tests.fuzz.mutation import any_text, as_json, mutate, mutate_json

_CORPUS = Path(__file__).parent / "corpus"
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Target(NamedTuple):
    """``share``: how many of a hundred inputs the target gets. ``run(rng)`` makes an input and gives
    it to the reader; it returns a word for the outcome.
    """

    share: int
    run: Callable[[random.Random], str]


def _lines(name):
    return [json.loads(line) for line in (_CORPUS / name).read_text("utf-8").splitlines()]


# -- the codec

_BODIES = _lines("bodies.jsonl")


def stored_body(rng):
    sound = rng.choice(_BODIES)
    body = as_json(mutate_json(rng, sound)) if rng.randrange(2) else mutate(rng, as_json(sound))
    kind = (
        sound["kind"] if rng.randrange(4) else rng.choice((*codec.KINDS, "later", "os:system", ""))
    )
    schema = rng.choice((1, 1, 2, 0, -1, 3, 2**40))
    try:
        event = codec.decode(kind, schema, body, rng.choice((0, 5, 2**40)), shown=True)
    except Undecodable:
        return "undecodable"
    return _check_event(event)


def _check_event(event):
    """Check that an event is refused, or is stored and read back unchanged."""
    try:
        encoded = codec.encode(event)
    except (InvalidEvent, UnknownEventType):
        return "refused"
    again = codec.decode(
        encoded.kind,
        encoded.schema,
        encoded.body,
        event.id,
        shown=encoded.shown,
        structural=encoded.structural,
    )
    assert repr(again) == repr(encoded.event)
    return "stored"


# -- formats

_RECORDS = {name: _lines(f"{name}.jsonl") for name in FORMATS}


def records(rng):
    name = rng.choice(list(_RECORDS))
    hostile = mutate_json(rng, _RECORDS[name])
    if not isinstance(hostile, list):
        hostile = [hostile]
    findings = []
    with_history = name == "openhands-v0" and rng.randrange(2) == 0
    try:
        events = list(
            decode(
                hostile,
                rng.choice((name, name, *FORMATS)),
                as_history=with_history,
                findings=findings.append,
            )
        )
    except InvalidEvent:
        return "refused"
    for event in events:
        _check_event(event)
    if not events or findings:
        return "findings" if findings else "nothing"
    origin = events[0].origin
    if origin is not None:
        with contextlib.suppress(UnknownFormat):
            for record in encode(events, origin.format):
                json.dumps(record)
    return "imported"


def files(rng):
    name = rng.choice(list(_RECORDS))
    sound = _RECORDS[name]
    match rng.randrange(4):
        case 0:
            content = b"".join(as_json(record) + b"\n" for record in sound)
            suffix = ".jsonl"
        case 1:
            content = as_json(sound)
            suffix = ".json"
        case 2:
            field = "messages" if name == "openai-chat" else "history"
            content = as_json({field: sound, "instance_id": "x"})
            suffix = ".json"
        case _:
            content = as_json({"trajectory": sound})
            suffix = ".traj"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"source{suffix}"
        path.write_bytes(mutate(rng, content))
        return _import_file(path, rng.choice(("auto", "auto", name)))


def _import_file(path, format):
    """Check that each imported event can be used, that findings and refusals have one line, and that
    the file is unchanged.
    """
    count = 0
    before = path.read_bytes()
    with open_with_imports() as store:
        importing = Import(store, [path], format)
        for result in importing:
            if isinstance(result, Failed):
                assert "\n" not in str(result.error), result
                continue
            for event in store.events(result.conversation):
                count += 1
                _check_event(event)
        assert not any("\n" in str(finding) for finding in importing.findings)
        assert [verdict.findings for verdict in verify(store) if verdict.findings] == []
    assert path.read_bytes() == before
    return "imported" if count else "nothing"


def mixtures(rng):
    with tempfile.TemporaryDirectory() as folder:
        return f"read as {mixture(rng, Path(folder) / 'a.jsonl')}"


# -- configuration

_CONFIGS = _lines("condensers.jsonl")
_TOML = (_CORPUS / "condenser.toml").read_bytes()


def warm_up():
    """Import the modules that are imported at their first use, so that no input takes that time."""
    for config in _CONFIGS:
        with contextlib.suppress(InvalidCondenser):  # the corpus has a model without a schema
            condenser_from_config(config)


def configuration(rng):
    config = mutate_json(rng, rng.choice(_CONFIGS))
    if not isinstance(config, dict):
        config = {"type": config}
    try:
        condenser_from_config(config)
    except InvalidCondenser as error:
        assert str(error)  # noqa: PT017 - another run than pytest's
        return "refused"
    return "taken"


def configuration_file(rng):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        path.write_bytes(mutate(rng, _TOML))
        try:
            load_condenser(path, rng.choice((None, None, "small", any_text(rng))))
        except InvalidCondenser:
            return "refused"
    return "taken"


# -- documents

_STATE = {
    "step": 7,
    "notes": ["a", {"b": [1, 2.5, None]}, "long " * 30],
    "by": {"x": 1, "y": {"z": []}},
    "": True,
}


def _sorted(value):
    # a difference keeps values and types, not the order of keys
    return json.dumps(value, sort_keys=True)


def documents(rng):
    """Check that hostile values of documents are read back unchanged at each version, or are refused
    with their name; and that hostile differences between values are refused or can be read.
    """
    with open_store("memory:") as store:
        written = Documents(store)
        expected = [{}]
        value = _STATE
        outcome = "taken"
        for _ in range(rng.randrange(1, 6)):
            name = rng.choice(("state", "other", any_text(rng)))
            value = mutate_json(rng, value)
            try:
                recorded = written.append(
                    "c1", (), {name: DELETED if rng.randrange(8) == 0 else value}
                )
            except (InvalidEvent, InvalidArgument) as error:
                assert "document" in str(error)  # noqa: PT017 - another run than pytest's
                outcome = "refused"
                value = _STATE
                continue
            for entry in recorded:
                changed = entry.event
                assert isinstance(changed, DocumentChanges)
                values = dict(expected[-1])
                values.pop(name, None)
                if "deleted" not in changed.changed[name]:
                    values[name] = _sorted(value)
                expected.append(values)
        if len(expected) == 1:
            return outcome
        for version, values in enumerate(expected):
            stored = Documents(store).all("c1", version=version)
            assert {name: _sorted(value) for name, value in stored.items()} == values
        body = {"changed": changed.changed, "others": changed.others}
        hostile = mutate_json(rng, body)
        try:
            event = DocumentChanges(changed=hostile["changed"], others=hostile.get("others", {}))
            store.append("c1", event, expected_version=ANY_VERSION)
        except (InvalidEvent, DocumentsChanged, KeyError, TypeError) as error:
            is_foreign = isinstance(error, KeyError | TypeError)
            if is_foreign and type(hostile) is dict and "changed" in hostile:
                raise
            return outcome
        try:
            Documents(store).all("c1")
        except CorruptEvent:
            return "hostile difference refused"
        return "hostile difference taken"


# -- small things

_URLS = (_CORPUS / "urls.txt").read_text().splitlines()


def url(rng):
    text = mutate(rng, rng.choice(_URLS).encode()).decode(
        "utf-8", rng.choice(("replace", "surrogateescape"))
    )
    try:
        location = urls.parse_url(text)
    except InvalidOption:
        return "refused"
    assert location.scheme in ("memory", "sqlite", "postgresql")
    return "taken"


def key(rng):
    sound = rng.choice((b"ab" * 32, b"q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s="))
    keys = [sound if rng.randrange(2) else mutate(rng, sound) for _ in range(rng.randrange(3))]
    text = b" ".join(keys).decode("utf-8", "surrogateescape")
    try:
        KeyRing.from_environment({"FOLDLOG_KEY": text})
    except KeyUnavailable as error:
        assert len(text) < 12 or text not in str(error)  # noqa: PT017 - another run than pytest's
        return "refused"
    return "taken"


def packed_body(rng):
    body = rng.randbytes(rng.choice((0, 5, 300))) * rng.choice((1, 50))
    stored = rng.choice((zlib.compress(body), zstandard.ZstdCompressor().compress(body)))
    try:
        decompress(rng.choice((0, 1, 2, 3, 8, 99)), mutate(rng, stored))
    except NotAsWritten:
        return "refused"
    return "taken"


# -- the command


def command(rng):
    """Run a command with hostile arguments in a folder with a store and a history: it must print no
    traceback and nothing that controls the terminal.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        hostile = any_text(rng) or "c"
        with open_store(f"sqlite:///{place / 'foldlog.db'}") as store:
            store.append(
                hostile,
                [Message(source="user", content=any_text(rng)) for _ in range(3)],
                expected_version=0,
            )
        name = rng.choice(list(_RECORDS))
        (place / "in.jsonl").write_bytes(
            mutate(rng, b"".join(as_json(record) + b"\n" for record in _RECORDS[name]))
        )
        words = "in.jsonl c1 --json --db sqlite:///foldlog.db --at 2 1 --start -1 --stop --reason x"
        words += f" --all out --format {name} --against --output new.jsonl {'9' * 30}"
        # The last two are servers.
        left_out = ("demo", "compare", "serve", "mcp")
        commands = [command for command in NAMES if command not in left_out]
        choices = [*words.split(), hostile, any_text(rng)]
        arguments = [*rng.choice(commands).split(), *rng.choices(choices, k=rng.randrange(6))]
        status, out, err = _run(arguments, place)
    summary = f"{arguments}: {status}\n{out[-300:]}\n{err[-500:]}"
    assert status in (0, 1, 2), summary
    assert "unexpected error" not in err, summary
    assert "Traceback" not in err, summary
    assert not _CONTROLS.search(out + err), summary
    if "--json" in arguments and status == 0:
        json.loads(out)
    return f"exit {status}"


def _run(arguments, place):
    out = io.StringIO()
    err = io.StringIO()
    stores = {"FOLDLOG_DB": "foldlog.db", "XDG_DATA_HOME": str(place)}
    with (
        contextlib.chdir(place),
        open(os.devnull) as no_input,
        patch.object(sys, "stdin", no_input),
        patch.dict(os.environ, stores),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        status = run_foldlog(*(argument.replace("\0", "0") for argument in arguments))
    return status, out.getvalue(), err.getvalue()


TARGETS = {
    "stored bodies": Target(30, stored_body),
    "records of all formats": Target(30, records),
    "files of all formats": Target(10, files),
    "lines of all formats": Target(1, mixtures),
    "configuration": Target(10, configuration),
    "configuration files": Target(3, configuration_file),
    "documents": Target(3, documents),
    "urls": Target(5, url),
    "keys": Target(3, key),
    "packed bodies": Target(3, packed_body),
    "the command": Target(1, command),
}
