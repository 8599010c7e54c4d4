"""What hostile input is given to, and what may come of it. A target raises ``AssertionError``, or
any error that is not of ours, where something came of it that may not.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from foldlog._archive import makes_events
from foldlog._archive.importing import Failed, Import
from foldlog._formats.conversion import writable_formats
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
from foldlog.formats import FORMATS, decode, encode
from tests.foldlog.formats.test_detection import mixture
from tests.fuzz.mutation import any_text, as_json, mutated, mutated_json

__all__ = ["TARGETS", "Target", "warm_up"]

_CORPUS = Path(__file__).parent / "corpus"
_STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Target(NamedTuple):
    """``share``: how many of a hundred inputs it gets. ``run(at)`` makes an input and tries it;
    returns a word for what came of it.
    """

    share: int
    run: Callable[[random.Random], str]


def _lines(name):
    return [json.loads(line) for line in (_CORPUS / name).read_text("utf-8").splitlines()]


# -- the codec
# --------------------------------------------------------------------------------------------------

_BODIES = _lines("bodies.jsonl")


def stored_body(at):
    sound = at.choice(_BODIES)
    body = as_json(mutated_json(at, sound)) if at.randrange(2) else mutated(at, as_json(sound))
    kind = sound["kind"] if at.randrange(4) else at.choice((*codec.KINDS, "later", "os:system", ""))
    schema = at.choice((1, 1, 2, 0, -1, 3, 2**40))
    try:
        event = codec.decode(kind, schema, body, at.choice((0, 5, 2**40)), shown=True)
    except Undecodable:
        return "undecodable"
    return _stored(event)


def _stored(event):
    """Whatever is an event can be stored, or is refused; and it comes back as it went."""
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
# --------------------------------------------------------------------------------------------------

_RECORDS = {name: _lines(f"{name}.jsonl") for name in FORMATS}


def records(at):
    name = at.choice(list(_RECORDS))
    hostile = mutated_json(at, _RECORDS[name])
    if not isinstance(hostile, list):
        hostile = [hostile]
    findings = []
    with_history = name == "openhands-v0" and at.randrange(2) == 0
    try:
        events = list(
            decode(
                hostile,
                at.choice((name, name, *FORMATS)),
                as_history=with_history,
                findings=findings.append,
            )
        )
    except InvalidEvent:
        return "refused"
    for event in events:
        _stored(event)
    if not events or findings:
        return "findings" if findings else "nothing"
    origin = events[0].origin
    if origin is not None and origin.format in writable_formats():
        for record in encode(events, origin.format):
            json.dumps(record)
    return "imported"


def files(at):
    name = at.choice(list(_RECORDS))
    sound = _RECORDS[name]
    whole = sound
    match at.randrange(4):
        case 0:
            content, suffix = b"".join(as_json(record) + b"\n" for record in sound), ".jsonl"
        case 1:
            content, suffix = as_json(sound), ".json"
        case 2:
            whole = {"messages" if name == "openai-chat" else "history": sound, "instance_id": "x"}
            content, suffix = as_json(whole), ".json"
        case _:
            content, suffix = as_json({"trajectory": sound}), ".traj"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"source{suffix}"
        path.write_bytes(mutated(at, content))
        return _imported(path, at.choice(("auto", "auto", name)))


def _imported(path, format):
    """Whatever is imported can be used, and its records are stored as they came; all else is
    refused on one line.
    """
    count, before = 0, path.read_bytes()
    with makes_events(open_store("memory:")) as store:
        importing = Import(store, [path], format)
        for result in importing:
            if isinstance(result, Failed):
                assert "\n" not in str(result.error), result
                continue
            for event in store.events(result.conversation):
                count += 1
                _stored(event)
        assert not any("\n" in str(finding) for finding in importing.findings)
        assert [verdict.findings for verdict in verify(store) if verdict.findings] == []
    assert path.read_bytes() == before
    return "imported" if count else "nothing"


def mixtures(at):
    with tempfile.TemporaryDirectory() as folder:
        return f"read as {mixture(at, Path(folder) / 'a.jsonl')}"


# -- configuration
# --------------------------------------------------------------------------------------------------

_CONFIGS = _lines("condensers.jsonl")
_TOML = (_CORPUS / "condenser.toml").read_bytes()


def warm_up():
    """What is imported at its first use is imported, so that no input pays for it."""
    for config in _CONFIGS:
        with contextlib.suppress(InvalidCondenser):  # the model of the corpus follows no schema
            condenser_from_config(config)


def configuration(at):
    config = mutated_json(at, at.choice(_CONFIGS))
    if not isinstance(config, dict):
        config = {"type": config}
    try:
        condenser_from_config(config)
    except InvalidCondenser as error:
        assert str(error)  # noqa: PT017 - another run than pytest's
        return "refused"
    return "taken"


def configuration_file(at):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        path.write_bytes(mutated(at, _TOML))
        try:
            load_condenser(path, at.choice((None, None, "small", any_text(at))))
        except InvalidCondenser:
            return "refused"
    return "taken"


# -- documents
# --------------------------------------------------------------------------------------------------

_STATE = {
    "step": 7,
    "notes": ["a", {"b": [1, 2.5, None]}, "long " * 30],
    "by": {"x": 1, "y": {"z": []}},
    "": True,
}


def _sorted(value):
    # a difference keeps values and types, not the order of keys
    return json.dumps(value, sort_keys=True)


def documents(at):
    """Hostile values of documents come back as they went, at every version, or are refused by name;
    so are hostile differences between them.
    """
    with open_store("memory:") as store:
        written = Documents(store)
        expected = [{}]
        value = _STATE
        outcome = "taken"
        for _ in range(at.randrange(1, 6)):
            name = at.choice(("state", "other", any_text(at)))
            value = mutated_json(at, value)
            try:
                recorded = written.append(
                    "c1", (), {name: DELETED if at.randrange(8) == 0 else value}
                )
            except (InvalidEvent, InvalidArgument) as error:
                assert "document" in str(error)  # noqa: PT017 - another run than pytest's
                outcome, value = "refused", _STATE
                continue
            for entry in recorded:
                changed = entry.event
                assert isinstance(changed, DocumentChanges)
                unchanged = {
                    other: content for other, content in expected[-1].items() if other != name
                }
                expected.append(
                    unchanged
                    if "deleted" in changed.changed[name]
                    else {**unchanged, name: _sorted(value)}
                )
        if len(expected) == 1:
            return outcome
        for version, values in enumerate(expected):
            read = Documents(store).all("c1", version=version)
            assert {name: _sorted(value) for name, value in read.items()} == values
        body = {"changed": changed.changed, "others": changed.others}
        hostile = mutated_json(at, body)
        try:
            event = DocumentChanges(changed=hostile["changed"], others=hostile.get("others", {}))
            store.append("c1", event, expected_version=ANY_VERSION)
        except (InvalidEvent, DocumentsChanged, KeyError, TypeError) as error:
            if (
                isinstance(error, KeyError | TypeError)
                and type(hostile) is dict
                and "changed" in hostile
            ):
                raise
            return outcome
        try:
            Documents(store).all("c1")
        except CorruptEvent:
            return "hostile difference refused"
        return "hostile difference taken"


# -- small things
# --------------------------------------------------------------------------------------------------

_URLS = (_CORPUS / "urls.txt").read_text().splitlines()


def url(at):
    text = mutated(at, at.choice(_URLS).encode()).decode(
        "utf-8", at.choice(("replace", "surrogateescape"))
    )
    try:
        location = urls.parse_url(text)
    except InvalidOption:
        return "refused"
    assert location.scheme in ("memory", "sqlite", "postgresql")
    return "taken"


def key(at):
    sound = at.choice((b"ab" * 32, b"q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s=", b""))
    text = mutated(at, sound).decode("utf-8", "surrogateescape")
    try:
        KeyRing.from_environment({"FOLDLOG_KEY": text})
    except KeyUnavailable as error:
        assert len(text) < 12 or text not in str(error)  # noqa: PT017 - another run than pytest's
        return "refused"
    return "taken"


def packed_body(at):
    import zlib

    import zstandard

    body = at.randbytes(at.choice((0, 5, 300))) * at.choice((1, 50))
    stored = at.choice((zlib.compress(body), zstandard.ZstdCompressor().compress(body)))
    try:
        decompress(at.choice((0, 1, 2, 3, 8, 99)), mutated(at, stored))
    except NotAsWritten:
        return "refused"
    return "taken"


# -- the command
# --------------------------------------------------------------------------------------------------


def command(at):
    """In a folder with a store and a history, any words: never a traceback, nothing that steers a
    terminal.
    """
    from foldlog._cli import main
    from foldlog._cli.catalog import COMMANDS

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        hostile = any_text(at) or "c"
        with open_store(f"sqlite:///{place / 'foldlog.db'}") as store:
            store.append(
                hostile,
                [Message(source="user", content=any_text(at)) for _ in range(3)],
                expected_version=0,
            )
        name = at.choice(list(_RECORDS))
        (place / "in.jsonl").write_bytes(
            mutated(at, b"".join(as_json(record) + b"\n" for record in _RECORDS[name]))
        )
        words = (
            "in.jsonl",
            "c1",
            hostile,
            any_text(at),
            "--json",
            "--db",
            "sqlite:///foldlog.db",
            "--at",
            "2",
            "1",
            "--start",
            "-1",
            "--stop",
            "9" * 30,
            "--reason",
            "x",
            "--all",
            "out",
            "--format",
            name,
            "--heads",
            "--output",
            "new.jsonl",
        )
        commands = [
            c for group in COMMANDS.values() for c in group if c not in ("demo", "compare", "serve")
        ]
        arguments = [*at.choice(commands).split(), *at.choices(words, k=at.randrange(6))]
        status, out, err = _run(main, arguments, place)
    summary = f"{arguments}: {status}\n{out[-300:]}\n{err[-500:]}"
    assert status in (0, 1, 2), summary
    assert "did not foresee" not in err, summary
    assert "Traceback" not in err, summary
    assert not _STEERS.search(out + err), summary
    if "--json" in arguments and status == 0:
        json.loads(out)
    return f"exit {status}"


def _run(main, arguments, place):
    out, err = io.StringIO(), io.StringIO()
    status = 0
    before = sys.argv
    sys.argv = ["foldlog", *(argument.replace("\0", "0") for argument in arguments)]
    stores = {"FOLDLOG_DB": "foldlog.db", "XDG_DATA_HOME": str(place)}
    try:
        with (
            contextlib.chdir(place),
            patch.dict(os.environ, stores),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                main()
            except SystemExit as ended:
                status = int(ended.code or 0)
    finally:
        sys.argv = before
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
