"""What a search finds, with and without an index, and in forks and damaged or erased conversations.
The session ``searching`` shows which events a search chooses, and in which order.
"""

from types import SimpleNamespace

import pytest

from foldlog import Action, Observation, open as foldlog_open
from foldlog._app.cli.keeping_up import Keeper
from foldlog._reports.search import index, searching
from foldlog._reports.search.searching import search
from foldlog.eventstore import ConversationErased, open_store
from tests.between import before_next_call
from tests.figures import FiguresOfStore
from tests.foldlog.imports.imports import imported
from tests.foldlog.records import said as said_v1, write_lines
from tests.said import said
from tests.stored_rows import execute
from tests.waiting import until


def test_program_is_known_with_or_without_figures(histories):
    histories["own"].append(said("is the gauge there?"))
    for _ in range(2):
        assert len(searching.search(histories.store, "gauge", program="foldlog").hits) == 1
        assert searching.search(histories.store, "gauge", program="codex").hits == ()
        FiguresOfStore(histories.store).refresh()


def test_nameless_result_has_tool_of_its_call(histories):
    results = [Observation(content="no such file", call_id=call_id) for call_id in ("1", "2", None)]
    calls = [Action(tool=tool, call_id=tool[-1], arguments={}) for tool in ("run1", "run2")]
    histories["c"].append([*calls, *results])
    for tool, ids in (("run1", [2]), ("run2", [3])):
        hits = searching.search(histories.store, "such file", tool=tool).hits
        assert sorted(hit.id for hit in hits) == ids


def test_result_without_ids_has_the_tool_of_its_cause(histories):
    calls = [Action(tool=tool, arguments={}) for tool in ("run1", "run2")]
    results = [Observation(content="no such file", cause=cause) for cause in (1, 0)]
    histories["c"].append([*calls, *results])
    for tool, found_id in (("run1", 3), ("run2", 2)):
        (hit,) = searching.search(histories.store, "such file", tool=tool).hits
        assert hit.id == found_id


def test_path_with_escaped_slashes_is_found(histories, tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text(
        '{"role": "user", "content": "read src\\/app.py & <b>"}\n'.replace("<", "\\u003c")
    )
    histories.import_(path, conversation="c", format="openai-chat")
    for words in ("src/app.py", '"<b"'):
        assert len(histories.search(words)) == 1


@pytest.mark.parametrize("has_index", [False, True])
def test_a_pasted_text_of_many_words_is_found(histories, has_index):
    text = " ".join(f"plank{number}" for number in range(3_000))
    histories["c"].append([said(text), said(text.replace("plank2999", "board"))])
    if has_index:
        index.make(histories.store)
        index.refresh(histories.store)
    (hit,) = searching.search(histories.store, f'"{text}"').hits
    assert hit.id == 0
    assert searching.search(histories.store, "a*" * 2_000).hits == ()


def test_search_in_an_erased_conversation_fails(histories, monkeypatch):
    histories["c"].append([said("the gauge")])
    before_next_call(
        monkeypatch, searching, "_places", lambda: histories.erase("c", reason="asked to")
    )
    with pytest.raises(ConversationErased):
        histories.search("gauge", conversation="c")


@pytest.mark.parametrize("call_id", ["k", None])
def test_a_result_of_a_damaged_call_hides_no_other_hit(stored, call_id):
    for tool in ("damaged", "run"):
        stored["c"].append(
            [
                Action(tool=tool, call_id=call_id, arguments={}),
                Observation(content="no such file", call_id=call_id),
            ]
        )
    execute(
        stored.store.path,
        "UPDATE events SET body = replace(body, 'damaged', 'DAMAGED') WHERE id = 0",
    )
    with open_store(stored.store.path) as store:
        found = search(store, "such file", tool="run")
    assert [hit.id for hit in found.hits] == [3]
    (problem,) = found.unread
    assert "event 0: its checksum does not match" in problem


@pytest.mark.parametrize("at", [0, 1])
def test_damaged_event_that_may_have_the_words_is_named(stored, at):
    for name in ("sound", "damaged"):
        stored[name].append([said(f"parser {name}"), said(f"parser {name}")])
    word = "UPDATE events SET body = replace(body, 'parser damaged', 'PARSER damaged') WHERE id = "
    execute(stored.store.path, f"{word}{at}")
    with open_store(stored.store.path) as store:
        found = search(store, "parser", limit_each=2)
        (problem,) = found.unread
        assert f"'damaged', event {at}: its checksum does not match" in problem
        assert [(hit.conversation, hit.id) for hit in found.hits] == [
            ("damaged", 1 - at),
            ("sound", 1),
            ("sound", 0),
        ]


def find_hits(histories):
    hits = histories.search("gauge", conversation="fork")
    assert {hit.conversation for hit in hits} == {"fork"}
    return [hit.id for hit in reversed(hits)]


def find_events(histories):
    events = searching.events_with(histories.store, "fork", searching.SearchTerms("gauge"), [])
    return [event.id for event in events]


@pytest.mark.parametrize("find", [find_hits, find_events])
@pytest.mark.parametrize("before", ["c", "fork"])
def test_fork_detached_meanwhile_is_searched_whole(find, before, histories, monkeypatch):
    class Detaching(searching._Conversation):
        """Detaches the fork of ``c`` before the conversation ``before`` is read."""

        def __init__(self, store, place, *more):
            if place.row.id == before and "c" in histories:
                histories.erase("c", reason="asked to", detach_forks=True)
            super().__init__(store, place, *more)

    histories["c"].append([said("gauge 1"), said("the rest")])
    histories["c"].fork(2, "fork")
    histories["fork"].append([said("gauge 2")])
    monkeypatch.setattr(searching, "_Conversation", Detaching)
    assert find(histories) == [0, 2]


def test_fork_is_not_searched_beyond_its_fork(histories, tmp_path):
    path = tmp_path / "c.jsonl"
    for count in (1, 2):
        write_lines(path, [said_v1(number, "gauge") for number in range(count)])
        imported(histories.store, path)
        if count == 1:
            histories["c"].fork(1, "fork")
    assert [hit.id for hit in histories.search("gauge", conversation="fork")] == [0]


def test_command_makes_refreshes_and_drops_an_index(foldlog):
    with foldlog_open("foldlog.db", search_index=True) as histories:
        histories["c"].append([said("the gauge")])
    assert foldlog("store index --json").document == {"added": 1, "dropped": False}
    assert foldlog("store index").out == "0 events and records were added to the index\n"
    assert len(foldlog("search gauge --json").document["hits"]) == 1
    assert foldlog("store index --again --json").document["added"] == 1
    assert foldlog("store index --drop --json").document == {"added": 0, "dropped": True}
    assert len(foldlog("search gauge --json").document["hits"]) == 1
    assert "leave out the other options" in foldlog("store index --drop --again").err


def test_a_keeper_completes_the_index(histories):
    index.make(histories.store)
    histories["c"].append([said("the gauge")])
    with Keeper(histories.store, every_s=0.01):
        until(lambda: histories.store.database.recorder.query(index.state_of).is_complete)
    assert index.refresh(histories.store) == 0


@pytest.mark.parametrize(
    "text, found, not_found",
    [
        ("か\u3099据 か", "が か が据 か\u3099", "据 がか"),
        ("か\u3099据", "が", "か 据"),
        ("\u1112\u1161\u11ab글", "한 한글 \u1112\u1161\u11ab", "\u1112 하 글"),
        ("J\u030cß e\u0301\u0323a", "J\u030c J\u030cß e\u0301\u0323a", "e\u0301a ß a"),
        ("क\u093cख", "\u0958 क\u093c क ख", ""),
        ("100% of snake_case 'it''s' a\\b 👩\u200d👩", "100 100% snake_ it a\\b", "nake case %2"),
        (f"{'x' * 70_000}y z", f"{'x' * 300} z", "y"),
    ],
)
def test_a_letter_of_several_characters_is_one_with_and_without_an_index(
    histories, text, found, not_found
):
    histories["c"].append([said(text)])
    for _ in ("without an index", "with an index"):
        assert [words for words in found.split() if not histories.search(words)] == []
        assert [words for words in not_found.split() if histories.search(words)] == []
        histories.maintenance.index()


@pytest.mark.parametrize("kind", ["plain", "imported", "fork"])
def test_a_search_reads_only_the_events_that_the_index_names(
    kind, histories, tmp_path, monkeypatch
):
    texts = [f"text {number}" for number in range(300)]
    if kind == "imported":
        path = tmp_path / "c.jsonl"
        write_lines(path, [{"role": "user", "content": text} for text in texts])
        imported(histories.store, path, "openai-chat", conversation="c")
        len(histories["c"].view())
    else:
        histories["c"].append([said(text) for text in texts])
    if kind == "fork":
        histories["c"].fork(100, "f")
    found_in = "f" if kind == "fork" else "c"
    histories[found_in].append([said(f"later {number}") for number in range(300)])
    histories[found_in].append(said("a zebra"))
    last = histories[found_in].version() - 1
    index.make(histories.store)
    index.refresh(histories.store)
    spans = []
    read_events = searching._Conversation._in_events

    def read_span(conversation, start, stop, may_be_in):
        spans.append((start, stop))
        return read_events(conversation, start, stop, may_be_in)

    def read_blocks(*arguments):
        raise AssertionError("the search reads records")

    monkeypatch.setattr(searching._Conversation, "_in_events", read_span)
    monkeypatch.setattr(searching, "own_blocks_with", read_blocks)
    monkeypatch.setattr(searching.Sources, "made", read_blocks)
    (hit,) = search(histories.store, "zebra").hits
    assert (hit.conversation, hit.id) == (found_in, last)
    assert 0 < sum(stop - start for start, stop in spans) <= 64


def test_no_ranges_are_no_events(histories):
    histories["c"].append(said("a zebra"))
    row = next(iter(histories.store.conversations()))
    words = SimpleNamespace(words="zebra", kinds=(), tool=None, since=None, until=None)
    criteria = searching._EventCriteria(words)
    for ranges, count in (((), 0), ([(0, 1)], 1), (None, 1)):
        place = searching._Place(row, ranges=ranges)
        conversation = searching._Conversation(histories.store, place, [])
        assert len(conversation.newest_hits(criteria, None)) == count
