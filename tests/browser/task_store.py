"""A store with one task of six agents: ``python -m tests.browser.task_store FILE`` writes it, for
somebody who asks the page what happened.

The build fails because of ``libexpat-2.6.1``. A sub-agent of the sub-agent ``build`` finds that,
and ``build`` does not report it. ``sign`` is not told the key ``release-key-0042``, and was killed
while it paid. ``docs`` has a redacted event, and ``scan`` was erased.
"""

import json
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import foldlog
from tests.foldlog.records import GOLDEN
from tests.golden.rows import made_events

TASK = "release/4.2"
STEPS = GOLDEN / "task_of_agents.json"
"""What happened in a conversation, and when."""


def write_task(path: Path) -> None:
    steps = json.loads(STEPS.read_text("utf-8"))
    times = [datetime.fromisoformat(step["at"]) for step in steps]
    now = times[0]
    with foldlog.open(path, clock=lambda: now) as histories:
        for at, step in zip(times, steps, strict=True):
            now = at
            _take(step, histories[step["in"]], histories)


def _take(step: dict[str, Any], history: foldlog.History, histories: foldlog.Histories) -> None:
    calls = {call.call_id: call for call in history.open_calls()}
    match step:
        case {"events": events}:
            history.append([*made_events(events)])
        case {"begins": child, "call": call_id}:
            history.begin_child(calls[call_id], child)
        case {"killed in": call_id}:
            with suppress(KeyboardInterrupt), history.lease():
                history.run(calls[call_id], _die)
        case {"redact": ids, "reason": reason, "by": by}:
            history.redact(ids, reason=reason, by=by)
        case {"erase": reason}:
            histories.erase(history.id, reason=reason)


def _die(**arguments: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    write_task(Path(sys.argv[1]))
