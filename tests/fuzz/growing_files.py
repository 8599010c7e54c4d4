"""Let files of formats without a skeleton grow by one record at a time, with a View each time, and
compare them at each record with one import.

    python -m tests.fuzz.growing_files [--format openhands-v1] [--records 300]

Events, heads, Views, figures, attributes and bytes must be equal. The records are those of the
corpus, in each form of file that the format has, and the real files in the shared data. Prints a
table, and ends with status 1 if a record is wrong.
"""

import argparse
import json
import logging
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

from foldlog import Histories
from foldlog._imports.importing import Import, Imported
from foldlog.eventstore import DocumentChanges
from tests.beside import SAMPLES
from tests.foldlog.imports.imports import events_of, new_store
from tests.foldlog.imports.test_growth import comparable, shown
from tests.foldlog.records import records_of

_LISTS = ("messages", "trajectory", "history", "traj")
"""The keys under which documents have their records."""
_HISTORIES = 3
"""Of a file with several histories, so many are read."""


def lines(folder, records):
    (folder / "h.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))


def array(folder, records):
    (folder / "h.json").write_text(json.dumps(records))


def document(key, file="h.json", **about):
    def write(folder, records):
        value = {**about, key: records}
        (folder / file).write_text(json.dumps(value))

    return write


def files(name):
    def write(folder, records):
        for number, record in enumerate(records):
            path = folder / name.format(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(record))

    return write


FORMS = {
    "agent-framework": {"lines": lines, "array": array},
    "anthropic-messages": {
        "lines": lines,
        "array": array,
        "messages": document("messages", system="Be brief."),
    },
    "google-adk": {"lines": lines, "array": array, "events": document("events")},
    "langchain": {"lines": lines, "array": array},
    "openai-chat": {"lines": lines, "array": array, "messages": document("messages")},
    "openai-responses": {"lines": lines, "array": array},
    "openhands-v0": {
        "array": array,
        "trajectory": document("trajectory"),
        "history": document("history"),
        "files": files("events/{}.json"),
    },
    "openhands-v1": {"lines": lines, "files": files("events/event-{:05}-a1b2c3d4.json")},
    "pydantic-ai": {"lines": lines, "array": array},
    "strands": {"lines": lines, "array": array, "files": files("messages/message_{}.json")},
    "swe-agent": {"history": document("history", "h.traj", trajectory=[], info={})},
}
FOLDERS = {
    "openai_chat": "openai-chat",
    "openhands_v0": "openhands-v0",
    "openhands_v1": "openhands-v1",
    "swe_agent_traj": "swe-agent",
}


def real_sources(name, folder):
    """Yield the records of each real file, with the function that writes the first of them."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            events = [*path.rglob("event*/*.json")] or [*path.glob("event-*.json")]
            yield path.name, sorted(events, key=_number), _copied(path, events)
        elif path.suffix == ".jsonl":
            yield path.name, path.read_text().splitlines(), _written_lines(path.name)
        else:
            yield path.name, *_in_document(path)


def _number(path):
    return int(re.findall(r"\d+", path.name)[0])


def _copied(source, events):
    beside = [path for path in source.rglob("*.json") if path not in events]

    def write(folder, paths):
        for path in (*beside, *paths):
            target = folder / path.relative_to(source)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(path.read_bytes())

    return write


def _written_lines(name):
    def write(folder, texts):
        (folder / name).write_text("".join(f"{text}\n" for text in texts))

    return write


def _in_document(path):
    """Return the records of a document, and the function that writes a document with the first of
    them. Of several histories, the last one grows.
    """
    value = json.loads(path.read_text())
    is_list = isinstance(value, list)
    before = []
    if is_list and any(key in value[0] for key in _LISTS):
        *before, value = value[:_HISTORIES]
    elif is_list:
        return value, lambda folder, records: (folder / path.name).write_text(json.dumps(records))
    key = next(key for key in _LISTS if value.get(key))
    if "history" in value:
        key = "history"

    def write(folder, records):
        grown = {**value, key: records}
        if len(records) < len(value[key]):
            grown.pop("response", None)  # the model has not answered yet
        text = json.dumps([*before, grown] if is_list else grown)
        (folder / path.name).write_text(text)

    return value[key], write


def import_all(store, folder, name):
    """Import a folder, and return the conversations, or None if there is no history yet."""
    outcomes = [*Import(store, [folder], name)]
    failed = [outcome for outcome in outcomes if not isinstance(outcome, Imported)]
    assert not failed, failed
    return [outcome.conversation for outcome in outcomes] or None


def outcome_of(store, name, target, once):
    """Compare a conversation that grew with the conversation of one import. A title, usage beside
    the records, or a line that cannot be read, becomes an event at the growth that has it, so later
    events have other ids.
    """
    if comparable(store, name) == comparable(target, once):
        return "equal"
    has_changes = any(isinstance(event, DocumentChanges) for event in events_of(store, name))
    is_shown = shown(store, name) == shown(target, once)
    return "equal but for ids" if has_changes and is_shown else "wrong"


def grow(name, label, records, write, most):
    """Import the file after each record, and compare it each time."""
    outcomes = Counter()
    with tempfile.TemporaryDirectory() as temporary, new_store() as store:
        folder = Path(temporary) / "h"
        folder.mkdir()
        for count in range(1, min(len(records), most) + 1):
            write(folder, records[:count])
            names = import_all(store, folder, name)
            if names is None:
                outcomes["no history yet"] += 1
                continue
            for conversation in names:
                Histories(store)[conversation].view()
            with new_store() as target:
                names_once = import_all(target, folder, name)
                if len(names) != len(names_once):
                    result = {"wrong"}
                else:
                    pairs = zip(names, names_once, strict=True)
                    result = {outcome_of(store, source, target, once) for source, once in pairs}
            outcome = max(result, key=["equal", "equal but for ids", "wrong"].index)
            outcomes[outcome] += 1
            if outcome == "wrong":
                print(f"wrong: {name}, {label}, {count} records: {names}", file=sys.stderr)
    return outcomes


def sources_of(name):
    for form, write in FORMS[name].items():
        yield form, records_of(name), write
    for folder, of in FOLDERS.items():
        if of == name and (SAMPLES / folder).is_dir():
            yield from real_sources(name, SAMPLES / folder)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--format", choices=FORMS)
    parser.add_argument("--records", type=int, default=300, help="of a file")
    parser.add_argument("--only", default="", help="a part of the name of a form or real file")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # findings of real files
    total = Counter()
    for name in (arguments.format,) if arguments.format else FORMS:
        for label, records, write in sources_of(name):
            if arguments.only not in label:
                continue
            outcomes = grow(name, label, records, write, arguments.records)
            outcomes["wrong"] += 0
            counts = ", ".join(f"{count:,} {what}" for what, count in sorted(outcomes.items()))
            print(f"| {name} | {label[:40]} | {counts} |", flush=True)
            total += outcomes
    print(f"{total.total():,} places, {total['wrong']} wrong")
    sys.exit(total["wrong"] > 0)


if __name__ == "__main__":
    main()
