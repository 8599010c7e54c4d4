"""A source that grows while it is used: its new events are made at once, from the decoder's state."""

import json
import random
import statistics

import msgspec
import pytest
from zstandard import ZstdCompressor

from foldlog import Histories
from foldlog._imports import making_events, titles
from foldlog._imports.compacting import compacting, note_compaction
from foldlog._imports.importing import Import
from foldlog._imports.writing import SourceWriter
from foldlog._reports.figures.checking import find_wrong_figures
from foldlog._reports.records import decoding
from foldlog.eventstore import (
    DocumentChanges,
    Message,
    Observation,
    Redaction,
    Retraction,
    StoreUnavailable,
)
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.sources.reading import blocks_of
from foldlog.formats.resuming import WINDOW_MAX
from foldlog.projections import Views
from tests.between import before_next_call
from tests.foldlog.formats.test_resuming import NAMES, rounds
from tests.foldlog.imports.imports import (
    KEYS,
    bytes_of,
    events_of,
    figures_of,
    imported,
    new_store as new_store,
    redact_event,
    refused,
    set_sizes,
    source_of,
)
from tests.foldlog.imports.kinds import KINDS, Line
from tests.foldlog.records import records_of, write_lines
from tests.sound import assert_sound

LOGS = [name for name in NAMES if name != "opencode"]
OPENCODE = next(kind for kind in KINDS if kind.format == "opencode")


def turns(stop, start=0):
    """Yield the records from number ``start`` to before number ``stop`` of an ordinary session of
    Claude Code. Each record contains a different word.
    """
    for number in range(start, stop):
        role = "assistant" if number % 2 else "user"
        content = [{"type": "text", "text": f"plank{number:05}"}]
        yield {
            "type": role,
            "uuid": f"u{number}",
            "parentUuid": f"u{number - 1}" if number else None,
            "sessionId": "s1",
            "timestamp": f"2026-02-03T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z",
            "message": {"role": role, "id": f"m{number}", "content": content},
        }


def state_of(store, name):
    """Return the stored state of the decoder, as bytes, or None."""

    def read(reader):
        row = store.database.find(reader, name, as_stored=True)
        (record,) = [*reader.records(row.key, "decoder", 0, 2)] or [None]
        codec = store.database.codec_of(row)
        return record and codec.decoded_record("decoder", record).body

    return store.database.recorder.query(read)


@pytest.fixture
def decoded(monkeypatch):
    """The numbers of records that were decoded: ``decoded()`` returns the number since its last
    call.
    """
    records = []
    original = decoding.events_of

    def counted(decoder, format, record, *stored):
        records.append(record)
        return original(decoder, format, record, *stored)

    def since():
        number = len(records)
        records.clear()
        return number

    monkeypatch.setattr(decoding, "events_of", counted)
    return since


def comparable(store, name):
    history = Histories(store)[name]
    events = events_of(store, name)
    source = source_of(store, name)
    return {
        "events": events,
        "view": history.view().events,
        "earlier": history.at(history.version() // 2).events,
        "figures": figures_of(store, name),
        "attributes": history.attributes(),
        "bytes": bytes_of(store, name),
        "head": source.head,
        "made": (source.made, source.records),
    }


@pytest.mark.parametrize("name", LOGS)
def test_grown_log_equals_one_import(name, tmp_path, store, target):
    records = [*rounds(name, records_of(name))]
    chance = random.Random(name)
    path = tmp_path / "log.jsonl"
    stop = 3
    while stop < len(records):
        write_lines(path, records[:stop])
        conversation = imported(store, path, name).conversation
        events_of(store, conversation)
        stop += chance.choice((1, 1, 2, 3, 40))
    write_lines(path, records)
    assert imported(store, path, name).conversation == conversation
    imported(target, path, name)
    assert comparable(store, conversation) == comparable(target, conversation)
    assert_sound(store)


def test_grown_database_equals_one_import(tmp_path, store, target):
    chance = random.Random(3)
    folder = tmp_path / "ses"
    folder.mkdir()
    path = folder / OPENCODE.file
    records = []
    for number in range(90):
        words = [f"word{chance.randrange(9**9)}" for _ in range(3)]
        line = Line(number, words[0], words[1:], "ses", chance)
        records.append(json.dumps(OPENCODE.record(line)))
        if number > 40 and number % 7 == 0:
            OPENCODE.write(path, records, "")
            conversation = imported(store, path).conversation
            events_of(store, conversation)
    OPENCODE.write(path, records, "")
    assert imported(store, path).conversation == conversation
    imported(target, path)
    assert comparable(store, conversation) == comparable(target, conversation)


def opencode_imported(store, folder, count, title):
    """Import the first records of a session of OpenCode with this title."""
    chance = random.Random(3)
    path = folder / "ses" / OPENCODE.file
    path.parent.mkdir(exist_ok=True)
    lines = [Line(number, f"word{number}", ("a", "b"), "ses", chance) for number in range(count)]
    OPENCODE.write(path, [json.dumps(OPENCODE.record(line)) for line in lines], title)
    return imported(store, path).conversation


@pytest.mark.parametrize("count", [30, 40])
def test_title_beside_the_records_of_a_used_source_follows(count, tmp_path, store):
    history = Histories(store)[opencode_imported(store, tmp_path, 30, "New session")]
    history.view()
    for title in ("Kites", "Kites and planks"):
        opencode_imported(store, tmp_path, count, title)
        assert history.attributes()["title"] == title
        assert figures_of(store, history.id)["title"] == title
    history.set_attributes(title="Mine")
    for more in (0, 10):
        opencode_imported(store, tmp_path, count + more, "Boards")
        assert history.attributes()["title"] == "Mine"
    assert_sound(store)


@pytest.mark.parametrize("more", [0, 1])
def test_chosen_title_stays_also_as_the_title_of_the_program(more, tmp_path, store):
    history = Histories(store)[opencode_imported(store, tmp_path, 30, "Kites")]
    history.view()
    history.set_attributes(title="Mine")
    opencode_imported(store, tmp_path, 30 + more, "Boards")
    history.view()
    history.set_attributes(title="Boards")
    opencode_imported(store, tmp_path, 30 + 2 * more, "Planks")
    assert history.attributes()["title"] == "Boards"
    assert_sound(store)


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_state_after_a_secret_record_is_that_of_the_events(name, tmp_path, store):
    records = records_of(name)
    for stop in range(2, len(records)):
        path = write_lines(tmp_path / f"{stop}.jsonl", records[:stop])
        last = path.read_bytes().splitlines()[-1]
        (outcome,) = Import(
            store,
            [path],
            name,
            conversation=f"c{stop}",
            is_secret=lambda line, last=last: line == last,
        )
        counted = figures_of(store, outcome.conversation)["state"]
        events_of(store, outcome.conversation)
        assert counted == figures_of(store, outcome.conversation)["state"], stop


@pytest.mark.parametrize("is_used", [True, False])
@pytest.mark.parametrize("more", [0, 10])
def test_chosen_title_may_be_the_title_that_the_import_set(more, is_used, tmp_path, store):
    history = Histories(store)[opencode_imported(store, tmp_path, 30, "Kites")]
    if is_used:
        history.view()
    history.set_attributes(title="Kites")
    for title in ("Boards", "Planks"):
        opencode_imported(store, tmp_path, 30 + more, title)
        history.set_attributes(team="red")
        assert history.attributes()["title"] == "Kites"
    assert_sound(store)


def test_title_is_chosen_with_its_note_or_not_at_all(monkeypatch, tmp_path, store):
    history = Histories(store)[opencode_imported(store, tmp_path, 30, "Kites")]
    history.view()

    def stop(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patches:
        patches.setattr(titles, "_forget_set_title", stop)
        with pytest.raises(KeyboardInterrupt):
            history.set_attributes(title="Mine")
    assert history.attributes()["title"] == "Kites"
    opencode_imported(store, tmp_path, 31, "Boards")
    assert history.attributes()["title"] == "Boards"
    assert_sound(store)


def test_redaction_forgets_the_title_that_an_import_set(tmp_path, store):
    history = Histories(store)[opencode_imported(store, tmp_path, 30, "Kites")]
    history.view()
    opencode_imported(store, tmp_path, 31, "Kites and planks")
    assert b"Kites" in source_of(store, history.id).about
    history.redact([0], reason="asked for")
    assert b"Kites" not in source_of(store, history.id).about


@pytest.mark.parametrize("change", ["attributes", "redaction"])
def test_event_of_foldlog_parts_no_call_from_its_result(change, tmp_path, store):
    def record(source, second, **fields):
        return {"source": source, "timestamp": f"2025-01-01T00:00:{second:02}", **fields}

    records = [
        record("user", 0, action="message", args={"content": "Mend kites."}),
        record("agent", 1, action="run", args={"command": "ls"}),
        record("agent", 2, observation="run", content="kites", extras={"command": "ls"}),
    ]
    path = write_lines(tmp_path / "log.jsonl", records[:2])
    history = Histories(store)[imported(store, path, "openhands-v0").conversation]
    history.view()
    if change == "attributes":
        history.set_attributes(team="red")
    else:
        history.redact([0], reason="asked for")
    imported(store, write_lines(path, records), "openhands-v0")
    result = history.view().to_messages()[-1]
    assert (result["role"], result["content"]) == ("tool", "kites")


@pytest.mark.parametrize("name", LOGS)
def test_growth_decodes_the_window(name, tmp_path, store, decoded):
    records = [*rounds(name, records_of(name))]
    path = tmp_path / "log.jsonl"
    numbers = []
    for stop in range(len(records) - 12, len(records)):
        conversation = imported(store, write_lines(path, records[:stop]), name).conversation
        events_of(store, conversation)
        numbers.append(decoded())
    assert statistics.median_high(numbers) <= WINDOW_MAX + 1


def test_growth_makes_the_events_at_once(tmp_path, store, decoded):
    path = write_lines(tmp_path / "log.jsonl", turns(100))
    imported(store, path)
    assert decoded() == 0
    events_of(store, "s1")
    assert decoded() == 100
    imported(store, write_lines(path, turns(103)))
    assert decoded() == WINDOW_MAX + 3
    assert store.conversation("s1", as_stored=True).version == 103
    figures_of(store, "s1")
    events_of(store, "s1")
    assert decoded() == 0


def test_log_without_a_skeleton_is_decoded_once(tmp_path, store, decoded):
    records = records_of("pi")
    name = imported(store, write_lines(tmp_path / "log.jsonl", records), "pi").conversation
    events_of(store, name)
    figures_of(store, name)
    assert decoded() == len(records)


def test_state_has_no_text(tmp_path, store):
    path = write_lines(tmp_path / "log.jsonl", turns(120))
    imported(store, path)
    events_of(store, "s1")
    imported(store, write_lines(path, turns(121)))
    state = state_of(store, "s1")
    assert len(state) < 121 * 20 + 200
    for text in (b"plank", b"u1", b"m1", b"s1", b"assistant", b"2026"):
        assert text not in state


def test_redaction_deletes_the_state(tmp_path, store, decoded):
    path = write_lines(tmp_path / "log.jsonl", turns(80))
    imported(store, path)
    events_of(store, "s1")
    assert state_of(store, "s1") is not None
    assert "plank00030" in str(events_of(store, "s1"))
    Histories(store)["s1"].redact([30], reason="asked for")
    assert state_of(store, "s1") is None
    decoded()
    imported(store, write_lines(path, turns(81)))
    assert decoded() == 81
    imported(store, write_lines(path, turns(82)))
    assert decoded() <= WINDOW_MAX + 2
    texts = str(events_of(store, "s1"))
    assert "plank00081" in texts
    assert "plank00030" not in texts
    assert_sound(store)


def test_redaction_in_a_fork_makes_the_state_invalid(tmp_path, store, decoded):
    lines = [*turns(80)]
    path = write_lines(tmp_path / "log.jsonl", lines)
    imported(store, path)
    events_of(store, "s1")
    later = [*turns(82, 60)]
    fork_path = write_lines(tmp_path / "other.jsonl", [*lines[:20], *later, lines[50]])
    fork = imported(store, fork_path).conversation
    assert fork == "s1@20"
    Histories(store)[fork].redact([len(events_of(store, fork)) - 1], reason="asked for")
    decoded()
    imported(store, write_lines(path, turns(81)))
    assert decoded() == 81
    assert "plank00080" in str(events_of(store, "s1"))


def test_state_of_another_version_is_not_used(tmp_path, store, decoded, monkeypatch):
    path = write_lines(tmp_path / "log.jsonl", turns(80))
    imported(store, path)
    events_of(store, "s1")
    decoded()
    monkeypatch.setattr(making_events, "VERSION", "another")
    imported(store, write_lines(path, turns(81)))
    assert decoded() == 81
    imported(store, write_lines(path, turns(82)))
    assert decoded() == WINDOW_MAX + 1


def test_rewind_decodes_all_once(tmp_path, store, target, decoded):
    lines = [*turns(90)]
    lines[80]["parentUuid"] = "u60"
    path = tmp_path / "log.jsonl"
    numbers = []
    for stop in range(78, 90):
        imported(store, write_lines(path, lines[:stop]))
        events_of(store, "s1")
        numbers.append(decoded())
    assert [number > WINDOW_MAX + 2 for number in numbers].count(True) <= 3
    imported(target, path)
    imported(target, write_lines(path, lines))
    imported(store, path)
    assert comparable(store, "s1") == comparable(target, "s1")


def blocks_in(store, name):
    return [*blocks_of(store.database, source_of(store, name))]


def test_small_blocks_are_joined(tmp_path, store, target):
    path = tmp_path / "log.jsonl"
    for stop in range(1, 121):
        imported(store, write_lines(path, turns(stop)))
        if stop == 2:
            events_of(store, "s1")
    # 120 is 64 + 32 + 16 + 8
    assert len(blocks_in(store, "s1")) <= 6
    imported(target, path)
    assert comparable(store, "s1") == comparable(target, "s1")
    assert_sound(store)


def test_joined_blocks_are_not_larger_than_others(tmp_path, store, monkeypatch):
    set_sizes(monkeypatch, block=4_000)
    path = tmp_path / "log.jsonl"
    for stop in range(1, 121):
        imported(store, write_lines(path, turns(stop)))
    sizes = [len(block.raw) for block in blocks_in(store, "s1")]
    assert max(sizes) <= 4_000
    assert len(sizes) < 2 * sum(sizes) / 2_000
    assert bytes_of(store, "s1") == path.read_bytes()


def test_joined_block_keeps_a_redaction(tmp_path, store):
    path = tmp_path / "log.jsonl"
    for stop in range(60, 70):
        imported(store, write_lines(path, turns(stop)))
        word = f"plank{stop - 1:05}"
        (event_id,) = [event.id for event in events_of(store, "s1") if word in str(event)]
        Histories(store)["s1"].redact([event_id], reason="asked for")
    imported(store, write_lines(path, turns(90)))
    raw = b"".join(block.raw for block in blocks_in(store, "s1"))
    for number in range(90):
        assert (b"plank%05d" % number in raw) == (not 59 <= number < 69)
    assert_sound(store)


def test_blocks_are_joined_while_they_are_read(tmp_path, store, monkeypatch):
    monkeypatch.setattr("foldlog.eventstore.sources.reading._BLOCKS", 1)
    path = tmp_path / "log.jsonl"
    for stop in (32, 48, 56, 60):
        imported(store, write_lines(path, turns(stop)))
    source = source_of(store, "s1")
    reading = blocks_of(store.database, source)
    numbers = []
    for block in reading:
        numbers += range(block.first, block.stop)
        if block.first == 32:
            imported(store, write_lines(path, turns(80)))
            assert len(blocks_in(store, "s1")) == 1
    assert numbers == [*range(60)]


def test_key_keeps_the_source_growing(tmp_path, store):
    path = write_lines(tmp_path / "log.jsonl", turns(80))
    imported(store, path)
    events_of(store, "s1")
    if store.database.settings.keys is None:
        rekey(store.database, KEYS)
    imported(store, write_lines(path, turns(81)))
    assert len(events_of(store, "s1")) == 81


def test_finding_at_a_growth_is_reported(tmp_path, store):
    path = write_lines(tmp_path / "log.jsonl", turns(60))
    imported(store, path)
    events_of(store, "s1")
    odd = {**next(turns(61, 60)), "parentUuid": "nowhere"}
    (finding,) = imported(store, write_lines(path, [*turns(60), odd])).findings
    assert finding.place == f"{path}:61"
    assert "names the parent nowhere" in finding.problem
    path.write_text(path.read_text() + "no JSON\n\n")
    write_lines(tmp_path / "more", [{**next(turns(62, 61)), "parentUuid": "nothing"}])
    path.write_text(path.read_text() + (tmp_path / "more").read_text())
    places = [finding.place for finding in imported(store, path).findings]
    assert places == [f"{path}:62", f"{path}:64"]


def test_title_of_a_used_source_follows(tmp_path, store):
    path = write_lines(tmp_path / "log.jsonl", [{**line, "cwd": "/w"} for line in turns(60)])
    imported(store, path)
    history = Histories(store)["s1"]
    history.view()
    title = {"type": "custom-title", "customTitle": "Planks", "sessionId": "s1"}
    with path.open("a") as file:
        file.write(f"{json.dumps(title)}\n")
        file.write(f"{json.dumps({**next(turns(61, 60)), 'gitBranch': 'side', 'cwd': '/v'})}\n")
    imported(store, path)
    attributes = history.attributes()
    assert (attributes["title"], attributes["branch"], attributes["cwd"]) == (
        "Planks",
        "side",
        "/w",
    )
    assert figures_of(store, "s1")["title"] == "Planks"


def test_growth_that_begins_with_a_side_chain_has_no_parent(tmp_path, store):
    path = write_lines(tmp_path / "log.jsonl", turns(60))
    imported(store, path)
    history = Histories(store)["s1"]
    history.view()
    side = {**next(turns(61, 60)), "parentUuid": None, "isSidechain": True, "agentId": "a1"}
    imported(store, write_lines(path, [*turns(60), side]))
    assert "parent" not in history.attributes()


def test_summary_of_a_used_source_becomes_its_title(tmp_path, store):
    path = write_lines(tmp_path / "log.jsonl", [{**line, "cwd": "/w"} for line in turns(60)])
    imported(store, path)
    history = Histories(store)["s1"]
    history.view()
    summary = {"type": "summary", "summary": "Planks and boards", "leafUuid": "u59"}
    with path.open("a") as file:
        file.write(f"{json.dumps(summary)}\n")
    imported(store, path)
    assert history.attributes()["title"] == "Planks and boards"


def turns_with_a_reply_of_two_lines(*prompts):
    """Return a log whose last two lines are one reply, each with the tokens of its prompt."""
    lines = [*turns(30)]
    for line, tokens in zip(lines[-2:], prompts, strict=True):
        usage = {"input_tokens": tokens, "output_tokens": 2}
        message = {**line["message"], "role": "assistant", "id": "m", "usage": usage, "model": "x"}
        line |= {"type": "assistant", "requestId": "r", "message": message}
    return lines


def test_reply_of_two_lines_is_one_prompt(tmp_path, store):
    lines = turns_with_a_reply_of_two_lines(7, 7)
    path = write_lines(tmp_path / "log.jsonl", lines[:-1])
    imported(store, path)
    Histories(store)["s1"].view()
    assert figures_of(store, "s1")["context"] == [7]
    imported(store, write_lines(path, lines))
    assert figures_of(store, "s1")["context"] == [7]


@pytest.mark.parametrize("prompt", [5, 7, 9])
def test_late_line_of_a_reply_has_the_prompt_that_counts(tmp_path, store, prompt):
    lines = turns_with_a_reply_of_two_lines(7, prompt)
    path = write_lines(tmp_path / "log.jsonl", lines[:-1])
    imported(store, path)
    Histories(store)["s1"].view()
    assert figures_of(store, "s1")["context"] == [7]
    imported(store, write_lines(path, lines))
    assert [*find_wrong_figures(store, Views(store), "s1")] == []
    assert figures_of(store, "s1")["context"] == [prompt]
    assert [*find_wrong_figures(store, Views(store), "s1")] == []
    with new_store() as other:
        imported(other, path)
        Histories(other)["s1"].view()
        assert figures_of(other, "s1") == figures_of(store, "s1")


def test_compaction_is_noted_after_growths(tmp_path, store):
    path = write_lines(tmp_path / "log.jsonl", turns(60))
    imported(store, path)
    events_of(store, "s1")
    imported(store, write_lines(path, turns(70)))
    note_compaction(store, "s1")
    imported(store, write_lines(path, turns(71)))
    assert compacting(store, "s1") is not None
    imported(store, write_lines(path, turns(72)))
    assert compacting(store, "s1") is None


def test_repeated_reply_does_not_prolong_a_compaction(tmp_path, store):
    path = write_lines(tmp_path / "log.jsonl", turns(60))
    imported(store, path)
    events_of(store, "s1")
    lines = [*turns(70), *turns(2, 1)]
    imported(store, write_lines(path, lines))
    note_compaction(store, "s1")
    imported(store, write_lines(path, [*lines, *turns(72, 70)]))
    assert compacting(store, "s1") is None


def texts_in(value):
    if type(value) is str:
        yield value
    elif type(value) in (list, dict):
        for member in value.values() if type(value) is dict else value:
            yield from texts_in(member)


@pytest.mark.parametrize("name", LOGS)
def test_state_of_no_format_has_a_text(name, tmp_path, store):
    records = [*rounds(name, records_of(name))]
    path = tmp_path / "log.jsonl"
    found = 0
    for stop in range(len(records) - 6, len(records)):
        conversation = imported(store, write_lines(path, records[:stop]), name).conversation
        events_of(store, conversation)
        state = state_of(store, conversation)
        if state is None:  # the last record changed earlier records
            continue
        found += 1
        facts = msgspec.msgpack.decode(state)["state"][-1]
        assert not [*texts_in(facts)]
        for text in {*texts_in(records), conversation} - facts.keys():
            assert len(text) < 5 or text.encode() not in state
    assert found > 1


def grown(store, path, lines, name, *stops):
    """Import the log at each of these lengths, with a use of the conversation after each."""
    for stop in (*stops, len(lines)):
        path.write_bytes(b"".join(line + b"\n" for line in lines[:stop]))
        conversation = imported(store, path, name).conversation
        Histories(store)[conversation].view()
    return conversation


def lines_of(name):
    return [json.dumps(record).encode() for record in rounds(name, records_of(name))]


def shown(store, conversation):
    """Return what a store shows of a conversation, without the ids of events."""
    history = Histories(store)[conversation]
    return {
        "messages": history.view().to_messages(),
        "origins": [event.origin for event in events_of(store, conversation) if event.origin],
        "bytes": bytes_of(store, conversation),
        "head": source_of(store, conversation).head,
        "attributes": history.attributes(),
        "calls": figures_of(store, conversation)["calls"],
    }


@pytest.mark.parametrize("name", LOGS)
def test_damaged_line_in_a_growth_is_kept_as_in_one_import(name, tmp_path, store, target):
    lines = lines_of(name)
    place = len(lines) - 8
    lines[place:place] = [b'{"damaged": ', b"\0\0\0\0"]
    path = tmp_path / "log.jsonl"
    conversation = grown(store, path, lines, name, *range(place - 3, len(lines)))
    assert grown(target, path, lines, name) == conversation
    assert shown(store, conversation) == shown(target, conversation)
    assert_sound(store)


@pytest.mark.parametrize("name", LOGS)
def test_rewritten_file_begins_a_fork_that_grows(name, tmp_path, store, target):
    lines = lines_of(name)
    middle = len(lines) - 20
    rewritten = [*lines[:middle], *lines[middle + 2 :]]
    path = tmp_path / "log.jsonl"
    stops_before = range(middle - 2, middle + 8)
    stops_after = range(middle + 10, len(rewritten))
    for growing, before, after in ((store, stops_before, stops_after), (target, (), ())):
        first = grown(growing, path, lines[: middle + 8], name, *before)
        fork = grown(growing, path, rewritten, name, *after)
        assert fork == f"{first}@{middle}"
    for conversation in (first, fork):
        assert shown(store, conversation) == shown(target, conversation)
    assert_sound(store)


@pytest.mark.parametrize("name", LOGS)
def test_an_erased_log_is_imported_again_on_request(name, tmp_path, store, target):
    lines = lines_of(name)
    path = tmp_path / "log.jsonl"
    conversation = grown(store, path, lines[:60], name, 50, 55)
    Histories(store).erase(conversation, reason="asked for")
    path.write_bytes(b"".join(line + b"\n" for line in lines[:61]))
    assert "was erased" in str(refused(store, path, name))
    imported(store, path, name, again=True)
    assert grown(store, path, lines[:70], name, 62, 64) == conversation
    assert grown(target, path, lines[:70], name) == conversation
    assert comparable(store, conversation) == comparable(target, conversation)


@pytest.mark.parametrize("stops", [(4,), (1, 4), (1, 2, 3, 4), (3, 4), (1, 7)])
def test_erased_document_refuses_only_itself(stops, tmp_path, store):
    first, second = chat("kite"), chat("plank")
    for stop in stops:
        path = write_lines(tmp_path / "first.jsonl", first[:stop])
        conversation = imported(store, path, "openai-chat").conversation
    Histories(store).erase(conversation, reason="asked for")
    other = write_lines(tmp_path / "second.jsonl", second)
    assert imported(store, other, "openai-chat").records == len(second)
    path.rename(tmp_path / "third.jsonl")
    assert "was erased" in str(refused(store, tmp_path / "third.jsonl", "openai-chat"))


@pytest.mark.parametrize("records", [1, 2, 3, 4, 5])
def test_erased_document_is_refused_from_an_earlier_copy(records, tmp_path, store, target):
    said = chat("kite")
    path = tmp_path / "first.jsonl"
    for stop in (1, 3, 5):
        conversation = imported(store, write_lines(path, said[:stop]), "openai-chat").conversation
    copy = write_lines(tmp_path / "copy.jsonl", said[:records])
    other = imported(target, copy, "openai-chat").conversation
    Histories(store).erase(conversation, reason="asked for")
    assert "erased" in str(refused(store, copy, "openai-chat"))
    (copied,) = copy_store(target, store, other)
    assert "erased" in copied.problem
    assert imported(store, copy, "openai-chat", again=True).records == records


def test_refused_beginning_leaves_the_other_sources_together(monkeypatch, tmp_path, store):
    erased = chat("kite")
    for stop in (2, 5):
        path = write_lines(tmp_path / "log.jsonl", erased[:stop])
        conversation = imported(store, path, "openai-chat").conversation
    Histories(store).erase(conversation, reason="asked for")
    folder = tmp_path / "folder"
    folder.mkdir()
    write_lines(folder / "copy.jsonl", erased[:2])
    for word in ("plank", "board"):
        write_lines(folder / f"{word}.jsonl", chat(word))
    alone = []
    import_alone = Import._import

    def note(self, history):
        alone.append(history.path.name)
        return import_alone(self, history)

    monkeypatch.setattr(Import, "_import", note)
    outcomes = [*Import(store, [folder], "openai-chat")]
    assert [type(outcome).__name__ for outcome in outcomes].count("Failed") == 1
    assert alone == ["copy.jsonl"]


def test_a_source_that_cannot_be_finished_stops_no_other(monkeypatch, tmp_path, store):
    for word in ("plank", "board"):
        write_lines(tmp_path / f"{word}.jsonl", chat(word))
    finish = SourceWriter.finish

    def fail_once(self, source):
        if self.found_history.path.name == "board.jsonl":
            raise StoreUnavailable("the server is away", kind="away")
        finish(self, source)

    monkeypatch.setattr(SourceWriter, "finish", fail_once)
    failed, done = Import(store, [tmp_path], "openai-chat")
    assert (failed.path.name, failed.added, str(failed.error)) == (
        "board.jsonl",
        7,
        "the server is away",
    )
    assert (done.path.name, done.added) == ("plank.jsonl", 7)


def chat(word):
    """Return a prompt that all chats have, and six messages of one chat, each with this word."""
    return [
        {"role": "system", "content": "Mend kites."},
        *({"role": role, "content": f"{word} {turn}"} for turn in (1, 2, 3) for role in ROLES),
    ]


ROLES = ("user", "assistant")

THREE_LOGS = ("claude-code", "codex", "pi")


def write(path, lines):
    path.write_bytes(b"".join(line + b"\n" for line in lines))


@pytest.mark.parametrize("name", THREE_LOGS)
def test_moved_file_goes_on_with_its_conversation(name, tmp_path, store, target):
    lines = lines_of(name)
    path = tmp_path / "log.jsonl"
    conversation = grown(store, path, lines[:60], name, 40, 50)
    moved = tmp_path / "elsewhere" / "log.jsonl"
    moved.parent.mkdir()
    path.rename(moved)
    assert grown(store, moved, lines[:75], name, 61, 62, 70) == conversation
    assert grown(target, path, lines[:75], name) == conversation
    assert comparable(store, conversation) == comparable(target, conversation)
    assert [*Histories(store)] == [conversation]
    assert_sound(store)


@pytest.mark.parametrize("end", [b"\n", b"\r\n\n"])
@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("is_continued", [True, False])
def test_last_line_that_ends_later(end, moves, is_packed, is_continued, tmp_path, store, target):
    lines = lines_of("pi")[:40]
    path = tmp_path / ("log.jsonl.zst" if is_packed else "log.jsonl")
    for stop in (10, 20, 40):
        data = end.join(lines[:stop]) + (end if stop == 40 else b"")
        path.write_bytes(ZstdCompressor().compress(data) if is_packed else data)
        conversation = imported(store, path, "pi").conversation
        history = Histories(store)[conversation]
        if stop == 20 and is_continued:
            history.append(Message(content="mine", source="user"))
        if moves:
            path = path.rename(tmp_path / f"{stop}{''.join(path.suffixes)}")
    assert bytes_of(store, conversation) == data
    if not is_continued:
        imported(target, path, "pi")
        assert comparable(store, conversation) == comparable(target, conversation)


@pytest.mark.parametrize("name", THREE_LOGS)
def test_cut_file_goes_on_with_its_conversation(name, tmp_path, store, target):
    lines = lines_of(name)
    path = tmp_path / "log.jsonl"
    conversation = grown(store, path, lines[:60], name, 50)
    write(path, lines[:55])
    assert imported(store, path, name).is_older
    assert grown(store, path, lines[:70], name, 56, 60, 61) == conversation
    grown(target, path, lines[:70], name)
    assert comparable(store, conversation) == comparable(target, conversation)
    assert [*Histories(store)] == [conversation]


@pytest.mark.parametrize("name", THREE_LOGS)
def test_file_of_equal_size_begins_a_fork(name, tmp_path, store):
    lines = lines_of(name)
    path = tmp_path / "log.jsonl"
    conversation = grown(store, path, lines[:60], name, 50)
    changed = [*lines[:70]]
    word = next(text for text in texts_in(json.loads(lines[40])) if len(text) > 12)
    changed[40] = lines[40].replace(json.dumps(word).encode(), json.dumps(word[::-1]).encode())
    assert changed[40] != lines[40]
    write(path, changed[:60])
    assert imported(store, path, name).conversation == f"{conversation}@40"
    assert grown(store, path, changed, name, 61, 62) == f"{conversation}@40"
    assert bytes_of(store, conversation) == b"".join(line + b"\n" for line in lines[:60])
    assert bytes_of(store, f"{conversation}@40") == path.read_bytes()
    assert_sound(store)


@pytest.mark.parametrize("name", THREE_LOGS)
@pytest.mark.parametrize("reads_first", [True, False])
def test_two_hooks_at_once_import_as_one(name, reads_first, tmp_path, store, target, monkeypatch):
    lines = lines_of(name)
    path = tmp_path / "log.jsonl"
    conversation = grown(store, path, lines[:60], name, 50)
    method = "query" if reads_first else "transact"
    for stop in range(61, 66):
        write(path, lines[:stop])
        before_next_call(
            monkeypatch,
            store.database.recorder,
            method,
            lambda: (imported(store, path, name), Histories(store)[conversation].view()),
        )
        imported(store, path, name)
    grown(target, path, lines[:65], name)
    assert comparable(store, conversation) == comparable(target, conversation)
    assert_sound(store)


@pytest.mark.parametrize("name", THREE_LOGS)
def test_a_crash_between_records_and_events_loses_none(name, tmp_path, store, target, monkeypatch):
    lines = lines_of(name)
    path = tmp_path / "log.jsonl"
    conversation = grown(store, path, lines[:60], name, 50)
    for stop in range(61, 70):
        write(path, lines[:stop])
        if stop % 3 != 1:
            with monkeypatch.context() as patch:
                patch.setattr("foldlog._imports.writing.make_events", lambda *_, **__: None)
                imported(store, path, name)
            source = source_of(store, conversation)
            assert source.made < source.records
        else:
            imported(store, path, name)
    Histories(store)[conversation].view()
    grown(target, path, lines[:69], name)
    assert comparable(store, conversation) == comparable(target, conversation)
    assert_sound(store)


def redacted_and_grown(name, tmp_path, records, stop, event_id):
    """Return the messages of a View, the kinds of events and the title in two stores. In the first
    store, a log of ``stop`` records was used and redacted, and then it grew. In the second store,
    the whole log was imported, and then redacted.
    """
    path = tmp_path / "log.jsonl"
    stores = []
    for stops in ((stop, len(records)), (len(records),)):
        store = new_store()
        for place, number in enumerate(stops):
            conversation = imported(store, write_lines(path, records[:number]), name).conversation
            events_of(store, conversation)
            if place == 0:
                redact_event(store, conversation, event_id)
        messages = Histories(store)[conversation].view().to_messages()
        kinds = [
            (type(event).__name__, event.shown)
            for event in events_of(store, conversation)
            if not isinstance(event, Redaction)
        ]
        stores.append((messages, kinds, figures_of(store, conversation)["title"]))
        assert_sound(store)
    return stores


COMPACTED = {
    "claude-code": [
        *turns(2),
        {
            "type": "system",
            "subtype": "compact_boundary",
            "uuid": "b",
            "parentUuid": None,
            "logicalParentUuid": "u1",
            "sessionId": "s1",
            "compactMetadata": {"trigger": "auto", "preTokens": 9},
        },
        {
            "type": "user",
            "uuid": "s",
            "parentUuid": "b",
            "sessionId": "s1",
            "isCompactSummary": True,
            "message": {"role": "user", "content": "the summary"},
        },
    ],
    "gemini-cli": [
        {"sessionId": "s1", "projectHash": "h", "startTime": "2026-02-03T09:00:00.000Z"},
        {
            "id": "u1",
            "type": "user",
            "timestamp": "2026-02-03T09:00:01.000Z",
            "content": [{"text": "plank00000"}],
        },
        {
            "id": "g1",
            "type": "gemini",
            "timestamp": "2026-02-03T09:00:02.000Z",
            "content": "plank00001",
        },
        {
            "$set": {
                "messages": [
                    {
                        "id": "c1",
                        "type": "user",
                        "content": [{"text": "<state_snapshot>the summary</state_snapshot>"}],
                    }
                ]
            }
        },
    ],
}
"""Logs whose last records are a compaction, after a message of a user and a reply."""


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("name", COMPACTED)
def test_compaction_forgets_a_redacted_message(name, place, tmp_path):
    records = COMPACTED[name]
    stop = records.index(next(record for record in records if "plank00001" in str(record))) + 1
    event_id = stop - 2 + place
    grown, whole = redacted_and_grown(name, tmp_path, records, stop, event_id)
    assert "the summary" in str(grown)
    assert "[redacted]" not in str(grown[0])
    assert grown == whole


def pi_entries(*messages):
    """Yield a session of pi. A message is a pair of the number of its parent and its fields."""
    yield {"type": "session", "version": 3, "id": "s1", "timestamp": "2026-02-03T09:00:00.000Z"}
    for number, (parent, message) in enumerate(messages):
        yield {
            "type": "message",
            "id": f"e{number}",
            "parentId": None if parent is None else f"e{parent}",
            "timestamp": f"2026-02-03T09:00:{number + 1:02}.000Z",
            "message": message,
        }


@pytest.mark.parametrize("is_damaged", [True, False])
def test_finding_of_an_import_that_was_stopped_is_reported(
    is_damaged, tmp_path, store, monkeypatch
):
    call = {"type": "toolCall", "id": "t1", "name": "read", "arguments": {}}
    asked = {"role": "user", "content": "look"}
    messages = [asked, {"role": "assistant", "content": [call]}, asked]
    records = [
        *pi_entries(*((number - 1 if number else None, m) for number, m in enumerate(messages)))
    ]
    path = write_lines(tmp_path / "log.jsonl", records[:3])
    imported(store, path, "pi")
    write_lines(path, records)
    with monkeypatch.context() as patch:
        patch.setattr("foldlog._imports.writing.make_events", lambda *_, **__: None)
        imported(store, path, "pi")
    write_lines(path, [*records, {**records[-1], "id": "e3", "parentId": "e2"}])
    if is_damaged:
        path.write_text(path.read_text() + "no JSON\n\n")
    places = [finding.place for finding in imported(store, path, "pi").findings]
    assert places == [f"{path}, record 3", *([f"{path}:6"] if is_damaged else [])]


PARALLEL = [
    (None, {"role": "user", "content": "look"}),
    (
        0,
        {
            "role": "assistant",
            "content": [
                {"type": "toolCall", "id": call_id, "name": "read", "arguments": {}}
                for call_id in ("t1", "t2")
            ],
        },
    ),
    (1, {"role": "toolResult", "toolCallId": "t1", "toolName": "read", "content": "x"}),
    (2, {"role": "toolResult", "toolCallId": "t2", "toolName": "read", "content": "y"}),
    (3, {"role": "assistant", "content": [{"type": "text", "text": "read"}]}),
    (4, {"role": "user", "content": "one branch"}),
    (4, {"role": "user", "content": "other branch"}),
]


@pytest.mark.parametrize("stop", [5, 6, 7])
@pytest.mark.parametrize("result", [4, 5])
def test_rewind_after_a_redacted_parallel_result(result, stop, tmp_path):
    records = [*pi_entries(*PARALLEL)]
    grown, whole = redacted_and_grown("pi", tmp_path, records, stop, result)
    assert "one branch" not in str(grown)
    assert grown == whole


def copilot_records(*types_and_data):
    """Return a session of Copilot CLI with the types and the data of its records."""
    return [
        {
            "type": kind,
            "data": data,
            "id": f"e{number}",
            "timestamp": f"2026-02-03T09:00:{number:02}.000Z",
            "parentId": f"e{number - 1}" if number else None,
        }
        for number, (kind, data) in enumerate(types_and_data)
    ]


def asks(message, *calls):
    requests = [{"toolCallId": call, "name": "bash", "arguments": {}} for call in calls]
    return "assistant.message", {"messageId": message, "content": "", "toolRequests": requests}


def copilot_compaction(summary):
    return "session.compaction_complete", {"success": True, "summaryContent": summary}


def qwen_lines(*lines):
    """Return a session of Qwen Code with the fields of its lines."""
    return [
        {
            "uuid": f"l{number}",
            "parentUuid": f"l{number - 1}" if number else None,
            "sessionId": "s1",
            "timestamp": f"2026-02-03T09:00:{number:02}.000Z",
            **fields,
        }
        for number, fields in enumerate(lines)
    ]


def qwen_says(role, part):
    kind = "assistant" if role == "model" else "user"
    return {"type": kind, "message": {"role": role, "parts": [part]}}


QWEN_CALL = qwen_says("model", {"functionCall": {"id": "c1", "name": "look", "args": {}}})
QWEN_RESULT = {
    **qwen_says(
        "user", {"functionResponse": {"id": "c1", "name": "look", "response": {"output": "late"}}}
    ),
    "type": "tool_result",
}
QWEN_COMPACTION = {
    "type": "system",
    "subtype": "chat_compression",
    "systemPayload": {"compressedHistory": [{"role": "user", "parts": [{"text": "summary"}]}]},
}
GEMINI = COMPACTED["gemini-cli"]
GEMINI_REPLY = {
    "id": "g2",
    "type": "gemini",
    "timestamp": "2026-02-03T09:00:09.000Z",
    "content": "",
    "toolCalls": [{"id": "t1", "name": "look", "args": {}, "status": "scheduled"}],
}
GEMINI_ANSWERED = {
    **GEMINI_REPLY,
    "toolCalls": [
        {
            **GEMINI_REPLY["toolCalls"][0],
            "status": "success",
            "result": [{"functionResponse": {"id": "t1", "response": {"output": "seen"}}}],
        }
    ],
}


def resumed(*messages):
    """Return the records of Gemini CLI that resume a session."""
    return [GEMINI[0], {"$set": {"messages": [*messages]}}]


def test_rewind_changes_no_figure_of_a_message_that_came_twice(tmp_path, store, target):
    path = tmp_path / "log.jsonl"
    records = [*GEMINI[:3], {**GEMINI[2], "content": "plank00002"}, {"$rewindTo": "u1"}]
    for stop in (4, 5):
        imported(store, write_lines(path, records[:stop]))
        figures_of(store, "s1")
    imported(target, path)
    for stored in (store, target):
        assert Histories(stored)["s1"].stats().events["retraction"] == 1
        assert [*find_wrong_figures(stored, Views(stored), "s1")] == []


NAMED_BEFORE = {
    "claude-code": [
        *turns(3),
        {
            **COMPACTED["claude-code"][2],
            "logicalParentUuid": "u2",
            "compactMetadata": {
                "preservedSegment": {"headUuid": "u1", "tailUuid": "u4", "anchorUuid": "b"}
            },
        },
        *(
            {**turn, "parentUuid": "u1" if number == 3 else f"u{number - 1}"}
            for number, turn in enumerate(turns(7, 3), 3)
        ),
    ],
    "gemini-cli": [
        *GEMINI[:3],
        {
            "$set": {
                "messages": [
                    GEMINI[3]["$set"]["messages"][0],
                    {"id": "c2", "type": "gemini", "content": "seen"},
                ]
            }
        },
        *({**GEMINI[1], "id": f"u{number}"} for number in range(2, 5)),
        {"id": "c2", "type": "gemini", "content": "seen, and mended"},
        {**GEMINI[1], "id": "u5"},
    ],
}
"""Logs in which a record names a later message, or has a message without a record of its own. This
record is soon before the window. A line then follows or replaces the message.
"""


@pytest.mark.parametrize("name", NAMED_BEFORE)
def test_message_that_only_another_record_names_is_known_in_a_growth(
    name, tmp_path, target, monkeypatch
):
    records = NAMED_BEFORE[name]
    lines = [json.dumps(record).encode() for record in records]
    path = tmp_path / "log.jsonl"
    conversation = grown(target, path, lines, name)
    whole = comparable(target, conversation)
    assert Retraction in map(type, whole["events"])
    every = range(1, len(lines))
    for stops in (*([stop] for stop in every), every):
        with new_store() as store:
            assert grown(store, path, lines, name, *stops) == conversation
            assert comparable(store, conversation) == whole, stops
            assert_sound(store)
    with new_store() as store:
        grown(store, path, lines[:-1], name, *every[:-1])
        monkeypatch.setattr(making_events, "VERSION", "another")
        grown(store, path, lines, name)
        assert comparable(store, conversation) == whole


def in_lines(number, parent, message, block):
    """Return a line of Claude Code with a block of the response ``message``. If ``message`` is
    empty, the block is of a user.
    """
    (line,) = turns(number + 1, number)
    role = "assistant" if message else "user"
    said = {"role": role, "content": [block]} | ({"id": message} if message else {})
    return {**line, "type": role, "parentUuid": parent, "message": said}


PARTS = {
    "claude-code": [
        *turns(3),
        # The step back to the first reply ends the window before the second call of the response.
        in_lines(3, "u1", "m3", {"type": "tool_use", "id": "c1", "name": "look", "input": {}}),
        in_lines(4, "u3", "m3", {"type": "tool_use", "id": "c2", "name": "look", "input": {}}),
        in_lines(5, "u4", "", {"type": "tool_result", "tool_use_id": "c2", "content": "seen"}),
        in_lines(6, "u5", "m6", {"type": "text", "text": "mended"}),
        *turns(9, 7),
    ],
    "copilot-cli": copilot_records(
        ("session.start", {"sessionId": "s1"}),
        ("system.message", {"content": "mend kites"}),
        ("user.message", {"content": "go on"}),
        asks("m1", "c1"),
        # The new system prompt ends the window before the second call of the response.
        ("system.message", {"content": "mend boats"}),
        asks("m1", "c2"),
        ("tool.execution_complete", {"toolCallId": "c2", "result": {"content": "seen"}}),
        ("assistant.message", {"messageId": "m2", "content": "mended"}),
        ("user.message", {"content": "go on"}),
    ),
}
"""Logs with a response of two records, each with a call. The window begins between them, and only
the second call gets a result.
"""


@pytest.mark.parametrize("stop", range(1, 9))
@pytest.mark.parametrize("name", PARTS)
def test_window_may_begin_in_the_middle_of_a_response(name, stop, tmp_path, store, target):
    lines = [json.dumps(record).encode() for record in PARTS[name]]
    path = tmp_path / "log.jsonl"
    conversation = grown(store, path, lines, name, stop)
    assert grown(target, path, lines, name) == conversation
    whole = comparable(target, conversation)
    results = [event.call_id for event in whole["events"] if isinstance(event, Observation)]
    assert results == ["c2", "c1"]
    assert comparable(store, conversation) == whole


def openhands_events(*events):
    """Return the events of OpenHands V0, with their ids and times."""
    return [
        {
            "id": number,
            "timestamp": f"2026-02-03T09:00:{number:02}",
            "source": "agent",
            **event,
        }
        for number, event in enumerate(events)
    ]


def requested(function):
    """Return the call of a model as OpenHands V0 stores it with an action and its result."""
    call = {"id": "c1", "type": "function", "function": {"name": function, "arguments": "{}"}}
    choices = [{"message": {"content": "", "tool_calls": [call]}}]
    return {
        "function_name": function,
        "tool_call_id": "c1",
        "model_response": {"id": "r1", "model": "m", "choices": choices},
    }


REDACTED = {
    "copilot-cli, the message of the title": (
        "copilot-cli",
        copilot_records(
            ("session.start", {"sessionId": "s1"}),
            ("user.message", {"content": "mend the kite"}),
            ("session.title_changed", {"title": "Kites"}),
            asks("m1"),
            ("user.message", {"content": "and fly it"}),
        ),
        4,
        1,
    ),
    "copilot-cli, a compaction that forgot a call": (
        "copilot-cli",
        copilot_records(
            ("session.start", {"sessionId": "s1"}),
            asks("m1", "t1", "t2"),
            ("tool.execution_complete", {"toolCallId": "t1", "result": {"content": "x"}}),
            copilot_compaction("the kite flies"),
            ("user.message", {"content": "go on"}),
            asks("m2", "t3"),
        ),
        5,
        4,
    ),
    "copilot-cli, a compaction during which somebody wrote": (
        "copilot-cli",
        copilot_records(
            ("session.start", {"sessionId": "s1"}),
            ("user.message", {"content": "mend the kite"}),
            ("session.compaction_start", {}),
            ("user.message", {"content": "and fly it"}),
            copilot_compaction("the kite is mended"),
            ("user.message", {"content": "higher"}),
            copilot_compaction("the kite flies"),
        ),
        5,
        4,
    ),
    "qwen-code, a compaction that forgot a call": (
        "qwen-code",
        qwen_lines(
            qwen_says("user", {"text": "mend the kite"}), QWEN_CALL, QWEN_COMPACTION, QWEN_RESULT
        ),
        3,
        2,
    ),
    "qwen-code, a compaction before a message": (
        "qwen-code",
        qwen_lines(
            qwen_says("user", {"text": "mend the kite"}),
            QWEN_CALL,
            QWEN_COMPACTION,
            qwen_says("user", {"text": "fly it"}),
        ),
        3,
        2,
    ),
    "claude-code, a compaction between parallel calls": (
        "claude-code",
        [
            *turns(1),
            {
                **next(turns(2, 1)),
                "message": {
                    "role": "assistant",
                    "id": "m1",
                    "content": [
                        {"type": "tool_use", "id": name, "name": "look", "input": {}}
                        for name in ("t1", "t2")
                    ],
                },
            },
            {
                **next(turns(3, 2)),
                "message": {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}],
                },
            },
            {**COMPACTED["claude-code"][2], "logicalParentUuid": "u2"},
            COMPACTED["claude-code"][3],
            {**next(turns(4, 3)), "parentUuid": "s"},
        ],
        5,
        5,
    ),
    "gemini-cli, a reply that a resumed session repeats": (
        "gemini-cli",
        [
            *GEMINI[:2],
            GEMINI_ANSWERED,
            *resumed(GEMINI[1], GEMINI_ANSWERED),
            {**GEMINI[2], "id": "g3"},
            {**GEMINI[2], "id": "g3", "content": "plank00002"},
        ],
        5,
        2,
    ),
    "gemini-cli, a reply that a resumed session repeats under another id": (
        "gemini-cli",
        [
            *GEMINI[:2],
            GEMINI_ANSWERED,
            *resumed(GEMINI[1], {**GEMINI_ANSWERED, "id": "g9"}),
            {**GEMINI[2], "id": "g3"},
            {**GEMINI[2], "id": "g3", "content": "plank00002"},
        ],
        5,
        2,
    ),
    "gemini-cli, a reply that is repeated in another form later": (
        "gemini-cli",
        [
            *GEMINI[:2],
            GEMINI_ANSWERED,
            *resumed(
                GEMINI[1],
                {
                    "id": "g2",
                    "type": "gemini",
                    "timestamp": "2026-02-03T09:00:09.000Z",
                    "content": [{"functionCall": {"id": "t1", "name": "look", "args": {}}}],
                },
                {
                    **GEMINI[1],
                    "id": "u2",
                    "content": [{"functionResponse": {"id": "t1", "response": {"output": "seen"}}}],
                },
            ),
        ],
        4,
        3,
    ),
    "gemini-cli, a compaction before a reply that comes twice": (
        "gemini-cli",
        [*GEMINI, {**GEMINI[2], "id": "g3"}, {**GEMINI[2], "id": "g3", "content": "plank00002"}],
        4,
        3,
    ),
    "gemini-cli, a rewind before another": (
        "gemini-cli",
        [
            *GEMINI[:3],
            GEMINI_REPLY,
            {"$rewindTo": "g2"},
            {**GEMINI[2], "id": "g3"},
            {"$rewindTo": "g3"},
        ],
        5,
        4,
    ),
    "openhands-v0, a delegation that a model's function began": (
        "openhands-v0",
        openhands_events(
            {"source": "user", "action": "message", "args": {"content": "mend the kite"}},
            {
                "action": "delegate",
                "args": {"agent": "BrowsingAgent"},
                "tool_call_metadata": requested("delegate_to_browsing_agent"),
            },
            {"action": "run", "args": {"command": "ls"}},
            {"observation": "run", "cause": 2, "content": "plank"},
            {
                "observation": "delegate",
                "cause": 1,
                "content": "done",
                "tool_call_metadata": requested("delegate_to_browsing_agent"),
            },
            {"action": "message", "args": {"content": "it flies"}},
        ),
        2,
        1,
    ),
    "openhands-v0, an action of the user": (
        "openhands-v0",
        openhands_events(
            {"source": "user", "action": "message", "args": {"content": "mend the kite"}},
            {"source": "user", "action": "run", "args": {"command": "ls"}},
            {"source": "user", "observation": "run", "cause": 1, "content": "plank"},
            {"action": "message", "args": {"content": "it flies"}},
        ),
        2,
        1,
    ),
    "codex, an instruction before a rollback": (
        "codex",
        [
            {
                "timestamp": f"2026-02-03T09:00:0{number}.000Z",
                "type": kind,
                "payload": payload,
            }
            for number, (kind, payload) in enumerate(
                (
                    ("session_meta", {"id": "s1", "timestamp": "2026-02-03T09:00:00.000Z"}),
                    ("event_msg", {"type": "agent_message", "message": "plank"}),
                    (
                        "response_item",
                        {
                            "type": "message",
                            "role": "user",
                            "content": [{"type": "input_text", "text": "mend the kite"}],
                        },
                    ),
                    ("event_msg", {"type": "thread_rolled_back", "num_turns": 1}),
                )
            )
        ],
        3,
        2,
    ),
}
"""Logs by what is redacted in them: the format, the records, how many of them are imported before
the redaction, and the id of the event that is redacted.
"""


@pytest.mark.parametrize("what", REDACTED)
def test_redacted_record_before_a_growth(what, tmp_path):
    name, records, stop, event_id = REDACTED[what]
    grown, whole = redacted_and_grown(name, tmp_path, records, stop, event_id)
    assert grown == whole


def chatgpt_node(name, parent, role, text, **message):
    """Return a node of an export of ChatGPT."""
    if role is not None:
        message = {
            "author": {"role": role},
            "content": {"content_type": "text", "parts": [text]},
            "create_time": 1.7e9 + int(name[1:]),
            **message,
        }
    return {"id": name, "parent": parent, "children": [], "message": message or None}


CHATGPT = [
    chatgpt_node("n0", None, None, ""),
    chatgpt_node("n1", "n0", "user", "mend the kite"),
    chatgpt_node("n2", "n1", "assistant", "x = 1", recipient="python"),
    chatgpt_node("n3", "n2", "assistant", "first"),
    chatgpt_node("n4", "n3", "tool", "RESULT"),
    chatgpt_node("n5", "n2", "tool", "OTHER"),
    chatgpt_node("n6", "n1", "assistant", "second"),
    chatgpt_node("n7", "n6", "user", "go on"),
    chatgpt_node("n8", "n0", "user", "fly it"),
    chatgpt_node("n9", "n8", "assistant", "it flies"),
]
"""Four branches: two results of a call, another answer, and another question."""


def chatgpt_imported(store, path, stop, newest):
    """Import the first nodes of an export whose site shows the branch of ``newest``."""
    nodes = {node["id"]: node for node in CHATGPT[:stop]}
    export = {"title": "Kites", "conversation_id": "c1", "mapping": nodes}
    path.write_text(json.dumps([{**export, "current_node": newest}]))
    return imported(store, path, "chatgpt").conversation


@pytest.mark.parametrize(
    "stop, redacted", [(stop, event) for stop in range(2, 10) for event in range(1, stop)]
)
def test_growth_of_a_tree_after_a_redaction(stop, redacted, tmp_path):
    said = []
    node = CHATGPT[redacted]["id"]
    for stops in ((stop, len(CHATGPT)), (len(CHATGPT),)):
        with new_store() as store:
            for place, count in enumerate(stops):
                newest = CHATGPT[count - 1]["id"]
                conversation = chatgpt_imported(store, tmp_path / "c.json", count, newest)
                events = events_of(store, conversation)
                (event_id,) = (
                    event.id for event in events if event.origin and event.origin.id == node
                )
                if place == 0:
                    redact_event(store, conversation, event_id)
            history = Histories(store)[conversation]
            said.append(
                [
                    (type(event), history.at(event.id + 1).to_messages())
                    for event in events_of(store, conversation)
                    if not isinstance(event, DocumentChanges | Redaction)
                ]
            )
            assert_sound(store)
    assert said[0] == said[1]


@pytest.mark.parametrize(
    "name, stop, event_id",
    [
        ("anthropic-messages", 4, 0),
        ("anthropic-messages", 4, 2),
        ("anthropic-messages", 8, 1),
        ("openhands-v0", 8, 7),
        ("openhands-v0", 9, 8),
    ],
)
def test_growth_after_a_record_lost_its_form(name, stop, event_id, tmp_path):
    grown, whole = redacted_and_grown(name, tmp_path, records_of(name), stop, event_id)
    assert grown == whole


@pytest.mark.parametrize("name", LOGS)
def test_growth_after_a_redaction_equals_one_import(name, tmp_path, store):
    records = records_of(name)
    chance = random.Random(name)
    for part in (1, 2, 3, 4):
        stop = max(2, len(records) * part // 5)
        path = write_lines(tmp_path / "log.jsonl", records[:stop])
        conversation = imported(store, path, name).conversation
        shown_ids = [event.id for event in Histories(store)[conversation].view().events]
        ids = [event_id for event_id in shown_ids if event_id >= 0]
        for event_id in chance.sample(ids, min(len(ids), 3)):
            grown, whole = redacted_and_grown(name, tmp_path, records, stop, event_id)
            assert grown == whole, (stop, event_id)
