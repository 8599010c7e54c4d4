"""Short records of OpenHands V1, the records of each format's corpus, and the usage of a call."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).parents[2] / "foldlog/_app/sample/tidewatch.jsonl"
"""The history that the package brings."""
GOLDEN = Path(__file__).parents[1] / "golden"
CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"
"""Records of each format, all that its program writes."""


def lines_of(format: str) -> list[bytes]:
    """Return the lines of a format's corpus, with their ends."""
    return (CORPUS / f"{format}.jsonl").read_bytes().splitlines(keepends=True)


def records_of(format: str) -> list[Any]:
    """Return the records of a format's corpus."""
    return read_lines(CORPUS / f"{format}.jsonl")


def read_lines(path: Path) -> list[Any]:
    """Return the JSON values of a file that has one on each line."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def write_lines(path: Path, records: Iterable[Any]) -> Path:
    """Write JSON values into a file, each on a line."""
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")
    return path


def v1(kind: str, number: int, **fields: Any) -> dict[str, Any]:
    """Return a record of OpenHands V1."""
    source = fields.pop("source", "agent")
    stamp = f"2026-02-17T09:{number // 60 % 60:02}:{number % 60:02}.000000"
    return {"kind": kind, "id": f"event-{number}", "timestamp": stamp, "source": source, **fields}


def said(number: int, text: str, source: str = "user") -> dict[str, Any]:
    """Return a message of OpenHands V1."""
    role = "user" if source == "user" else "assistant"
    content = [{"type": "text", "text": text, "cache_prompt": False}]
    message = {"role": role, "content": content, "thinking_blocks": []}
    return v1(
        "MessageEvent",
        number,
        source=source,
        llm_message=message,
        activated_skills=[],
        extended_content=[],
    )


def condensed(number: int, forgotten: list[int], summary: str, offset: int) -> dict[str, Any]:
    """Return a condensation of OpenHands V1."""
    return v1(
        "Condensation",
        number,
        source="environment",
        forgotten_event_ids=[f"event-{i}" for i in forgotten],
        summary=summary,
        summary_offset=offset,
        llm_response_id="response-1",
    )


def used(call: Any) -> tuple[Any, ...]:
    """Return the tokens of a call (in its prompt, from a cache, in its reply) and its cost. A
    missing number is None.
    """
    return *map(call.usage.get, ("prompt_tokens", "cached_tokens", "completion_tokens")), call.cost
