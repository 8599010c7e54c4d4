"""Run the protocol's suite for clients against a service that this program starts.

    python -m tests.streams.clients CHECKOUT [ADAPTER ...]

CHECKOUT is a checkout of the repository durable-streams, because npm does not have the suite.
ADAPTER is a program that speaks the suite's protocol of adapters: ``ts`` (the default) is the one
for TypeScript, CHECKOUT/packages/client-py and client-go have others. The suite's own server is
replaced by foldlog. Then each client reads a conversation and a reply: everything, the rest after
an offset, and up to the end.

The exit status is 1 if a test failed that is not in ``EXPECTED``.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import foldlog
from tests.streams.run import CONVERSATIONS, FOLDER, TOKEN, serving

SERVER = """
import {{ addressOf, startProxy }} from "{proxy}";
export class DurableStreamTestServer {{
  async start() {{ this.proxy = await startProxy("/"); this.url = addressOf(this.proxy); }}
  async stop() {{ this.proxy.closeAllConnections(); this.proxy.close(); }}
}}
"""
EXPECTED = {
    "Failed to inject fault": "the suite's own server injects faults into its answers",
    "sse-strips-single-leading-space": "the suite's own server loses a space of the text",
    "offset-now-empty-stream-longpoll": "foldlog answers a long poll after 20 s, the suite waits 1 s",
    "offset-now-longpoll-waits": "foldlog answers a long poll after 20 s, the suite waits 1 s",
}


def main(checkout, *adapters):
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        suite = prepared(Path(checkout), folder / "suite")
        url = f"sqlite:///{folder}/store.db"
        with foldlog.open(url) as histories:
            for number in range(CONVERSATIONS):
                histories[f"suite-{number}"].append({"role": "user", "content": "hi"})
        with serving(url, folder) as address:
            for adapter in adapters or ["ts"]:
                failures += run_suite(suite, adapter, address)
                failures += read_conversation(suite, adapter, url, address)
    return 1 if failures else 0


def prepared(checkout, suite):
    """Copy the suite, with foldlog in place of its server. Return the folder."""
    source = checkout / "packages" / "client-conformance-tests"
    shutil.copytree(source / "src", suite / "src")
    shutil.copytree(source / "test-cases", suite / "test-cases")
    (suite / "package.json").write_text('{"private": true, "type": "module"}')
    (suite / "server.mjs").write_text(SERVER.format(proxy=FOLDER / "proxy.mjs"))
    for name in ("runner.ts", "benchmark-runner.ts"):
        file = suite / "src" / name
        file.write_text(file.read_text().replace("@durable-streams/server", "../server.mjs"))
    (suite / "node_modules").symlink_to(FOLDER / "node_modules")
    return suite


def run_suite(suite, adapter, address):
    ran = subprocess.run(
        ["npx", "--no-install", "tsx", "src/cli.ts", "--run", adapter],
        cwd=suite,
        env={**os.environ, "FOLDLOG_URL": address, "FOLDLOG_TOKEN": TOKEN},
        capture_output=True,
        text=True,
        check=False,
    )
    totals = dict(re.findall(r"^(Total|Passed|Skipped): (\d+)", ran.stdout, re.MULTILINE))
    failed = re.findall(r"^  - (\S+: .*)$", ran.stdout, re.MULTILINE)
    print(
        f"{adapter}: {totals.get('Passed', 0)} of {totals.get('Total', 0)} tests passed,"
        f" {totals.get('Skipped', 0)} need what this client does not have"
    )
    for part, reason in EXPECTED.items():
        count = sum(part in line for line in failed)
        if count:
            print(f"  left out: {count} tests: {reason}")
    unknown = [line for line in failed if not any(part in line for part in EXPECTED)]
    for line in unknown:
        print(f"  failed: {line}")
    if not totals:
        print(ran.stdout[-2_000:], ran.stderr[-2_000:])
    return len(unknown) if totals else 1


def read_conversation(suite, adapter, url, address):
    """Let a client read the events of a conversation, and a reply to its end."""
    texts = [f"message {number}" for number in range(20)]
    name = f"read-by-{re.sub('[^a-z]', '-', adapter)}"
    with foldlog.open(url) as histories, client(suite, adapter, address) as ask:
        history = histories[name]
        history.append([{"role": "user", "content": text} for text in texts])
        whole = ask(type="read", path=f"/v1/stream/{name}", live=False)
        found = [event["event"]["content"] for event in values_of(whole)]
        history.append({"role": "user", "content": "one more"})
        rest = ask(type="read", path=f"/v1/stream/{name}", offset=whole["offset"], live=False)
        more = [event["event"]["content"] for event in values_of(rest)]
        with history.stream_reply() as reply:
            for piece in ("It ", "flies", "."):
                reply.feed(piece)
        ended = ask(type="read", path=f"/v1/stream/{name}/reply", live=False)
    pieces = [delta["text"] for delta in values_of(ended)]
    answers = {
        "all": found == texts,
        "resume": more == ["one more"],
        "end": pieces == ["It ", "flies", "."] and bool(ended.get("streamClosed")),
    }
    print(
        f"{adapter} reads a conversation:", ", ".join(f"{part} {answers[part]}" for part in answers)
    )
    return not all(answers.values())


@contextlib.contextmanager
def client(suite, adapter, address):
    """Start an adapter, and yield a function that sends it a command and returns the result."""
    command = ["npx", "--no-install", "tsx", "src/adapters/typescript-adapter.ts"]
    if adapter != "ts":
        command = [adapter]
    with subprocess.Popen(
        command, cwd=suite, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def ask(**fields):
            headers = {"authorization": f"Bearer {TOKEN}"}
            process.stdin.write(json.dumps({**fields, "headers": headers}) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        ask(type="init", serverUrl=address.rstrip("/"))
        yield ask
        process.stdin.close()


def values_of(result):
    if not result["success"]:
        raise SystemExit(f"the client failed: {result}")
    chunks = (json.loads(chunk["data"]) for chunk in result["chunks"] if chunk["data"])
    return [value for chunk in chunks for value in (chunk if isinstance(chunk, list) else [chunk])]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
