"""Sentences about nothing, one thing or several, and lists that say what they leave out."""

from datetime import UTC, datetime, timedelta

import foldlog as api
from foldlog import Action, CondensationAction, Observation
from tests.said import all_said, replied, said


def test_verify_names_one_redacted_event_or_several(stored, foldlog, tmp_path):
    for name in ("one", "several"):
        stored[name].append(all_said("a", "b", "c"))
    (tmp_path / "checkpoint.txt").write_text(foldlog("store checkpoint").out)
    stored["one"].redact(1, reason="r", by="ann")
    stored["several"].redact([0, 2], reason="r", by="ann")
    printed = foldlog("store verify --against checkpoint.txt").out
    assert "one: event 1 redacted since the checkpoint by ann" in printed
    assert "several: events 0, 2 redacted since the checkpoint by ann" in printed


def test_a_stream_that_is_to_be_redacted_is_counted(foldlog):
    with api.open("foldlog.db") as histories:
        histories["c"].append(said("who is it?"))
        with histories["c"].stream_reply() as reply:
            reply.feed("Marigold")
            ran = foldlog("store redact --matching marigold --reason r --dry-run")
            assert ran.out.splitlines()[-1] == "1 stream of 1 conversation to redact"


def test_days_that_are_left_out_are_earlier(stored, foldlog):
    start = datetime(2026, 3, 1, tzinfo=UTC)
    for number in range(17):
        stored["c"].append(said("hi", timestamp=start + timedelta(days=number)))
    printed = foldlog("stats c").out
    assert "2026-03-17" in printed
    assert "2026-03-02" not in printed
    assert "  and 2 earlier; --json has all" in printed.splitlines()


def test_terms_that_a_strategy_did_not_show_are_counted(stored, foldlog):
    names = "ALPHA_SIZE BETA_SIZE GAMMA_SIZE DELTA_SIZE EPSILON_SIZE"
    call = Action(tool="ls", arguments={}, call_id="k")
    stored["c"].append([said("go"), call, Observation(tool="ls", content=names, call_id="k")])
    stored["c"].append([CondensationAction(forgotten_event_ids=(1, 2)), said("and?")])
    stored["c"].append(replied(names))
    printed = " ".join(foldlog("compare c").out.split())
    _, shown = printed.split("as recorded did not show ")
    assert shown.count("event 5 used it, event 2 has it") == 3
    assert "; and 2 other terms: see --json " in shown
