"""Bad input: one clear line on stderr, an exit status that says how much was done, no traceback,
nothing half-done.
"""

import io
import sys

import pytest

from foldlog.eventstore import StoreUnavailable
from foldlog.eventstore.sources.tables import SourcesToWrite
from tests.foldlog.records import lines_of, said
from tests.golden.rows import rows
from tests.stored_rows import execute

REFUSED = rows("refusals.json", "lines of the command that are refused, and words of their errors")


def check_refused(foldlog, typed, words):
    """Check that a command does nothing, and says why in one line."""
    ran = foldlog(*typed.split())
    assert (ran.status, ran.out) == (2, ""), (typed, ran)
    assert ran.err.startswith(("foldlog: ", '{"level":"error",', '{"level": "error",')), typed
    assert ran.err.count("\n") == 1, (typed, ran.err)
    assert "unexpected error" not in ran.err, (typed, ran.err)
    for word in words.split():
        assert word in ran.err, (typed, ran.err)


@pytest.fixture
def folder(foldlog, five_messages, write, tmp_path):
    """A store with the conversations ``five`` and ``gone``, which is erased, among files that are
    none.
    """
    for name in ("five", "gone"):
        foldlog("import", five_messages, "--conversation", name)
    assert foldlog("store erase gone --yes --reason 'asked for'").status == 0
    (tmp_path / "folder").mkdir()
    for name, content in {
        "diary.jsonl": b"Dear diary,\ntoday I learned\n",
        "empty.jsonl": b"",
        "deep.json": b"[" * 100_000 + b"]" * 100_000,
        "bytes.jsonl": b"\xff\xfe\x00\x01" * 20,
        "broken.json": b'[{"kind": "MessageEvent", "id": ',
        "notes.db": b"These are my notes.\n" * 100,
    }.items():
        (tmp_path / name).write_bytes(content)
    write("many/a.jsonl", [said(0, "a")])
    write("many/b.jsonl", [said(0, "b")])
    execute(tmp_path / "other.db", "CREATE TABLE notes (text)")
    return tmp_path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*") if path.is_file()}


def test_bad_input_is_refused_in_one_line(foldlog, folder):
    assert foldlog("view five").status == 0  # which makes its events
    before = contents(folder)
    for typed, words in REFUSED:
        check_refused(foldlog, typed, words)
    after = contents(folder)
    assert {name: after.get(name) for name in before} == before
    assert {name for name in after if not name.startswith("foldlog.db")} <= before.keys()


def test_failed_import_can_be_repeated(foldlog, write, monkeypatch):
    for number in range(4):
        write(f"many/h{number}.jsonl", [said(0, "one"), said(1, "two")])
    put = SourcesToWrite.put_blocks

    def fills_up(sources, source, blocks):
        if sources.name_of(source.conversation).endswith("h2"):
            raise StoreUnavailable(
                "cannot write to foldlog.db: database or disk is full", kind="full"
            )
        return put(sources, source, blocks)

    with monkeypatch.context() as disk:
        disk.setattr(SourcesToWrite, "put_blocks", fills_up)
        ran = foldlog("import many --json")
        alone = foldlog("import many/h2.jsonl")
    assert ran.status == 1
    refused = {row["conversation"]: row["refused"] for row in ran.document["imported"]}
    assert refused == {"many/h0": False, "many/h1": False, "many/h2": True, "many/h3": False}
    assert "disk is full" in ran.err
    assert (alone.status, "disk is full" in alone.err) == (1, True)
    again = foldlog("import many")
    assert again.status == 0
    assert again.out.splitlines()[-1] == "2 records of 1 conversation added to foldlog.db."


DAMAGED_LINES = {
    "a line of NUL bytes": (lambda second, third: b"\0" * len(second) + third, "NUL bytes", 3),
    "a NUL line with its end": (
        lambda second, third: b"\0" * 90 + b"\n" + third,
        "90 NUL bytes",
        3,
    ),
    "a byte that is not UTF-8": (
        lambda second, third: second.replace(b"{", b'{"pier": "\xfe", ', 1) + third,
        "not UTF-8",
        4,
    ),
    "an object and a list in one line": (
        lambda second, third: second.rstrip() + b"[]\n" + third,
        "not JSON",
        3,
    ),
}


@pytest.mark.parametrize("damage, problem, records", DAMAGED_LINES.values(), ids=DAMAGED_LINES)
def test_strict_import_of_a_damaged_line_ends_with_1(foldlog, tmp_path, damage, problem, records):
    first, second, third, last = lines_of("claude-code")[:4]
    (tmp_path / "damaged.jsonl").write_bytes(first + damage(second, third) + last)
    lax = foldlog("import damaged.jsonl --json --db lax.db")
    assert lax.status == 0
    assert '"level":"note","message":"damaged.jsonl:2: ' in lax.err
    strict = foldlog("import damaged.jsonl --json --strict --db strict.db")
    assert strict.status == 1
    assert '"level":"found","message":"damaged.jsonl:2: ' in strict.err
    for ran in (lax, strict):
        (imported,) = ran.document["imported"]
        assert (imported["records"], imported["findings_count"]) == (records, 1)
        assert problem in imported["findings"][0]


def test_strict_import_of_joined_objects_loses_nothing(foldlog, tmp_path):
    first, second, third, last = lines_of("claude-code")[:4]
    (tmp_path / "joined.jsonl").write_bytes(first + second.rstrip() + third + last)
    ran = foldlog("import joined.jsonl --json --strict")
    (imported,) = ran.document["imported"]
    assert (ran.status, ran.err) == (0, "")
    assert (imported["records"], imported["findings_count"]) == (4, 0)


@pytest.mark.parametrize(
    "lost, line, parent", [((), 4, "gone"), ((1, 3, 4), 2, "u1")], ids=["changed", "cut out"]
)
def test_strict_import_of_a_line_without_its_parent_ends_with_1(foldlog, write, lost, line, parent):
    records = [
        {
            "type": kind,
            "uuid": f"u{number}",
            "parentUuid": f"u{number - 1}" if number else None,
            "sessionId": "s1",
            "message": {"role": kind, "content": f"text {number}"},
        }
        for number, kind in enumerate(("user", "assistant", "user", "assistant", "user"))
    ]
    records[3]["parentUuid"] = "gone"
    write("c.jsonl", [record for number, record in enumerate(records) if number not in lost])
    ran = foldlog("import c.jsonl --json --strict")
    (imported,) = ran.document["imported"]
    assert (ran.status, imported["findings_count"]) == (1, 1)
    assert f"c.jsonl:{line}: a line names the parent {parent}, which no" in ran.err
    assert foldlog("view s1").status == 0
    assert foldlog("import c.jsonl --strict").status == 0, "nothing is new"


@pytest.mark.parametrize(
    "line, words", [("append c1", "stdin has no message"), ("import -", "stdin: is empty")]
)
def test_a_closed_stdin_is_an_empty_one(line, words, foldlog, monkeypatch):
    foldlog("append c1 hi --new")
    monkeypatch.setattr("sys.stdin", None)
    ran = foldlog(line)
    assert ran.status == 2
    assert words in ran.err


def test_an_erasure_without_stdin_asks_for_yes(foldlog, monkeypatch):
    foldlog("append c1 hi --new")
    monkeypatch.setattr("sys.stdin", None)
    assert "add --yes" in foldlog("store erase c1 --reason asked").err


def test_messages_that_are_no_utf_8_are_refused(foldlog, monkeypatch):
    foldlog("append c1 hi --new")
    sent = io.BytesIO(b'{"role": "user", "content": "\xff"}\n')
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(sent, "utf-8"))
    ran = foldlog("append c1")
    assert ran.status == 2
    assert "stdin:1: the line is not JSON" in ran.err


def test_a_key_that_is_none_is_named(foldlog, tmp_path):
    foldlog("append c1 hi --new")
    (tmp_path / "key.pem").write_text("garbage")
    (tmp_path / "checkpoint").write_text(foldlog("store checkpoint").out)
    for line in ("checkpoint --key key.pem", "verify --against checkpoint --key key.pem"):
        assert "key.pem: this is not an Ed25519 key" in foldlog(f"store {line}").err


def test_an_address_of_no_authority_is_refused(foldlog, tmp_path):
    pytest.importorskip("rfc3161_client")
    foldlog("append c1 hi --new")
    (tmp_path / "checkpoint").write_text(foldlog("store checkpoint").out)
    ran = foldlog("store checkpoint --in checkpoint --time-stamp nonsense")
    assert ran.status == 2
    assert "the time stamping authority nonsense cannot be asked" in ran.err


def test_a_sub_agent_whose_id_is_no_utf_8_is_exported(foldlog, stored, tmp_path):
    child = "c1/\udcff"
    stored["c1"].append({"role": "user", "content": "hi"})
    stored.create(child, {"parent": "c1"})
    stored[child].append({"role": "user", "content": "half: \ud800"})
    assert foldlog("export c1 --with-children -o out.json").status == 0
    (file,) = (tmp_path / "out").iterdir()
    assert file.name == "%ED%B3%BF.json"


def test_a_run_with_half_a_character_is_written(foldlog, stored, tmp_path):
    pytest.importorskip("detect_secrets")
    stored["c1"].append({"role": "user", "content": "half: \ud800"})
    assert foldlog("export c1 --as-test runs").status == 0
    (file,) = (tmp_path / "runs").iterdir()
    assert "half: \\ud800" in file.read_text()


def test_a_largest_number_is_whole_in_its_error(foldlog):
    assert f"at most {sys.maxsize:,}" in foldlog("list -n 99999999999999999999").err


def test_a_search_without_words_names_no_words(foldlog):
    foldlog("append c1 hi --new")
    assert foldlog("search --kind error").out == "There is no such event.\n"
    assert foldlog("search no").out == "No event has all these words.\n"
