"""The conversations ``ID/+NAME``, which a runtime keeps beside the conversation ``ID``, are erased,
copied, rekeyed and redacted together with it.
"""

from base64 import b64encode
from datetime import UTC, datetime, timedelta

import pytest

import foldlog as api
from foldlog import Annotation, KeyRing, VersionConflict
from foldlog.errors import ConversationHasForks, InvalidArgument
from foldlog.eventstore.maintenance import erase, redact
from tests.between import Killed
from tests.said import ids, said
from tests.stored_rows import execute

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAYS = timedelta(days=1)
SECRET = "my key is sk-4111"
WHY = {"reason": "asked to"}
PACKED = b64encode(b"\x92\xa4user\xb1" + SECRET.encode() + b"\xa3end").decode()


def note(value):
    return Annotation(name="writes", data={"task": "1", "writes": [[0, "messages", value]]})


@pytest.fixture
def opened(tmp_path):
    """Histories with the thread ``t``, its fork and its companion, a companion that the sessions of
    the user ``a`` share, and another thread with a companion.
    """
    age = [0]
    with api.open(tmp_path / "foldlog.db", clock=lambda: NOW - age[0] * DAYS) as histories:
        age[0] = 100
        histories.create("t", {"user": "ann"}).append(said(SECRET))
        histories["t"].fork(2, "t/@1").append(said("of the fork: 4711"))
        for value in (
            {"json": SECRET},
            {"base64": PACKED},
            {"json": "another"},
            {"json": "of the fork: 4711"},
        ):
            histories["t/+writes"].append(note(value))
        histories["a/+state"].append(note("blue"))
        histories["a/s"].append(said("a session"))
        age[0] = 3
        histories["a/s2"].append(said("a young session"))
        histories["tt"].append(said("another thread"))
        histories["tt/+writes"].append(note(SECRET))
        age[0] = 0
        yield histories


OTHERS = ["a/+state", "a/s", "a/s2", "tt", "tt/+writes"]
ERASURES = {
    "with forks": (lambda h: h.erase("t", **WHY, with_forks=True), OTHERS),
    "detached": (lambda h: h.erase("t", **WHY, detach_forks=True), [*OTHERS, "t/@1"]),
    "of a fork": (lambda h: h.erase("t/@1", **WHY), [*OTHERS, "t", "t/+writes"]),
    "by age": (
        lambda h: h.maintenance.expire(90 * DAYS, **WHY),
        ["a/+state", "a/s2", "tt", "tt/+writes"],
    ),
    "all by age": (lambda h: h.maintenance.expire(DAYS, **WHY), []),
    "by attributes": (lambda h: h.maintenance.expire(DAYS, {"user": "ann"}, **WHY), OTHERS),
    "of a session": (
        lambda h: h.erase("a/s", **WHY),
        ["a/+state", *OTHERS[2:], "t", "t/+writes", "t/@1"],
    ),
}


@pytest.mark.parametrize("how", ERASURES)
def test_erasure_takes_the_companions(opened, how):
    erase_some, remaining = ERASURES[how]
    erase_some(opened)
    assert sorted(opened) == sorted(remaining)


def test_refused_erasure_leaves_the_companions(opened):
    row = opened.store.conversation("t")
    with pytest.raises(ConversationHasForks):
        opened.erase("t", **WHY)
    with pytest.raises(InvalidArgument, match="use only one of the two"):
        opened.erase("t", **WHY, with_forks=True, detach_forks=True)
    opened["t"].append(said("more"))
    with pytest.raises(VersionConflict):
        opened.erase("t", **WHY, with_forks=True, expected=row)
    assert "t/+writes" in opened


def test_newer_companion_stays(opened):
    maintenance = opened.maintenance

    def stays(name):
        if name == "t/+writes":
            opened[name].append(note("newer"))

    maintenance._stays = stays
    did = maintenance.expire(90 * DAYS, **WHY)
    assert ids(did.conversations) == ["t/@1", "t", "a/s"]
    assert "'t/+writes' is at version 5" in did.not_erased[0]


def killed_after(call):
    """Return a function that makes a call, and is killed before it returns."""

    def called(*arguments, **options):
        call(*arguments, **options)
        raise Killed

    return called


@pytest.mark.parametrize("way", ["named", "by age"])
def test_killed_erasure_is_repeated(opened, monkeypatch, way):
    with monkeypatch.context() as patched:
        patched.setattr(erase, "erase", killed_after(erase.erase))
        with pytest.raises(Killed):
            opened.erase("t", **WHY, with_forks=True)
    assert "t" not in opened
    assert "t/+writes" in opened
    if way == "named":
        assert opened.erase("t", **WHY).id == "t"
    else:
        assert "t/+writes" in {
            row.id for row in opened.maintenance.expire(90 * DAYS, **WHY).conversations
        }
    assert "t/+writes" not in opened


# -- copies
# --------------------------------------------------------------------------------------------------


def test_copy_compares_the_companions(opened, tmp_path):
    with api.open(tmp_path / "other.db") as other:
        moved = other.maintenance.copy_from(opened, "t", "t")
        assert sorted(copied.conversation for copied in moved) == ["t", "t/+writes"]
        opened["t/+writes"].append(note("more"))
        differences = other.maintenance.differences_from(opened, "t")
        assert [difference.conversation for difference in differences] == ["t/+writes"]


def test_a_rekey_takes_the_companions(opened, tmp_path):
    with api.open(tmp_path / "foldlog.db", keys=KeyRing("11" * 32)) as histories:
        assert {outcome.conversation for outcome in histories.maintenance.rekey("tt")} == {
            "tt",
            "tt/+writes",
        }
    with api.open(tmp_path / "foldlog.db") as histories, pytest.raises(api.errors.KeyUnavailable):
        next(histories["tt/+writes"].events())


# -- redactions
# --------------------------------------------------------------------------------------------------


def redacted_in(histories, name):
    return [event.id for event in histories[name].events() if event.redacted]


def test_redaction_takes_copies_in_companions(opened):
    receipt = opened["t"].redact(1, **WHY)
    assert receipt.event_ids == (1,)
    assert receipt.quotes == (("t/+writes", 0, True), ("t/+writes", 1, True))
    assert (redacted_in(opened, "t"), redacted_in(opened, "t/+writes")) == ([1], [0, 1])
    assert redacted_in(opened, "tt/+writes") == [], "another conversation's"
    assert opened["t"].redact(1, **WHY).quotes == ()


@pytest.mark.parametrize(
    "text, holds", [("Bob", True), ("bob", False), ("key", False), ("no", False)]
)
def test_short_text_must_match_as_a_whole(opened, text, holds):
    opened["u"].append(said(text))
    packed = b64encode(b"\x92\xa7content\xa3Bob\xa4more").decode()
    for value in (
        {"content": "Bob"},
        packed,
        {"content": f"{SECRET} no Bobby"},
        {"route": ["Bob", "key"]},
    ):
        opened["u/+writes"].append(note(value))
    opened["u"].redact(0, **WHY)
    assert redacted_in(opened, "u/+writes") == ([0, 1] if holds else [])


def test_common_parts_are_no_copies(opened):
    parts = [
        ({"type": "text", "text": text}, {"type": "image", "mime": "image/png"})
        for text in ("pin 4711", "later")
    ]
    for content in parts:
        opened["u"].append(said(content))
        opened["u/+writes"].append(note({"content": content}))
    opened["u/+writes"].append(note(b64encode(b"\xa4type\xa4text").decode()))
    opened["u"].redact(0, **WHY)
    assert redacted_in(opened, "u/+writes") == [0]
    opened["u"].redact(1, **WHY)
    assert redacted_in(opened, "u/+writes") == [0, 1]


def test_redaction_reaches_companions_of_forks(opened):
    opened["t"].fork(2, "v")
    opened["v/+writes"].append(note(SECRET))
    opened["t"].redact(1, **WHY)
    assert redacted_in(opened, "v/+writes") == [0]


@pytest.mark.parametrize("which", ["1", "--matching sk-4111"])
def test_possible_holders_are_named(foldlog, opened, tmp_path, which):
    foldlog("report t/+writes --output beside.html")
    number = "SELECT key FROM conversations WHERE id = 't/+writes'"
    damage = f"UPDATE events SET body = x'00' WHERE id = 1 AND conversation = ({number})"
    execute(tmp_path / "foldlog.db", damage)
    ran = foldlog(f"store redact t {which} --reason x --yes --json --no-vacuum")
    holders = " ".join(ran.document["holders"])
    assert "beside.html" in holders
    assert "conversation 't/+writes', event 1" in holders


@pytest.mark.parametrize("origin", ["shared", "detached", "copied"])
def test_redaction_of_a_fork_reaches_its_origin(opened, tmp_path, origin):
    with api.open(tmp_path / "other.db") as other:
        histories = opened
        if origin == "detached":
            opened.erase("t", **WHY, detach_forks=True)
            opened.create("t", replace_erased=True)
            opened.create("t/+writes", replace_erased=True).append(note("of the fork: 4711"))
        if origin == "copied":
            histories = other
            other.maintenance.copy_from(opened)
        # Event 2 is the first event of the fork's own.
        receipt = histories["t/@1"].redact(2, **WHY)
        assert {quote.conversation for quote in receipt.quotes} == {"t/+writes"}
        assert len(redacted_in(histories, "t/+writes")) == 1


def test_refused_redaction_leaves_the_copies(opened):
    with pytest.raises(InvalidArgument, match="belongs to conversation 't'"):
        opened["t/@1"].redact(1, **WHY)
    assert redacted_in(opened, "t/+writes") == []


def test_killed_redaction_is_repeated(foldlog, opened, monkeypatch):
    opened["u"].append(
        said([{"type": "text", "text": SECRET}, {"type": "text", "text": "more words"}])
    )
    opened["u/+writes"].append(note("more words"))
    command = "store redact u --matching sk-4111 --reason x --yes"
    with monkeypatch.context() as patched:
        patched.setattr(redact, "redact", killed_after(redact.redact))
        with pytest.raises(Killed):
            foldlog(command)
    assert redacted_in(opened, "u/+writes") == [0]
    foldlog(command)
    assert (redacted_in(opened, "u"), redacted_in(opened, "u/+writes")) == ([0], [0])


def test_conversation_is_as_young_as_its_companions(foldlog, opened):
    opened["t/+writes"].append(note("the answer of a person"))
    assert [
        row.id
        for row in opened.maintenance.expire(90 * DAYS, **WHY, detach_forks=True).conversations
    ] == [
        "t/@1",
        "a/s",
    ]
    aged = foldlog("store expire --older-than 2026-03-01 --dry-run --json")
    assert not {"t", "t/+writes"}.intersection(aged.rows())
