"""The names of the kinds of events, as people filter by them."""

import pytest

from foldlog.eventstore import (
    CondensationAction,
    CondensationRequest,
    DocumentChanges,
    InvalidArgument,
    Retraction,
    SystemMessage,
    UnknownEvent,
)
from foldlog.projections.conversations.labels import KINDS, kind_words, label, labels_of
from foldlog.projections.refusals import words_in_refusal
from tests.condensers.made import answer, call, condensed, message

REFUSED = "The user doesn't want to proceed with this tool use."


@pytest.mark.parametrize(
    "event, name",
    [
        (message(), "user"),
        (message(source="environment"), "environment"),
        (SystemMessage(content="x"), "system"),
        (call(), "action"),
        (answer(), "observation"),
        (answer(is_error=True), "error"),
        (answer(REFUSED, is_error=True), "refused"),
        (answer(REFUSED), "observation"),
        (answer(500 * "x" + REFUSED, is_error=True), "error"),
        (answer("no", extras={"rejection_source": "user"}), "refused"),
        (answer("no", extras={"rejection_source": "hook"}), "observation"),
        (condensed(0), "condensation"),
        (CondensationAction(forgotten_event_ids=[0], metadata={"outcome": "replaced"}), "system"),
        (CondensationRequest(), "request"),
        (Retraction(version=0), "retraction"),
        (DocumentChanges(changed={"a": {"deleted": True}}), "documents"),
        (UnknownEvent(stored_kind="pin", stored_schema=1, body=b""), "unknown"),
    ],
)
def test_label_of_an_event(event, name):
    assert label(event) == name
    assert name in KINDS


def test_words_of_a_person_who_refused():
    said = f"{REFUSED} The user said:\n not now \n"
    assert words_in_refusal(answer(said, is_error=True)) == "not now"
    assert words_in_refusal(answer(REFUSED, is_error=True)) == ""
    assert words_in_refusal(answer("x", extras={"rejection_source": "user"})) == "x"
    given = "User rejected the action."
    assert words_in_refusal(answer(given, extras={"rejection_source": "user"})) == ""
    assert words_in_refusal(answer("x", is_error=True)) is None


def test_words_of_kinds():
    assert kind_words(["condensation_request", "user"]) == {"request", "user"}
    assert labels_of(["message", "error"]) == {"user", "agent", "environment", "error"}
    assert labels_of(["observation"]) == {"observation", "error", "refused"}
    with pytest.raises(InvalidArgument, match=r"'pin' is not a kind of event; use one of system,"):
        kind_words(["user", "pin"])
    for wrong in ("user", b"user", 7):
        with pytest.raises(TypeError, match="kinds must be a list of words, such as"):
            kind_words(wrong)
