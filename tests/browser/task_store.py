"""A store with one task of six agents: ``python -m tests.browser.task_store FILE`` writes it, for
somebody who asks the page what happened.

The build fails because of ``libexpat-2.6.1``. A sub-agent of the sub-agent ``build`` finds that,
and ``build`` does not report it. ``sign`` is not told the key ``release-key-0042``, and was killed
while it paid. ``docs`` has a redacted event, and ``scan`` was erased.
"""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import foldlog
from foldlog import Action, Event, History, Message, Observation
from tests.said import said

BEGIN = datetime(2026, 11, 2, 9, tzinfo=UTC)
TASK = "release/4.2"


class Clock:
    """The time of the next event, which a test sets."""

    seconds = 0.0

    def __call__(self) -> datetime:
        return BEGIN + timedelta(seconds=self.seconds)


class Scene:
    """Appends events at given seconds."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def add(self, history: History, second: float, *events: Event) -> None:
        self.clock.seconds = second
        history.append(list(events))

    def ask(self, history: History, second: float, text: str) -> None:
        self.add(history, second, said(text, timestamp=BEGIN + timedelta(seconds=second)))

    def reply(
        self, history: History, second: float, model: str, tokens: int, cost: float, text: str
    ) -> None:
        self.add(
            history,
            second,
            Message(source="agent", content=text, **self._of(second, model, tokens, cost)),
        )

    def call(
        self,
        history: History,
        second: float,
        model: str,
        tokens: int,
        cost: float,
        *calls: tuple[str, str, dict[str, Any]],
    ) -> None:
        fields = self._of(second, model, tokens, cost)
        actions = [
            Action(
                tool=tool,
                call_id=call_id,
                arguments=arguments,
                timestamp=fields["timestamp"],
                response_id=calls[0][1],
                meta=fields["meta"] if number == 0 else {},
            )
            for number, (call_id, tool, arguments) in enumerate(calls)
        ]
        self.add(history, second, *actions)

    def result(
        self, history: History, second: float, call_id: str, text: str, *, is_error: bool = False
    ) -> None:
        at = BEGIN + timedelta(seconds=second)
        self.add(
            history,
            second,
            Observation(call_id=call_id, content=text, is_error=is_error, timestamp=at),
        )

    def child(self, history: History, call_id: str, name: str) -> History:
        (call,) = [call for call in history.open_calls() if call.call_id == call_id]
        return history.begin_child(call, f"{history.id}/{name}")

    def _of(self, second: float, model: str, tokens: int, cost: float) -> dict[str, Any]:
        usage = {"prompt_tokens": tokens, "completion_tokens": tokens // 20}
        return {
            "timestamp": BEGIN + timedelta(seconds=second),
            "meta": {"model": model, "usage": usage, "cost": cost},
        }


def write_task(path: Path) -> None:
    clock = Clock()
    scene = Scene(clock)
    with foldlog.open(path, clock=clock) as histories:
        top = histories[TASK]
        scene.ask(top, 0, "Release version 4.2. Sign it with release-key-0042; pay only once.")
        prompts = {
            "build": "Find out why the build of version 4.2 fails, and repair it.",
            "docs": "Write the release notes of version 4.2 from the commits.",
            "scan": "Look for secrets in the release.",
        }
        scene.call(
            top,
            4,
            "opus",
            2_000,
            0.06,
            *((name, "agent", {"prompt": prompt}) for name, prompt in prompts.items()),
        )
        build, docs, scan = (scene.child(top, name, name) for name in prompts)
        _build(scene, build, prompts["build"])
        _docs(scene, docs, prompts["docs"])
        scene.ask(scan, 6, prompts["scan"])
        scene.reply(scan, 30, "haiku", 900, 0.002, "The token of ann is in settings.ini.")
        scene.result(top, 31, "scan", "One secret was found and removed.")
        scene.result(top, 80, "docs", "The release notes are in NOTES.md.")
        scene.result(top, 190, "build", "The build is repaired: a C library was too old.")
        histories.erase(scan.id, reason="a token of a user")
        scene.ask(top, 195, "Is libexpat-2.6.1 in the advisories?")
        scene.call(
            top,
            200,
            "opus",
            5_000,
            0.15,
            ("cve", "bash", {"command": "grep libexpat-2.6.1 advisories.txt"}),
        )
        scene.result(top, 201, "cve", "no match")
        scene.call(
            top,
            210,
            "opus",
            5_400,
            0.16,
            ("sign", "agent", {"prompt": "Sign version 4.2 and pay for the signature."}),
        )
        _sign(scene, scene.child(top, "sign", "sign"))


def _build(scene: Scene, build: History, prompt: str) -> None:
    scene.ask(build, 5, prompt)
    scene.call(build, 9, "sonnet", 30_000, 0.4, ("make", "bash", {"command": "make"}))
    scene.result(build, 21, "make", "make: *** [all] Error 2 in target-88231", is_error=True)
    scene.call(
        build,
        25,
        "sonnet",
        41_000,
        0.55,
        ("logs", "agent", {"prompt": "Read build.log, and say what failed."}),
    )
    logs = scene.child(build, "logs", "logs")
    scene.ask(logs, 26, "Read build.log, and say what failed.")
    scene.call(logs, 30, "haiku", 90_000, 0.09, ("read", "read", {"path": "build.log"}))
    scene.result(logs, 31, "read", "undefined symbol in libexpat-2.6.1, needed by parse_feed.c")
    scene.reply(logs, 120, "haiku", 91_000, 0.1, "libexpat-2.6.1 lacks a symbol of parse_feed.c.")
    scene.result(build, 121, "logs", "libexpat-2.6.1 lacks a symbol of parse_feed.c.")
    scene.call(
        build,
        130,
        "sonnet",
        52_000,
        0.7,
        ("apt", "bash", {"command": "apt-get install libexpat-2.6.4"}),
    )
    scene.result(build, 180, "apt", "installed")
    scene.reply(build, 188, "sonnet", 53_000, 0.7, "Repaired: a C library was too old.")


def _docs(scene: Scene, docs: History, prompt: str) -> None:
    scene.ask(docs, 5, prompt)
    scene.call(docs, 12, "haiku", 12_000, 0.01, ("log", "bash", {"command": "git log v4.1.."}))
    scene.result(docs, 13, "log", "7f3a Mend the parser\n91bc Thank bob@example.org")
    scene.reply(docs, 79, "haiku", 14_000, 0.01, "NOTES.md names both commits.")
    docs.redact([3], reason="a mail address", by="ann")


def _sign(scene: Scene, sign: History) -> None:
    scene.ask(sign, 211, "Sign version 4.2 and pay for the signature.")
    scene.call(sign, 214, "sonnet", 4_000, 0.05, ("key", "bash", {"command": "ls keys"}))
    scene.result(sign, 215, "key", "release-key-0041\nrelease-key-0042")
    scene.call(sign, 221, "sonnet", 4_400, 0.06, ("try", "sign", {"key": "release-key-0041"}))
    scene.result(sign, 222, "try", "the key release-key-0041 is revoked", is_error=True)
    scene.call(sign, 226, "sonnet", 4_900, 0.06, ("pay", "pay", {"amount": 250}))
    try:
        with sign.lease():
            sign.run(*sign.open_calls(), _die)
    except KeyboardInterrupt:
        pass


def _die(amount: int) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    write_task(Path(sys.argv[1]))
