"""The public names, used as a stranger would. It is never run: ``mypy --strict`` reads it."""

from eventstore.events import Action, CondensationAction, Message, Observation, SystemMessage, summary_id


def an_exchange() -> tuple[SystemMessage, Message, Action, Observation]:
    return (
        SystemMessage(content="You mend code."),
        Message(source="user", content="Why does the test fail?"),
        Action(tool="terminal", arguments={"command": "pytest -x"}, call_id="call-1"),
        Observation(tool="terminal", content="1 failed", call_id="call-1", cause=2, is_error=True),
    )


def a_condensation() -> CondensationAction:
    return CondensationAction(forgotten_event_ids=(2, 3), summary="The test fails.", summary_offset=2)


def the_id_of_its_summary(condensation: CondensationAction) -> int:
    return summary_id(condensation.id)
