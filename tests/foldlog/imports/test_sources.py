"""The imports of a source that was edited, compacted, repeated, cut, copied or renamed, or that
went on elsewhere.
"""

import json
from unittest.mock import Mock

import pytest
import zstandard

from foldlog import Histories
from foldlog._imports.redacting import source_files
from foldlog._imports.writing import Imported, SourceWriter
from foldlog.eventstore import VersionConflict
from foldlog.eventstore.files import compressed
from foldlog.eventstore.maintenance import erase
from foldlog.eventstore.sources.blocks import of_records
from foldlog.eventstore.sources.tables import Sources
from foldlog.formats.claude_code.skeleton import ClaudeCodeSkeleton
from foldlog.formats.record import INCOMPLETE
from foldlog.formats.skeleton import count_block
from tests.between import before_next_call
from tests.figures import FiguresOfStore
from tests.foldlog.formats.reading import records_in
from tests.foldlog.imports.imports import (
    Failed,
    Import,
    bytes_of,
    events_of,
    figures_of,
    imported,
    imported_lines,
    new_store,
    open_with_imports,
    set_sizes,
    source_of,
)
from tests.foldlog.records import lines_of
from tests.privacy import erased
from tests.said import ids, say
from tests.sound import assert_sound


@pytest.fixture(params=["claude-code", "codex"])
def lines(request):
    return lines_of(request.param)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "session.jsonl"


@pytest.fixture
def name(lines, path, store):
    """The name of a session all of whose lines were imported."""
    return imported_lines(store, path, lines).conversation


def test_longer_import_meanwhile_loses_no_records(lines, path, monkeypatch, store):
    def import_longer():
        imported_lines(store, path, lines)

    name = imported_lines(store, path, lines[:5]).conversation
    path.write_bytes(b"".join(lines[:7]))
    before_next_call(monkeypatch, store.database.recorder, "transact", import_longer)
    imported(store, path)
    assert bytes_of(store, name) == path.read_bytes()
    assert_sound(store)


@pytest.mark.parametrize("start", [0, 1], ids=["shorter", "others"])
def test_log_rewritten_meanwhile_is_compared_again(start, lines, path, monkeypatch, store):
    imported_lines(store, path, lines[:6])
    path.write_bytes(b"".join([*lines[:3], *lines[4:9]]))
    before_next_call(
        monkeypatch,
        SourceWriter,
        "count_until",
        lambda: path.write_bytes(b"".join(lines[start : start + 3])),
    )
    name = imported(store, path).conversation
    assert bytes_of(store, name).startswith(path.read_bytes())
    assert_sound(store)


def test_first_use_adds_sizes_to_the_figures(name, store):
    def shown(store, name):
        stored = FiguresOfStore(store)
        ((_, figures),) = stored.of([store.conversation(name, as_stored=True)])
        condensations = stored.totals().condensations.values()
        assert condensations
        forgotten = [
            n
            for condensation in condensations
            for n in (condensation.events_forgotten, condensation.summaries_forgotten)
        ]
        return [figures.overview.tokens, figures.overview.sent_events, *forgotten]

    assert set(shown(store, name)) == {None}
    store.version(name)
    assert None not in shown(store, name)


REWRITTEN = {
    "one line is gone": lambda lines: [*lines[:-3], *lines[-2:]],
    "its beginning was compacted": lambda lines: [*lines[:3], *lines[-3:]],
    "a line comes again": lambda lines: [*lines[:-2], lines[-3], *lines[-2:]],
    "the last line is another": lambda lines: [*lines[:-1], lines[-2]],
}


@pytest.mark.parametrize("what", REWRITTEN)
def test_rewritten_log_becomes_a_fork(what, lines, path, store):
    again = REWRITTEN[what](lines)
    at = next(
        place for place, (old, new) in enumerate(zip(lines, again, strict=False)) if old != new
    )
    first = imported_lines(store, path, lines)
    before = events_of(store, first.conversation)
    second = imported_lines(store, path, again)
    assert (second.conversation, second.forked_at) == (f"{first.conversation}@{at}", at)
    assert second.added == len(again) - at
    assert bytes_of(store, first.conversation) == b"".join(lines)
    assert events_of(store, first.conversation) == before
    assert bytes_of(store, second.conversation) == b"".join(again)
    with open_with_imports() as fresh:
        alone = imported(fresh, path).conversation
        assert events_of(store, second.conversation) == events_of(fresh, alone)
    assert store.conversation(second.conversation, as_stored=True).parent == first.conversation
    assert imported(store, path, read_all=True).added == 0
    back = imported_lines(store, path, lines)  # and back: nothing is new
    assert (back.conversation, back.added) == (first.conversation, 0)
    assert_sound(store)


def test_shared_damaged_line_is_no_record(lines, path, store):
    damaged = [*lines[:3], b'{"type": "user\n', *lines[3:]]
    imported_lines(store, path, damaged[:6])
    again = [*damaged[:5], *damaged[6:]]
    fork = imported_lines(store, path, again)
    assert (fork.forked_at, fork.added) == (4, len(again) - 5)
    assert bytes_of(store, fork.conversation) == path.read_bytes()


def test_erasure_after_a_killed_erasure(lines, path, name, store, monkeypatch):
    fork = imported_lines(store, path, [*lines[:3], b'{"damaged\n', *lines[4:]]).conversation
    with monkeypatch.context() as killed:
        killed.setattr(erase, "_delete_rows", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            erased(store, fork)
    for each in (name, fork):
        erased(store, each)
    assert_sound(store)


def test_continued_conversation_gets_a_fork(lines, path, store):
    first = imported_lines(store, path, lines[:-1])
    say(store, first.conversation, "I go on here")
    own = events_of(store, first.conversation)
    unchanged = imported_lines(store, path, lines[:-1])
    assert (unchanged.conversation, unchanged.added) == (first.conversation, 0)
    second = imported_lines(store, path, lines)
    assert (second.conversation, second.added) == (f"{first.conversation}@{len(lines) - 1}", 1)
    assert events_of(store, first.conversation) == own
    assert bytes_of(store, second.conversation) == path.read_bytes()


def test_copied_file_continues_its_fork(lines, path, tmp_path, store):
    name = imported_lines(store, path, lines[:-3]).conversation
    say(store, name, "mine")
    fork = imported_lines(store, path, lines[:-1]).conversation
    assert fork != name
    copy = tmp_path / "copy.jsonl"
    for count, added in ((-1, 0), (None, 1)):
        outcome = imported_lines(store, copy, lines[:count])
        assert (outcome.conversation, outcome.added, outcome.forked_at) == (fork, added, None)


def test_failed_import_says_what_is_stored(lines, path, monkeypatch):
    path.write_bytes(b"".join(lines))
    append = SourceWriter._append_blocks
    transactions = iter(range(1))

    def fill(*arguments):
        if next(transactions, None) is None:
            raise OSError("the disk is full")
        return append(*arguments)

    with new_store() as store, monkeypatch.context() as patches:
        set_sizes(patches, transaction=1, short=0, block=1)
        patches.setattr(SourceWriter, "_append_blocks", fill)
        (outcome,) = Import(store, [path])
        assert isinstance(outcome, Failed)
        assert 0 < outcome.added < len(lines)
        assert source_of(store, outcome.conversation).records == outcome.added
        patches.undo()
        with new_store() as target:
            half = imported_lines(target, path, lines[: outcome.added]).conversation
            expected = figures_of(target, half)
        assert figures_of(store, outcome.conversation) == expected
        path.write_bytes(b"".join(lines))
        assert imported(store, path).added == len(lines) - outcome.added
        assert bytes_of(store, outcome.conversation) == path.read_bytes()


@pytest.mark.parametrize("conflicts", [1, 2, 5])
def test_outcome_counts_the_records_of_all_tries(conflicts, tmp_path, monkeypatch, store):
    lines = lines_of("codex")
    path = tmp_path / "rollout-copy.jsonl"
    path.write_bytes(b"".join(lines))
    append = SourceWriter._append_blocks
    tries = []

    def conflict(writer, source, *arguments):
        if writer not in tries:
            tries.append(writer)
            return append(writer, source, *arguments)
        if len(tries) <= conflicts:
            raise VersionConflict("c", source.records, source.records)
        return append(writer, source, *arguments)

    set_sizes(monkeypatch, transaction=1, short=0, block=1)
    monkeypatch.setattr(SourceWriter, "_append_blocks", conflict)
    (outcome,) = Import(store, [path])
    assert isinstance(outcome, Failed if conflicts == 5 else Imported)
    assert 1 < outcome.added == source_of(store, outcome.conversation).records
    assert (outcome.added == len(lines)) == (conflicts < 5)


def test_short_sources_share_a_transaction(tmp_path, monkeypatch, store):
    log = b"".join(lines_of("claude-code"))
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.jsonl").write_bytes(log.replace(b"5f0c1a52", name.encode()))
    transact = store.database.recorder.transact
    transactions = []

    def counted(work):
        transactions.append(work)
        return transact(work)

    monkeypatch.setattr(store.database.recorder, "transact", counted)
    outcomes = [*Import(store, [tmp_path])]
    assert (len(outcomes), len(transactions)) == (3, 1)
    for outcome in outcomes:
        assert bytes_of(store, outcome.conversation) == outcome.path.read_bytes()


@pytest.fixture
def folder_of_sessions(tmp_path):
    """A folder in which files and folders with files take turns."""
    log = b"".join(lines_of("claude-code"))
    for name in ("a", "b/c", "d", "b/e/f", "g", "h/i"):
        path = tmp_path / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(log.replace(b"5f0c1a52", path.stem.encode()))
    return tmp_path


def test_places_of_a_folder_are_read_together(folder_of_sessions, store, monkeypatch):
    list(Import(store, [folder_of_sessions]))
    reads = []
    for name in ("places", "places_among"):
        original = getattr(Sources, name)

        def counted(sources, places, original=original, name=name):
            reads.append(name)
            return original(sources, places)

        monkeypatch.setattr(Sources, name, counted)
    outcomes = [*Import(store, [folder_of_sessions])]
    assert [outcome.is_unchanged for outcome in outcomes] == [True] * 6
    assert reads == ["places_among"] * 4


def test_a_path_that_is_named_again_is_unchanged(folder_of_sessions, store):
    paths = [folder_of_sessions / "b", folder_of_sessions, folder_of_sessions]
    outcomes = [*Import(store, paths)]
    below, whole, again = outcomes[:2], outcomes[2:8], outcomes[8:]
    unchanged = {outcome.path for outcome in whole if outcome.is_unchanged}
    assert unchanged == {outcome.path for outcome in below}
    assert [outcome.is_unchanged for outcome in again] == [True] * 6


def test_file_imported_after_its_folder_was_looked_up(folder_of_sessions, store, monkeypatch):
    """Another process imports the folder when this process has read what the store has of it."""
    places_among = Sources.places_among

    def read_and_let_import(sources, places):
        found = places_among(sources, places)
        with monkeypatch.context() as patch:
            patch.setattr(Sources, "places_among", places_among)
            others.append([*Import(store, [folder_of_sessions])])
        return found

    others = []
    with monkeypatch.context() as patch:
        patch.setattr(Sources, "places_among", read_and_let_import)
        outcomes = [*Import(store, [folder_of_sessions])]
    assert {outcome.added for outcome in others[0]} == {len(lines_of("claude-code"))}
    assert [outcome.added for outcome in outcomes] == [0] * 6
    assert len(ids(store.iter_conversations())) == 6


def test_file_that_was_away_when_its_folder_was_looked_up(folder_of_sessions, store, monkeypatch):
    list(Import(store, [folder_of_sessions]))
    look_up = Import._look_up_folder
    path = folder_of_sessions / "b" / "c.jsonl"

    def look_up_without(import_, folder):
        away = path.rename(folder_of_sessions / "away")
        look_up(import_, folder)
        away.rename(path)

    monkeypatch.setattr(Import, "_look_up_folder", look_up_without)
    outcomes = [*Import(store, [folder_of_sessions])]
    assert [outcome.is_unchanged for outcome in outcomes] == [True] * 6


def test_longer_of_two_files_is_stored(lines, tmp_path, store):
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines[:-2]))
    (tmp_path / "b.jsonl").write_bytes(b"".join(lines))
    outcomes = [*Import(store, [tmp_path])]
    assert [outcome.added for outcome in outcomes] == [len(lines) - 2, 2]
    assert ids(store.iter_conversations()) == [outcomes[0].conversation]
    assert bytes_of(store, outcomes[0].conversation) == b"".join(lines)


def test_others_make_the_events_first(lines, name, monkeypatch, store):
    """Another process makes the events, one in each transaction, always before this process."""
    set_sizes(monkeypatch, events=1)
    extend = store.extend
    others = iter(range(len(lines) - 2))

    def late(*arguments, **how):
        if next(others, None) is not None:
            extend(*arguments, **how)
        return extend(*arguments, **how)

    monkeypatch.setattr(store, "extend", late)
    version = store.version(name)
    monkeypatch.undo()
    assert version == store.version(name) >= len(lines) - 2
    assert_sound(store)


def test_compressed_log_is_read_unless_it_is_damaged(lines, path, store):
    whole = b"".join(zstandard.compress(line) for line in lines)
    name = imported_lines(store, path, [whole]).conversation
    assert bytes_of(store, name) == b"".join(lines)
    for rest, problem in ((whole[:-9], "is cut off"), (b"no frame", "is damaged")):
        path.write_bytes(whole + rest)
        damaged = Import(store, [path])
        assert not [*damaged]
        assert problem in str(damaged.nothing())


def test_repeated_text_is_unpacked_in_small_pieces(path):
    text = b"the tide comes in\n" * 2**20
    path.write_bytes(zstandard.compress(text))
    pieces = [*compressed.unpack(path)]
    assert b"".join(pieces) == text
    assert path.stat().st_size < len(text) / 5_000
    assert max(map(len, pieces)) <= 4 * 2**20 < len(text) / 4


def test_file_that_unpacks_to_more_than_its_limit_is_refused(lines, path, store, monkeypatch):
    monkeypatch.setattr(compressed, "UNPACKED_LEAST", 1_000)
    path.write_bytes(zstandard.compress(lines[0] + b"\n" * 2**20 + lines[1]))
    monkeypatch.setattr(compressed, "RATIO_MAX", 10)
    packed = path.stat().st_size
    importing = Import(store, [path])
    assert not [*importing]
    limit = max(1_000, 10 * packed)
    assert f"its {packed:,} bytes unpack to more than {limit:,}" in str(importing.nothing())
    monkeypatch.setattr(compressed, "RATIO_MAX", 10_000)
    assert imported(store, path).added == 2


def test_frame_that_needs_too_much_memory_is_refused(lines, path, store, monkeypatch):
    parameters = zstandard.ZstdCompressionParameters(window_log=20)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path.write_bytes(packer.compress(b"".join(lines)) + packer.flush())
    monkeypatch.setattr(compressed, "WINDOW_MAX", 2**16)
    importing = Import(store, [path])
    assert not [*importing]
    assert "needs more than 65,536 bytes of memory" in str(importing.nothing())


def test_bytes_that_are_not_utf_8_are_replaced_and_a_finding(lines, path, store):
    broken = lines[1].rstrip()[:-1] + b', "odd": "\xed\xa0\x80 \xff"}\n'
    written = [lines[0], broken, *lines[2:]]
    outcome = imported_lines(store, path, written)
    assert (outcome.added, outcome.findings_count) == (len(lines), 1)
    (finding,) = outcome.findings
    assert (finding.place, "U+FFFD" in finding.problem) == (f"{path}:2", True)
    assert bytes_of(store, outcome.conversation) == b"".join(written)
    record = records_in(store, outcome.conversation)[1]
    assert record["odd"] == "\ufffd\ufffd\ufffd \ufffd"
    assert INCOMPLETE not in Histories(store)[outcome.conversation].attributes()
    with path.open("ab") as file:
        file.write(lines[2])
    grown = imported(store, path)
    assert (grown.conversation, grown.added) == (outcome.conversation, 1)


def test_failed_result_that_is_not_utf_8_is_counted_from_its_block():
    record = (
        b'{"type": "user", "uuid": "u1", "message": {"role": "user", "content": [{"type":'
        b' "tool_result", "tool_use_id": "c1", "is_error": true, "content": "caf\xff"}]}}'
    )
    skeleton = ClaudeCodeSkeleton()
    count_block(skeleton, of_records(0, [record]))
    assert (skeleton.state.errors, skeleton.state.first_error) == (1, "caf\ufffd")
    assert b"caf" not in skeleton.without_texts(record)


@pytest.mark.parametrize(
    "value, problem",
    [("[" * 480 + "]" * 480, "nested deeper than"), ("1" * 4301, "more than 4,300 digits")],
)
def test_line_without_an_event_is_a_finding(value, problem, lines, path, store):
    odd = [lines[1].rstrip()[:-1] + f', "odd": {value}}}\n'.encode(), b"{}\n"]
    outcome = imported_lines(store, path, [lines[0], *odd, *lines[2:]])
    assert [finding.place for finding in outcome.findings] == [f"{path}:2", f"{path}:3"]
    assert outcome.findings_count == 2
    assert problem in outcome.findings[0].problem


def test_odd_file_name_and_title_are_imported(tmp_path, store):
    odd = tmp_path / "caf\udce9.json"
    message = {"uuid": "m", "sender": "human", "text": "hello"}
    chat = {"name": "\ud83d", "created_at": "2026-01-05T09:00:00Z", "chat_messages": [message]}
    for path in (odd, tmp_path / "kite.json"):
        path.write_text(json.dumps([{"uuid": path.stem[0], **chat}]))
    outcomes = list(Import(store, [tmp_path]))
    assert sorted(outcome.conversation for outcome in outcomes) == ["c", "k"]
    assert source_files(store, ["c"]) == {"c": (str(tmp_path),)}


@pytest.mark.parametrize("between", [b"", b" \t"])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_objects_joined_in_one_line_are_records(between, end, lines, path, store):
    texts = [line.rstrip() for line in lines]
    written = b"\n".join(texts[:-2]) + b"\n" + texts[-2] + between + texts[-1] + end
    path.write_bytes(written)
    (outcome,) = Import(store, [path])
    assert (outcome.added, outcome.findings_count, outcome.waits) == (len(lines), 0, False)
    assert bytes_of(store, outcome.conversation) == written
    assert [*map(str, records_in(store, outcome.conversation))] == [
        str(json.loads(text)) for text in texts
    ]
    with path.open("ab") as file:
        file.write((b"" if end else b"\n") + texts[1] + b"\n")
    (grown,) = Import(store, [path])
    assert (grown.conversation, grown.added) == (outcome.conversation, 1)


@pytest.mark.parametrize("damage", [b"[]", b"{", b"x", b"{}}"])
def test_joined_line_with_another_value_is_one_finding(damage, lines, path, store):
    broken = lines[1].rstrip() + damage + b"\n"
    outcome = imported_lines(store, path, [lines[0], broken, *lines[2:]])
    assert [finding.place for finding in outcome.findings] == [f"{path}:2"]
    assert outcome.added == len(lines) - 1


def test_nul_bytes_in_place_of_a_record_are_a_finding(lines, path, store):
    lost = [
        [*lines[:2], b"\0" * (len(lines[2]) - 1) + b"\n", *lines[3:]],
        [*lines[:2], b"\0" * 1_234, *lines[3:]],
        [*lines[:2], *lines[3:], b"\0" * 1_234],
    ]
    for number, damaged in enumerate(lost):
        place = path.with_name(f"{number}.jsonl")
        place.write_bytes(b"".join(damaged))
        (outcome,) = Import(store, [place])
        (finding,) = outcome.findings
        assert finding.place == f"{place}:{3 if number < 2 else len(lines)}"
        assert "NUL bytes" in finding.problem
        assert outcome.findings_count == 1
