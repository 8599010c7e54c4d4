"""Kill a service in the middle of replies, and compare what writers, readers and the log have.

    python -m tests.streams.kills sqlite|postgresql [--kills N] [--seed S] [--typescript]

Writers in Python (threads of this program) and in TypeScript (processes that are killed too) stream
replies over HTTP. Readers follow them. Each writer notes a chunk when the service has acknowledged
it. ``--typescript`` needs the built client: ``scripts/test --clients``.

The exit status is 1 if an acknowledged chunk is missing, doubled or out of order in the log or at a
reader, if a reply is open and appended or appended twice, or if a prompt has half of a call.
"""

import argparse
import contextlib
import http.client
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from pathlib import Path

import foldlog
from foldlog.eventstore import Action, Message, ReadTransaction
from tests.postgres.servers import new_primary
from tests.streams.run import FOLDER, TOKEN, TOKENS

HALVES = ('{"whole": ', "true}")
JSON = {"content-type": "application/json", "authorization": f"Bearer {TOKEN}"}


class Service:
    """A service that is killed and started again at the same port."""

    def __init__(self, url, folder):
        self._url = url
        self._tokens = folder / "tokens.toml"
        self._tokens.write_text(TOKENS)
        self._tokens.chmod(0o600)
        self.port = 0
        self.start()

    def start(self):
        command = [sys.executable, "-m", "foldlog", "serve", "--write", "--port", str(self.port)]
        command += ["--tokens", self._tokens, "--db", self._url]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        address = self._process.stdout.readline().partition("?")[0].strip()
        self.port = int(address.rstrip("/").rpartition(":")[2])

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()


class Program:
    """What the writers and readers share. ``stored`` maps a reply to the numbers of its
    acknowledged chunks, and ``ended`` has the replies whose end was acknowledged.
    """

    def __init__(self, service):
        self.service = service
        self.is_over = threading.Event()
        self.stored = defaultdict(list)
        self.ended = {}
        self.read = defaultdict(set)
        """Maps a reply to the different lists of chunks that readers got from its ended stream."""
        self.problems = []

    def ask(self, method, path, body=None, **headers):
        """Send a request again and again until the service answers it. Return the status."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=30)
            with (
                contextlib.closing(connection),
                contextlib.suppress(OSError, http.client.HTTPException),
            ):
                content = None if body is None else json.dumps(body)
                connection.request(method, path, content, {**JSON, **headers})
                answer = connection.getresponse()
                answer.read()
                if answer.status < 500:
                    return answer.status
            time.sleep(0.02)

    def check(self, is_right, problem):
        if not is_right:
            self.problems.append(problem)

    def run(self, work, *arguments):
        """Run a writer or a reader in this thread. Its error is a problem."""
        try:
            work(self, *arguments)
        except Exception as error:  # noqa: BLE001 - it is printed with the other problems
            self.problems.append(f"{work.__name__} ended: {type(error).__name__}: {error}")


def write(program, conversation, rng):
    stream = f"/v1/stream/{conversation}/reply"
    while not program.is_over.is_set():
        reply = str(uuid.UUID(int=rng.getrandbits(128)))
        status = program.ask("PUT", stream, [], producer_id=reply)
        program.check(status in (200, 201), f"PUT {conversation}: {status}")
        length = rng.randrange(40)
        pieces = [{"type": "text", "text": f"{reply}.{number} "} for number in range(length)]
        call = {"type": "call", "at": 1, "id": reply, "tool": "look", "arguments": HALVES[0]}
        pieces += [call, {"type": "call", "at": 1, "arguments": HALVES[1]}]
        for number, delta in enumerate(pieces):
            producer = {"producer_id": reply, "producer_epoch": "0", "producer_seq": str(number)}
            status = program.ask("POST", stream, [delta], **producer)
            program.check(status in (200, 204), f"POST {conversation} {number}: {status}")
            if number < length:
                program.stored[reply].append(number)
        path = f"/v1/conversations/{conversation}/replies"
        status = program.ask(
            "POST", path, {"stream": "reply"}, producer_id=reply, idempotency_key=reply
        )
        program.check(status in (200, 201), f"end {conversation}: {status}")
        program.ended[reply] = length


def run_typescript(program, conversation, rng):
    """Run a worker, and kill it now and then."""
    address = f"http://127.0.0.1:{program.service.port}"
    while not program.is_over.is_set():
        with subprocess.Popen(
            ["node", FOLDER / "worker.mjs", address, TOKEN, conversation],
            stdout=subprocess.PIPE,
            text=True,
        ) as worker:
            patience = threading.Timer(rng.uniform(3, 8), worker.kill)
            patience.start()
            for line in worker.stdout:
                word, reply, *rest = line.split()
                if word == "stored" and rest and line.endswith("\n"):
                    program.stored[reply].append(int(rest[0]))
                elif word == "ended" and rest and line.endswith("\n"):
                    program.ended[reply] = int(rest[0])
                elif word == "surprise":
                    program.problems.append(f"{conversation}: {line.strip()}")
                if program.is_over.is_set():
                    worker.kill()
            patience.cancel()


def follow(program, conversation):
    """Read the replies of a conversation, each to its end, over all breaks."""
    offset = "-1"
    deltas = []
    ended = None
    batch = []  # a page may have no data
    while not program.is_over.is_set():
        connection = http.client.HTTPConnection("127.0.0.1", program.service.port, timeout=5)
        with (
            contextlib.closing(connection),
            contextlib.suppress(OSError, http.client.HTTPException),
        ):
            path = f"/v1/stream/{conversation}/reply?live=sse&offset={offset}"
            connection.request("GET", path, headers=JSON)
            answer = connection.getresponse()
            if answer.status in (404, 410):  # the stream was deleted, or another has its name
                answer.read()
                offset = "-1"
                deltas = []
                time.sleep(0.02)
                continue
            for event, data in events_of(answer):
                if event == "data":
                    batch = json.loads(data)
                    continue
                control = json.loads(data)
                offset = control["streamNextOffset"]
                deltas = [*deltas, *batch]
                batch = []
                if control.get("streamClosed"):
                    stream = offset.partition("_")[0]
                    if stream != ended:
                        note_read(program, conversation, deltas)
                    offset = "-1"
                    deltas = []
                    ended = stream
        batch = []
        time.sleep(0.02)


def events_of(answer):
    event = ""
    data = []
    for line in answer:
        text = line.decode().rstrip("\n")
        if not text:
            yield event, "\n".join(data)
            event = ""
            data = []
        name, _, value = text.partition(":")
        if name == "event":
            event = value.strip()
        elif name == "data":
            data.append(value)


def note_read(program, conversation, deltas):
    tokens = "".join(delta["text"] for delta in deltas if delta["type"] == "text").split()
    replies = {token.partition(".")[0] for token in tokens}
    numbers = [int(token.partition(".")[2]) for token in tokens]
    program.check(len(replies) <= 1, f"{conversation}: a reader got a mix of {replies}")
    program.check(
        numbers == [*range(len(numbers))], f"{conversation}: a reader got chunks {numbers}"
    )
    if replies:
        program.read[replies.pop()].add(len(numbers))


def check_log(program, histories, conversations):
    """Compare the log with what the writers and the readers noted. Return the number of replies."""
    appended = defaultdict(list)
    opened = {}
    for name in conversations:
        history = histories[name]
        for event in history.events():
            text = event.content if isinstance(event, Message) else getattr(event, "thought", "")
            if isinstance(event, Action):
                program.check(event.arguments == {"whole": True}, f"{name}: half of a call {event}")
            tokens = text.split() if "." in text else []
            for reply in {token.partition(".")[0] for token in tokens}:
                appended[reply].append([int(token.partition(".")[2]) for token in tokens])
        for message in history.view().to_messages():
            for call in message.get("tool_calls") or ():
                arguments = call["function"]["arguments"]
                program.check(arguments == '{"whole":true}', f"{name}: prompt with {arguments}")
        unfinished = history.unfinished_reply()
        if unfinished is not None and unfinished.text:
            tokens = unfinished.text.split()
            reply = tokens[0].partition(".")[0]
            opened[reply] = [int(token.partition(".")[2]) for token in tokens]
        open_streams = [
            stream
            for stream in histories.store.query(name, ReadTransaction.streams)
            if stream.closed_at is None
        ]
        program.check(len(open_streams) <= 1, f"{name}: {len(open_streams)} open streams")
    for reply, numbers in program.stored.items():
        texts = appended.get(reply, [])
        program.check(len(texts) <= 1, f"{reply} was appended {len(texts)} times")
        program.check(not (texts and reply in opened), f"{reply} is open and appended")
        found = texts[0] if texts else opened.get(reply, [])
        program.check(found == [*range(len(found))], f"{reply} has the chunks {found}")
        program.check(set(numbers) <= set(found), f"{reply} lacks {set(numbers) - set(found)}")
        if reply in program.ended:
            program.check(len(found) == program.ended[reply], f"{reply} has not its whole text")
        for length in program.read.get(reply, ()):
            program.check(length == len(found), f"a reader of {reply} got {length} chunks")
    return len(appended)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("database", choices=["sqlite", "postgresql"])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--typescript", action="store_true")
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as ending:
        folder = Path(name)
        url = f"sqlite:///{folder}/store.db"
        if asked.database == "postgresql":
            folder.chmod(0o755)
            server = new_primary(folder / "server")
            ending.callback(server.remove)
            url = server.url(schema="streams")
        conversations = {"py-0": write, "py-1": write}
        if asked.typescript:
            conversations |= {"ts-0": run_typescript, "ts-1": run_typescript}
        with foldlog.open(url) as histories:
            for conversation in conversations:
                histories[conversation].append({"role": "user", "content": "hi"})
        service = Service(url, folder)
        ending.callback(service.kill)
        program = Program(service)
        works = [
            (writer, conversation, random.Random(number))
            for number, (conversation, writer) in enumerate(conversations.items())
        ]
        works += [(follow, conversation) for conversation in conversations]
        # They are daemons, so that they end with the program if the service does not start again.
        threads = [threading.Thread(target=program.run, args=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        for _ in range(asked.kills):
            time.sleep(rng.uniform(0.05, 1.0))
            service.kill()
            service.start()
        program.is_over.set()
        for thread in threads:
            thread.join()
        with foldlog.open(url) as histories:
            replies = check_log(program, histories, conversations)
        program.check(bool(program.ended), "no reply came to its end")
    chunks = sum(map(len, program.stored.values()))
    print(
        f"{asked.database}: {asked.kills} kills of the service, {chunks} acknowledged chunks,"
        f" {replies} replies in the log, {len(program.ended)} ended,"
        f" {sum(map(len, program.read.values()))} read to their end;"
        f" {len(program.problems)} problems"
    )
    for problem in program.problems[:20]:
        print(f"  {problem}")
    return 1 if program.problems else 0


if __name__ == "__main__":
    sys.exit(main())
