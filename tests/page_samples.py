"""Histories for the page: one in which every text attacks the reader, and one in which events have every
state.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from foldlog.eventstore.events import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    Event,
    Message,
    Observation,
    Retraction,
    SystemMessage,
)

HOSTILE = (
    "<script>window.attacked = 1; alert(1)</script>",
    "</script><script>window.attacked = 2</script>",
    '</style><img src=x onerror="window.attacked=3">',
    "<!--<script>",
    ']]><svg onload="window.attacked = 4"><animate onbegin=alert(4)></svg>',
    '<a href="javascript:window.attacked=5">click me</a>',
    '<iframe srcdoc="<script>parent.attacked=6</script>"></iframe>',
    (
        '<img src="https://attacker.example/pixel.png"><link rel=stylesheet'
        " href=//attacker.example/x.css>"
    ),
    "[a link](javascript:alert(1)) ![p](https://attacker.example/p.png)",
    "\"'><b onmouseover=alert(1)>",
    "{{constructor.constructor('alert(1)')()}} ${alert(1)} {{title}} {{script}}",
    "\x1b[31mred\x1b[0m \x1b]8;;https://attacker.example\x07link\x1b]8;;\x07 \x1b[2J \x9b31m",
    "user\u202egpj.exe \u2066isolate\u2069 \u200f\u200b\ufeff\u2028line\u2029paragraph",
    "\0 nul \ud800 lone \udfff surrogates \U000e0041\U000e0042 tags",
    "data:text/html,<script>window.attacked=7</script>",
    "__proto__ constructor toString hasOwnProperty",
)
"""Texts that run, load or hide something if they become markup, a link, or the input of a terminal."""

LONG_LINE = 10_000_000

_START = datetime(2026, 3, 4, 9, 0, tzinfo=UTC)


def hostile_history(long_line: int = 10_000) -> Iterator[Event]:
    """Yield events that have each hostile text in each of their texts: contents, names, arguments, keys,
    ids, reasons, titles.
    """
    yield SystemMessage(
        content=HOSTILE[0], tools=({"name": HOSTILE[1], "description": HOSTILE[2]},)
    )
    for place, text in enumerate(HOSTILE):
        yield Message(source="user", content=text, meta={"title": text, text: text})
        yield Action(
            tool=text,
            arguments={text: text, "__proto__": {"x": text}, "old_str": text, "new_str": text},
            call_id=f"{place}{text}",
            thought=text,
            thinking=({"type": "thinking", "thinking": text},),
        )
        yield Observation(
            tool=text,
            content=text,
            call_id=f"{place}{text}",
            is_error=place % 2 == 0,
            extras={text: text},
        )
        yield Action(tool="raw", arguments=text, call_id=f"raw {place}")
        yield Observation(
            tool="raw",
            content=({"type": "text", "text": text}, {"type": text, text: text}),
            call_id=f"raw {place}",
        )
    yield Annotation(name=HOSTILE[0], data={HOSTILE[1]: HOSTILE[2]})
    yield CondensationRequest(reason=HOSTILE[0])
    last = 3 + 5 * len(HOSTILE)
    metadata = dict.fromkeys(
        ("reason", "condenser", "model", "prompt_hash", "outcome", "cost"), HOSTILE[0]
    )
    yield CondensationAction(
        forgotten_events_start_id=1,
        forgotten_events_end_id=20,
        summary=" ".join(HOSTILE),
        summary_offset=1,
        metadata=metadata,
    )
    yield Message(source="agent", content="x" * long_line)
    yield Message(source="user", content="<b>" * (long_line // 3))
    yield Retraction(version=last, reason=HOSTILE[5])
    yield Message(source="environment", content="\n".join(HOSTILE))


def usual_history(turns: int = 20) -> Iterator[Event]:
    """Yield events of each state: shown, pending, masked, summarized, forgotten, taken back."""
    for number, event in enumerate(_usual_events(turns)):
        yield replace(event, timestamp=_START + timedelta(seconds=37 * number))


def _usual_events(turns: int) -> Iterator[Event]:
    yield SystemMessage(content="You are a coding agent.")
    yield Message(source="user", content="Find out why the build fails, and repair it.")
    for turn in range(turns):
        call = f"call {turn}"
        yield Action(
            tool="terminal",
            arguments={"command": f"make test-{turn}"},
            call_id=call,
            thought="Next one.",
        )
        yield Observation(
            tool="terminal", content=f"test {turn} passes\n" * (turn % 7 + 1), call_id=call
        )
    yield CondensationAction(
        forgotten_events_start_id=2, forgotten_events_end_id=13, metadata={"reason": "tokens"}
    )
    yield CondensationRequest(reason="the prompt was too long")
    yield CondensationAction(
        forgotten_events_start_id=14,
        forgotten_events_end_id=25,
        summary="Six tests were run, and all passed.",
        summary_offset=2,
        metadata={"reason": "request", "model": "example", "cost": 0.0123, "prompt_hash": "5f3a"},
    )
    number = 2 + 2 * turns
    rule = {
        "condenser": "observation_masking",
        "rule": {"attention_window": 6},
        "masked": 1,
        "newest_masked": number - 3,
    }
    yield Annotation(name="condenser_meta", data=[rule])
    yield Message(source="user", content="No, leave that.")
    yield Message(source="agent", content="I leave it.")
    yield Retraction(version=number + 4, reason="the user took it back")
    yield Action(tool="terminal", arguments={"command": "make"}, call_id="last")
