"""A search index finds what a search without it finds, and has no word of text that is gone."""

import os
import random
import zlib
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

import foldlog
from foldlog import Action, Histories, KeyRing, Message
from foldlog._imports import makes_events
from foldlog._reports.figures.of_store import FiguresOfStore
from foldlog._reports.search import index, searching
from foldlog._reports.search.searching import search
from foldlog._reports.search.words import hashes_to_find
from foldlog.eventstore import Store
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.maintenance.rekey import rekey
from tests.between import before_next_call
from tests.foldlog.records import write_lines
from tests.said import said, say

SECRET = "Zyzzyvaquartz"
TEXTS = (
    "the gauge of the pump at src/core/main_util.py, line 12",
    'def read(path: str) -> str: return "a\\nb"',
    "Donaudampfschifffahrt und Straße, naïve Übergabe",
    "数据库索引 搜索，错误",
    "https://example.com/a?b=c#d “quoted phrase” don't",
    "no such file or directory",
)


@pytest.fixture(autouse=True)
def without_citus(request):
    on_postgresql = "postgresql" in request.node.callspec.params.values()
    if on_postgresql and "FOLDLOG_CITUS_URL" in os.environ:
        pytest.skip("Citus refuses the triggers of a search index")


@pytest.fixture
def histories(store) -> Histories:
    return Histories(store)


def fill(histories: Histories, conversations: int = 12) -> None:
    """Add conversations of 1 to 40 events with known and random words."""
    chosen = random.Random(5)
    for number in range(conversations):
        events = []
        for call in range(chosen.choice([1, 5, 20, 40])):
            text = " ".join(chosen.sample(TEXTS, 2)) + f" word{chosen.randrange(400)}"
            if call % 4 == 3:
                events.append(Action(tool="bash", call_id=str(call), arguments={"command": text}))
            else:
                events.append(said(text))
        histories[f"c{number}"].append(events)


def is_indexed(store: Store, word: str) -> bool:
    """Return whether any segment has the hash of a word."""

    def read(reader):
        [word_hash, *_] = hashes_to_find([word])
        docs = index._docs_with(reader, word_hash)
        return docs is None or any(docs.found.values())

    return store.database.recorder.query(read)


def candidates(store: Store, word: str) -> index.Candidates:
    found = store.database.recorder.query(lambda reader: index.candidates(reader, [word]))
    assert found is not None
    return found


def scanned(monkeypatch, store, words, **options):
    """Search without the index."""
    with monkeypatch.context() as patch:
        patch.setattr(searching, "_look_up", lambda *arguments: None)
        return search(store, words, **options)


def queries(store: Store, chosen: random.Random, count: int):
    """Yield random queries: words, beginnings and ends of words, phrases, and words that no text
    has.
    """
    texts = [
        searching.text_of(event)
        for row in store.iter_conversations()
        if row.erased_at is None
        for event in store.events(row.id)
    ]
    for _ in range(count):
        words = chosen.choice(texts).split()
        place = chosen.randrange(len(words))
        word = words[place]
        yield chosen.choice([
            word, word[:1], word[:2], word[: chosen.randrange(1, len(word) + 1)], word.upper(),
            f'"{" ".join(words[place : place + 3])}"', f"{word} {chosen.choice(words)}",
            word[len(word) // 2 :], f"{word}zz", f"{word.swapcase()}*",
        ])  # fmt: skip


def walk(find, words: str, limit: int, between=lambda: None) -> list[tuple[str, int]]:
    """Read the hits page by page, as the service does."""
    hits = []
    behind = None
    while True:
        found = find(words, limit=limit + 1, behind=behind)
        hits += [(hit.conversation, hit.id) for hit in found.hits[:limit]]
        if len(found.hits) <= limit:
            assert found.read == found.conversations
            return hits
        behind = found.places[limit - 1]
        between()


def assert_equal_results(monkeypatch, store, count=40, seed=1):
    """Assert that random queries have the same results with the index as without it, and that the
    index left out conversations for at least one query.
    """
    chosen = random.Random(seed)
    is_pruned = False
    for words in queries(store, chosen, count):
        limit = chosen.choice([None, 1, 5, 20])
        try:
            expected = scanned(monkeypatch, store, words, limit=limit)
        except ValueError:
            continue  # The query has neither a letter nor a digit.
        result = search(store, words, limit=limit)
        assert result.hits == expected.hits, words
        assert result.conversations == expected.conversations
        is_pruned |= candidates(store, words).keys is not None
    assert is_pruned


def test_results_are_equal_to_those_of_a_scan(histories, monkeypatch, tmp_path):
    store = makes_events(histories.store)
    fill(histories)
    histories.import_(
        write_lines(tmp_path / "a.jsonl", [{"role": "user", "content": text} for text in TEXTS]),
        conversation="unmade", format="openai-chat",
    )  # fmt: skip
    store.fork("c1", 1, "fork")
    say(store, "fork", "the fork's own gauge")
    index.make(store)
    assert index.refresh(store) > 100
    assert_equal_results(monkeypatch, store)
    # The index lacks these events.
    say(store, "c2", "later text about the gauge")
    say(store, "new", "数据 later")
    histories["unmade"].view()
    assert_equal_results(monkeypatch, store, seed=2)
    histories.erase("c1", reason="asked to", detach_forks=True)
    histories["c3"].redact(0, reason="asked to")
    assert_equal_results(monkeypatch, store, seed=3)
    index.refresh(store)
    assert_equal_results(monkeypatch, store, seed=4)


def test_search_without_a_complete_index_reads_all(histories):
    store = histories.store
    histories["c"].append([said("the gauge")])
    index.make(store)
    assert store.database.recorder.query(lambda reader: index.candidates(reader, ["x"])) is None
    assert len(histories.search("gauge")) == 1
    histories["later"].append([said("another gauge")])
    index.refresh(store)
    assert len(histories.search("gauge")) == 2
    assert candidates(store, "gaugeless").keys == frozenset()
    assert [*store.database.recorder.check()] == []
    index.drop(store)
    assert len(histories.search("gauge")) == 2
    assert not store.database.recorder.query(index.state_of).is_made
    assert [*store.database.recorder.check()] == []


def test_new_events_are_found_at_once_and_added_once(histories):
    store = histories.store
    fill(histories, 3)
    index.make(store)
    index.refresh(store)
    say(store, "c0", SECRET)
    [hit] = histories.search(SECRET)
    version = store.version("c0")
    assert [*candidates(store, SECRET).ranges.values()] == [[(version - 1, None)]]
    assert not is_indexed(store, SECRET)
    assert index.refresh(store) == 1
    assert is_indexed(store, SECRET)
    assert histories.search(SECRET) == (hit,)
    assert index.refresh(store) == 0


@pytest.mark.parametrize("removal", ["erase", "redact", "erase with forks"])
def test_words_leave_the_index_in_the_transaction_that_removes_them(histories, removal):
    store = histories.store
    fill(histories, 3)
    say(store, "secret", "the first event", SECRET)
    store.fork("secret", 2, "fork")
    index.make(store)
    index.refresh(store)
    assert is_indexed(store, SECRET)
    if removal == "erase":
        histories.erase("fork", reason="asked to")
        assert is_indexed(store, SECRET), "the parent still has the event"
        histories.erase("secret", reason="asked to")
    elif removal == "erase with forks":
        histories.erase("secret", reason="asked to", with_forks=True)
    else:
        histories["secret"].redact(1, reason="asked to")
    assert not is_indexed(store, SECRET)
    assert histories.search(SECRET) == ()
    # Other events of the segment are still found.
    assert len(histories.search("gauge")) > 3
    index.refresh(store)
    assert not is_indexed(store, SECRET)


def test_words_that_are_removed_while_they_are_read_are_not_added(histories, monkeypatch):
    store = histories.store
    fill(histories, 2)
    say(store, "secret", SECRET)
    index.make(store)
    before_next_call(
        monkeypatch, index._Refresh, "_write", lambda: histories.erase("secret", reason="asked to")
    )
    index.refresh(store)
    assert not is_indexed(store, SECRET)
    assert histories.search(SECRET) == ()
    assert len(histories.search("gauge")) > 3


def test_encrypted_conversations_are_in_the_index_only_on_request(open_recorder):
    keys = KeyRing(["5c" * 32])
    recorder = open_recorder()
    plain = Histories(Store(recorder))
    fill(plain, 2)
    store = Store(recorder, settings=WriteSettings(keys=keys))
    say(store, "sealed", SECRET)
    index.make(store)
    index.refresh(store)
    assert not is_indexed(store, SECRET)
    assert len(search(store, SECRET).hits) == 1
    assert index.refresh(store) == 0  # the conversation is not tried again
    index.make(store, with_encrypted=True)
    index.refresh(store)
    assert is_indexed(store, SECRET)
    assert len(search(store, SECRET).hits) == 1


def test_words_leave_the_index_when_their_conversation_is_encrypted(open_recorder):
    recorder = open_recorder()
    plain = Store(recorder)
    say(plain, "secret", SECRET)
    index.make(plain)
    index.refresh(plain)
    store = Store(recorder, settings=WriteSettings(keys=KeyRing(["5c" * 32])))
    for _ in rekey(store):
        pass
    assert not is_indexed(store, SECRET)
    index.refresh(store)
    assert not is_indexed(store, SECRET)
    assert len(search(store, SECRET).hits) == 1


def test_imports_that_grow_are_found_before_and_after_a_refresh(histories, tmp_path):
    store = makes_events(histories.store)
    fill(histories, 2)
    index.make(store)
    index.refresh(store)
    path = tmp_path / "a.jsonl"
    lines = [{"role": "user", "content": f"{text} imported"} for text in TEXTS]
    for count, added in ((4, 4), (6, 2)):
        histories.import_(write_lines(path, lines[:count]), conversation="i", format="openai-chat")
        assert len(histories.search("imported")) == count
        assert index.refresh(store) == added
        assert len(histories.search("imported")) == count
    assert is_indexed(store, "imported")
    histories.erase("i", reason="asked to")
    assert not is_indexed(store, "imported")


def test_damaged_index_is_reported_and_all_events_are_read(histories):
    store = histories.store
    fill(histories, 2)
    index.make(store)
    index.refresh(store)

    def damage(transaction, words):
        segments = transaction.ask_all("search_state")
        for bucket in range(256):
            transaction.write("put_search_words", segments[0][2], bucket, words)

    for words in (b"damaged", zlib.compress(b"other bytes")):
        store.database.recorder.transact(partial(damage, words=words))
        result = search(store, "gauge")
        assert result.hits
        assert ["foldlog store index --again" in text for text in result.unread] == [True]


def test_two_segments_are_filled_one_after_the_other(histories):
    store = histories.store
    index.make(store)
    for number in range(3):
        histories[f"c{number}"].append([said(f"{text} w{number}") for text in TEXTS * 130])
        index.refresh(store)
    say(store, "c1", SECRET)
    index.refresh(store)
    assert len(candidates(store, SECRET).keys) == 1
    histories.erase("c0", reason="asked to")
    assert len(histories.search("w2", limit=None)) == len(TEXTS) * 130
    assert len(histories.search(SECRET)) == 1


@pytest.mark.parametrize("words", ["pump", "word1", "the no"])
@pytest.mark.parametrize("limit", [1, 7])
def test_pages_have_each_hit_once_in_the_order_of_the_search(
    monkeypatch, store, histories, words, limit
):
    fill(histories, 20)
    store.fork("c3", 1, "f")
    histories["f"].append(said("the gauge of the pump, word12, no"))

    def scan(words, **options):
        return scanned(monkeypatch, store, words, **options)

    whole = [(hit.conversation, hit.id) for hit in scan(words, limit=None).hits]
    assert len(whole) > 2 * limit
    assert walk(scan, words, limit) == whole
    index.make(store)
    index.refresh(store)
    assert walk(partial(search, store), words, limit) == whole


@pytest.mark.parametrize("has_index", [False, True])
def test_a_conversation_that_becomes_active_is_not_found_again(store, histories, has_index):
    for number in range(6):
        histories[f"c{number}"].append([said(f"quartz {number} {part}") for part in range(3)])
    if has_index:
        index.make(store)
        index.refresh(store)
    # The first page has all hits of c5, and one hit of c4.
    active = ["c5", "c4"]

    def become_active():
        while active:
            histories[active.pop()].append(said("quartz again"))

    found = walk(partial(search, store), "quartz", 4, become_active)
    assert found == [(f"c{number}", part) for number in (5, 4, 3, 2, 1, 0) for part in (2, 1, 0)]


MOMENT = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("has_index", [False, True])
def test_conversations_of_one_moment_are_on_several_pages(store, has_index):
    names = [f"c{number}" for number in range(6)]
    for name in names:
        event = Message(source="user", content=f"quartz {name}", timestamp=MOMENT)
        store.append(name, [event], expected_version=0)
    FiguresOfStore(store).refresh()
    if has_index:
        index.make(store)
        index.refresh(store)
    assert walk(partial(search, store), "quartz", 2) == [(name, 0) for name in names]


def order_of_all(store: Store) -> list[str]:
    pages = searching._in_order(store, index.Candidates(None, {}), None)
    return [candidate.name for page in pages for candidate in page]


def test_order_of_conversations_follows_events_and_figures(histories, monkeypatch):
    store = histories.store

    def assert_order():
        expected = [place.row.id for place in searching._places(store, None, [])]
        assert order_of_all(store) == expected

    for number in range(6):
        happened_at = datetime(2020, 1, 30 - number, tzinfo=UTC)
        event = Message(source="user", content="text", timestamp=happened_at)
        store.append(f"c{number}", [event], expected_version=0)
    index.make(store)
    assert_order()
    index.refresh(store)
    monkeypatch.setattr(searching, "_FIRST_PLACES", 2)
    assert_order()
    # With figures, the order is that of the events' times.
    FiguresOfStore(store).refresh()
    assert order_of_all(store) == [f"c{number}" for number in range(6)]
    assert_order()
    index.refresh(store)
    assert not store.database.recorder.query(index.unplaced)
    assert_order()
    # The figures of these conversations are outdated or missing.
    say(store, "c4", "later")
    say(store, "new", "text")
    assert order_of_all(store)[:2] == ["new", "c4"]
    assert_order()
    index.refresh(store)
    assert_order()
    histories["c1"].redact(0, reason="asked to")
    histories.erase("c2", reason="asked to")
    assert_order()
    FiguresOfStore(store).refresh()
    index.refresh(store)
    assert_order()
    monkeypatch.setattr(index, "_FEW_UNPLACED", -1)
    assert_order()


def test_order_behind_a_place_has_no_conversation_before_it(histories):
    store = histories.store
    days = {"f": 0, "b": 1, "d": 1, "e": 2, "a": 3, "c": 3}
    for name, day in days.items():
        event = Message(source="user", content="text", timestamp=MOMENT - timedelta(day))
        store.append(name, [event], expected_version=0)
    index.make(store)
    FiguresOfStore(store).refresh()
    index.refresh(store)
    assert not store.database.recorder.query(index.unplaced)
    every = index.Candidates(None, {})

    def in_order(behind):
        pages = searching._in_order(store, every, behind)
        return {candidate.name: candidate.at for page in pages for candidate in page}

    whole = in_order(None)
    assert [*whole] == [*days]
    for number, name in enumerate(days):
        behind = searching.SearchPlace(*whole[name], name, 0)
        assert [*in_order(behind)] == [*days][number:]


def test_frequent_words_are_searched_in_their_docs(histories, monkeypatch):
    store = histories.store
    fill(histories)
    say(store, "c2", f"a {SECRET}")
    index.make(store)
    index.refresh(store)
    monkeypatch.setattr(index, "_FEW_DOCS", -1)
    say(store, "c3", "later text about the gauge")
    say(store, "new", "the gauge")
    chosen = random.Random(7)
    for words in queries(store, chosen, 40):
        limit = chosen.choice([None, 1, 5])
        with suppress(ValueError):  # The query has neither a letter nor a digit.
            expected = scanned(monkeypatch, store, words, limit=limit)
            assert search(store, words, limit=limit).hits == expected.hits, words
    found = candidates(store, SECRET)
    assert found.keys is None
    keys = [row.key for row in found_rows(store)]
    ranges = store.database.recorder.query(lambda reader: index.ranges_of(reader, keys, found))
    assert [*map(int.bit_count, found.docs.found.values())] == [4]  # the parts of one doc
    if store.database.recorder.store_count == 1:
        # The range of this doc, and the events that the index lacks. The small index of another
        # store has no words with such hashes at all, so its docs are searched.
        assert sum(map(len, ranges.values())) == 3


def test_a_rare_phrase_of_frequent_words_is_searched_in_its_docs(histories, monkeypatch):
    store = histories.store
    monkeypatch.setattr(index, "_FEW_DOCS", 3)
    common = [said("the store is there"), said("is it in the store"), said("there it is")]
    for name in ("early", "late"):
        for number in range(4):
            histories[f"{name}{number}"].append(common * 8)
        histories[f"{name} with phrase"].append([*common * 4, said("it is the there"), *common * 4])
        index.make_if_missing(store)
        index.refresh(store)  # the second time, into the same segment
    assert looked_up(store, "the store").keys is None
    found = looked_up(store, "is the there")
    names = [row.id for row in found_rows(store) if row.key in found.keys]
    assert sorted(names) == ["early with phrase", "late with phrase"]
    assert [*found.ranges.values()] == [[(12, 16)]] * 2  # the event 12 and its neighbours
    hits = search(store, '"is the there"').hits
    assert [(hit.conversation, hit.id) for hit in hits] == [
        ("late with phrase", 12),
        ("early with phrase", 12),
    ]
    assert looked_up(store, "store the").keys == frozenset()


def looked_up(store: Store, phrase: str) -> index.Candidates:
    """Return the candidates for a phrase of frequent words in the whole store."""
    found = candidates(store, phrase)
    if not found.pairs:  # its words are not in most events
        return found
    return store.database.recorder.query(lambda reader: index.look_up_pairs(reader, found.pairs))


@pytest.mark.parametrize("places, few", [(1, -1), (1, 3), (3, 3), (100, 3)])
def test_a_phrase_of_frequent_words_is_first_looked_up_in_some_places(
    histories, monkeypatch, places, few
):
    """The first conversations usually have enough hits. Behind them, all are looked up."""
    store = histories.store
    monkeypatch.setattr(index, "_FEW_DOCS", few)
    monkeypatch.setattr(index, "_SAMPLE", 10)
    monkeypatch.setattr(index, "_OF_DOCS", 0)  # each word is frequent
    monkeypatch.setattr(searching, "_PLACES_WITH_PAIRS", places)
    monkeypatch.setattr(searching, "_FIRST_PLACES", 2)
    monkeypatch.setattr(searching, "_MORE_PLACES", 1)
    chosen = random.Random(places)
    words = ["the", "store", "is", "there", "it"]
    for number in range(12):
        texts = [" ".join(chosen.choices(words, k=8)) for _ in range(chosen.randrange(1, 60))]
        histories[f"c{number}"].append(list(map(said, texts)))
    index.make(store)
    index.refresh(store)
    say(store, "c3", "the store is later")
    say(store, "new", "is the store is there")
    assert candidates(store, '"the store is"').pairs
    for phrase in ('"the store is"', '"is the store is"', '"it it it it"', '"there store" "it is"'):
        expected = scanned(monkeypatch, store, phrase, limit=None).hits
        assert search(store, phrase, limit=None).hits == expected
        assert search(store, phrase, limit=5).hits == expected[:5]
        hits = [(hit.conversation, hit.id) for hit in expected]
        assert walk(partial(search, store), phrase, 3) == hits
    assert len(scanned(monkeypatch, store, '"the store is"', limit=None).hits) > 5
    among = ["c1", "c5", "new"]
    found = search(store, '"the store"', among=among, limit=None).hits
    assert found == scanned(monkeypatch, store, '"the store"', among=among, limit=None).hits


@pytest.fixture
def frequent(histories, monkeypatch):
    """A store in which all words of "the store is" are frequent, in 20 conversations."""
    monkeypatch.setattr(index, "_SAMPLE", 10)
    monkeypatch.setattr(index, "_OF_DOCS", 0)
    monkeypatch.setattr(searching, "_PLACES_WITH_PAIRS", 4)
    monkeypatch.setattr(searching, "_FIRST_PLACES", 2)
    monkeypatch.setattr(searching, "_MORE_PLACES", 1)
    for number in range(20):
        text = "the store is there" if number in (2, 15, 18) else "is there the store"
        histories[f"c{number}"].append([said(text)] * 3)
    index.make(histories.store)
    index.refresh(histories.store)
    assert candidates(histories.store, '"the store is"').pairs
    return histories


def test_a_conversation_that_goes_on_during_a_search_is_not_missed(frequent, monkeypatch):
    """Its new event moves it before the places that the search has passed."""
    look_up = searching._look_up_pairs

    def after_an_append(*arguments):
        frequent["c2"].append([said("thanks")])
        return look_up(*arguments)

    monkeypatch.setattr(searching, "_look_up_pairs", after_an_append)
    found = search(frequent.store, '"the store is"', limit=None)
    hits = sorted((hit.conversation, hit.id) for hit in found.hits)
    assert hits == [(f"c{number}", event) for number in (15, 18, 2) for event in range(3)]


def test_damaged_pairs_are_reported_and_all_events_are_read(frequent):
    store = frequent.store
    expected = search(store, '"the store is"', limit=None).hits

    def damage(transaction):
        for _, _, segment in transaction.ask_all("search_state"):
            for bucket in range(256, 256 + 128):
                transaction.write("put_search_words", segment, bucket, b"damaged")

    store.database.recorder.transact(damage)
    result = search(store, '"the store is"', limit=None)
    assert result.hits == expected
    assert ["foldlog store index --again" in text for text in result.unread] == [True]


def found_rows(store: Store):
    def read(reader):
        return [
            store.database.find(reader, row.id, as_stored=True)
            for row in store.iter_conversations()
        ]

    return store.database.recorder.query(read)


def test_events_are_found_that_the_index_gets_during_a_search(histories, monkeypatch):
    store = histories.store
    fill(histories)
    index.make(store)
    index.refresh(store)
    monkeypatch.setattr(index, "_FEW_DOCS", -1)
    say(store, "c3", f"later {SECRET} 1")

    def add():
        index.refresh(store)
        say(store, "c4", f"later {SECRET} 2")
        index.refresh(store)

    before_next_call(monkeypatch, searching, "_ranges_of_page", add)
    hits = search(store, SECRET).hits
    assert {hit.conversation for hit in hits} >= {"c3"}
    assert len(search(store, SECRET).hits) == 2


def test_store_info_says_how_far_the_index_is(histories):
    store = histories.store
    fill(histories, 2)
    assert index.info(store) is None
    index.make(store)
    assert index.info(store).is_complete is False
    index.refresh(store)
    before = index.info(store)
    say(store, "c0", "later", "and later")
    histories["c1"].redact(0, reason="asked to")
    after = index.info(store)
    assert (before.is_complete, before.events_left, before.unread) == (True, 0, 0)
    assert (after.is_complete, after.events_left, after.unread) == (True, 3, 1)
    assert before.bytes > 1_000


@pytest.fixture
def indexed(histories):
    """A store with three conversations and a complete index."""
    fill(histories, 3)
    index.make(histories.store)
    index.refresh(histories.store)
    return histories.store


def test_a_copy_has_no_index_until_somebody_makes_one(indexed, tmp_path):
    store = indexed
    with foldlog.open(tmp_path / "copy.db") as copy:
        for row in store.iter_conversations():
            copy.maintenance.copy_from(store, row.id)
        assert index.info(copy.store) is None
        assert copy.maintenance.index() > 0
        assert search(copy.store, "word1").hits == search(store, "word1").hits


def test_a_backup_of_a_file_has_the_index(indexed, histories, tmp_path):
    store = indexed
    if store.path is None:
        pytest.skip("only a file has backups")
    histories.maintenance.back_up(tmp_path / "backup.db")
    with foldlog.open(tmp_path / "backup.db") as backup:
        assert index.info(backup.store).is_complete
        assert search(backup.store, "word1").hits == search(store, "word1").hits
        backup.erase("c0", reason="asked to")
        say(backup.store, "c1", SECRET)
        assert [hit.conversation for hit in search(backup.store, SECRET).hits] == ["c1"]
        assert [*backup.store.database.recorder.check()] == []


def test_an_index_is_missed_in_a_store_with_many_events(histories, monkeypatch):
    store = histories.store
    assert not index.is_missed(store)
    histories["c"].append([said(text) for text in TEXTS])
    assert not index.is_missed(store)
    monkeypatch.setattr(index, "_MANY", 3)
    assert index.is_missed(store)
    index.make(store)
    assert not index.is_missed(store)


def test_a_search_looks_up_only_conversations_that_it_may_read(histories, monkeypatch):
    """A token that sees two conversations waits for the words of no other."""
    store = histories.store
    monkeypatch.setattr(index, "_SAMPLE", 10)
    monkeypatch.setattr(index, "_OF_DOCS", 0)  # each word is frequent
    for number in range(20):
        histories[f"c{number}"].append([said("the store is there")] * 3)
    index.make(store)
    index.refresh(store)
    asked = []
    ranges_of = index.ranges_of

    def noted_ranges_of(reader, keys, found):
        asked.extend(keys)
        return ranges_of(reader, keys, found)

    monkeypatch.setattr(index, "ranges_of", noted_ranges_of)
    monkeypatch.setattr(index, "look_up_pairs", None)  # is not called
    found = search(store, '"the store is"', among=["c3", "c17"], limit=None)
    assert [hit.conversation for hit in found.hits] == ["c17"] * 3 + ["c3"] * 3
    assert len(asked) == 2
