"""Kill processes that fill a search index and remove words from it, and look for the removed words in
the bytes of the index.

In each round, a process appends conversations, each with a word of its own, and erases or redacts
some of them. Another process adds the new events to the index. Either or both are killed. Then no
segment of the index may have a word whose removal is in the store, even if the call that removed it
never returned. The other words must be found.

On PostgreSQL, ``vacuum`` then removes the dead rows, and no row of the table, alive or dead, may have
a removed word, or pairs of a segment that is gone. This needs the extension pageinspect, and a role
that may make it.
"""

import multiprocessing
import random
import string
import struct
import zlib
from array import array
from itertools import count

import psycopg

import foldlog
from foldlog._reports.search import index
from foldlog._reports.search.words import hashes_to_find
from foldlog.eventstore import ConversationErased, Message
from foldlog.eventstore.log.redacted import has_content

LONGEST_S = 0.6
"""The longest time until the first kill, and from there until the second."""
_ROUNDS_MIN = 10
"""In so many rounds the index has words, though a removal empties it for a moment."""
_ZLIB = b"\x78\x01"


def word_of(chosen):
    return "".join(chosen.choices(string.ascii_lowercase, k=14))


def hash_of(word):
    [word_hash] = hashes_to_find([word])
    return word_hash


def write_and_remove(url, name, seed, began):
    chosen = random.Random(seed)
    with foldlog.open(url) as histories, open(name, "a", buffering=1) as notes:
        for number in count():
            conversation = f"c{seed}-{number}"
            word = word_of(chosen)
            notes.write(f"{conversation} {word}\n")
            texts = ["a kept text", f"a text with {word}", "another kept text"]
            histories[conversation].append([Message(source="user", content=text) for text in texts])
            began.set()
            if chosen.random() < 0.3:
                index.refresh(histories.store)
            if chosen.random() < 0.4:
                histories.erase(conversation, reason="asked to")
            elif chosen.random() < 0.6:
                histories[conversation].redact(1, reason="asked to")


def fill(url, began):
    with foldlog.open(url) as histories:
        while True:
            index.refresh(histories.store)
            began.set()


def kill_one_or_both(url, notes, seed, chosen):
    context = multiprocessing.get_context("fork")
    works = [(write_and_remove, (url, notes, seed)), (fill, (url,))]
    began = [context.Event() for _ in works]
    processes = [
        context.Process(target=work, args=(*arguments, event), daemon=True)
        for (work, arguments), event in zip(works, began, strict=True)
    ]
    for process in processes:
        process.start()
    for event in began:
        if not event.wait(60):
            raise AssertionError("a process did not begin")
    chosen.shuffle(processes)
    for process in processes:
        processes[0].join(chosen.uniform(0, LONGEST_S))
        if process.exitcode is not None:
            raise AssertionError(f"a process ended: {process.exitcode}")
        process.kill()
    for process in processes:
        process.join()


def indexed_hashes(store):
    def read(reader):
        return {
            (entry >> index._DOC_BITS << index._BUCKET_BITS) | bucket
            for bucket in range(index._BUCKETS)
            for _, data in reader.ask_all("words_in_bucket", bucket)
            for entry in index._unpacked(data)
        }

    return store.database.recorder.query(read)


def has_word(histories, conversation):
    """Return whether the word of a conversation is in the store: None if it was never stored."""
    try:
        events = [*histories.store.events(conversation)]
    except ConversationErased:
        return False
    except foldlog.errors.ConversationNotFound:
        return None
    return has_content(events[1]) if events else None


def check_round(url, lines, removed, findings):
    """Check the words of a round, and that no segment has a word that was removed in any round. Return
    the number of words in the index.
    """
    with foldlog.open(url) as histories:
        for line in lines:
            conversation, word = line.split()
            is_there = has_word(histories, conversation)
            if is_there is False:
                removed[word] = conversation
            if len(histories.search(word)) != bool(is_there):
                findings.append(f"{conversation}: a search for {word} is wrong")
        present = indexed_hashes(histories.store)
    for word in [word for word in removed if hash_of(word) in present]:
        findings.append(f"{removed[word]}: {word} is in the index, after its removal")
    return len(present)


def hashes_in_rows(url):
    """Return the hashes in all rows of the table, alive or dead, the number of rows, and the number of
    rows of segments that are gone. The pairs of a segment are in rows of their own.
    """
    query = """SELECT t_data FROM generate_series(0, pg_relation_size('foldlog.search_words') / %s - 1) page,
        heap_page_items(get_raw_page('foldlog.search_words', page::int)) WHERE t_data IS NOT NULL"""
    hashes = set()
    rows = 0
    gone = 0
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pageinspect")
        segments = {
            segment for (segment,) in connection.execute("SELECT segment FROM foldlog.search_words")
        }
        for (data,) in connection.execute(query, [8192]):
            bucket, segment = struct.unpack_from("<i4xq", data)
            rows += 1
            gone += segment not in segments
            if bucket >= index._BUCKETS:
                continue
            words = zlib.decompressobj().decompress(data[data.index(_ZLIB, 16) :])
            entries = array("I", words[: len(words) // 4 * 4])
            hashes |= {entry >> index._DOC_BITS << index._BUCKET_BITS | bucket for entry in entries}
    return hashes, rows, gone


def run(folder, rounds, seed, db):
    url = db or f"sqlite:///{folder}/store.db"
    chosen = random.Random(seed)
    findings = []
    removed = {}
    """Maps each removed word to its conversation."""
    notes = folder / "notes"
    with foldlog.open(url) as histories:
        index.make(histories.store)
    size = 0
    largest = 0
    for number in range(rounds):
        kill_one_or_both(url, notes, f"{seed}-{number}", chosen)
        text = notes.read_text()
        lines = text[size:].splitlines()
        if not text.endswith("\n"):  # the process was killed while it wrote the last line
            del lines[-1:]
        size = len(text)
        largest = max(largest, check_round(url, lines, removed, findings))
        if findings:
            break
    if rounds >= _ROUNDS_MIN and not largest:
        findings.append("after no round the index had a word, so nothing was compared")
    with foldlog.open(url) as histories:
        pending = histories.maintenance.vacuum().bytes_pending
    print(f"{rounds} rounds, {len(removed)} words removed, up to {largest:,} in the index", end="")
    if db:
        before = len(removed)
        hashes, rows, gone = hashes_in_rows(url)
        left = [word for word in removed if hash_of(word) in hashes]
        findings += [f"{removed[word]}: {word} is in a row of the table" for word in left]
        if gone:
            findings.append(f"{gone} rows of segments that are gone")
        print(f"; {rows:,} rows with {len(hashes):,} hashes, of {before} words {len(left)}", end="")
    if pending:
        findings.append("the vacuum left bytes pending")
    print(f"; {len(findings)} findings")
    return findings
