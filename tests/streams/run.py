"""Run the public suite of the protocol Durable Streams against a service that this program starts.

    python -m tests.streams.run [sqlite | postgresql]

The exit status is 1 if a test failed, or if a test was left out that is not of a fork or a
subscription.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import foldlog
from tests.postgres.servers import new_primary

FOLDER = Path(__file__).parent
CONVERSATIONS = 16
TOKEN = "a token of the suite"
TOKENS = f"""[suite]
scope = "append"
token = "{TOKEN}"
requests_per_s = 100000
connections = 1000
"""
REFUSED = ("Fork - ", "Reserved subscription APIs")
"""The beginnings of the names of the tests of what foldlog refuses."""


def main(databases):
    return max([run(database) for database in databases])


def run(database):
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as ending:
        folder = Path(name)
        url = f"sqlite:///{folder}/store.db"
        if database == "postgresql":
            folder.chmod(0o755)
            server = new_primary(folder / "server")
            ending.callback(server.remove)
            url = server.url(schema="streams")
        with foldlog.open(url) as histories:
            for number in range(CONVERSATIONS):
                histories[f"suite-{number}"].append({"role": "user", "content": "hi"})
        address = ending.enter_context(serving(url, folder))
        report = folder / "report.json"
        left_out = "|".join(REFUSED)
        subprocess.run(
            [
                *("npx", "--no-install", "vitest", "run"),
                *("--reporter=json", f"--outputFile={report}"),
                *("--testNamePattern", f"^(?!.*({left_out}))"),
            ],
            cwd=FOLDER,
            env={**os.environ, "FOLDLOG_URL": address, "FOLDLOG_TOKEN": TOKEN},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        return tell(database, json.loads(report.read_text()))


@contextlib.contextmanager
def serving(url, folder):
    tokens = folder / "tokens.toml"
    tokens.write_text(TOKENS)
    tokens.chmod(0o600)
    command = [sys.executable, "-m", "foldlog", "serve", "--write", "--port", "0"]
    command += ["--tokens", tokens, "--db", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().partition("?")[0].strip()
            if not address:
                raise RuntimeError(f"foldlog serve ended with status {server.wait()}")
            yield address
        finally:
            server.terminate()


def tell(database, report):
    """Print the outcome, and return the exit status."""
    tests = [test for file in report["testResults"] for test in file["assertionResults"]]
    failed = [test for test in tests if test["status"] == "failed"]
    left_out = Counter(
        test["ancestorTitles"][0] for test in tests if test["status"] not in ("passed", "failed")
    )
    passed = sum(test["status"] == "passed" for test in tests)
    print(f"{database}: {passed} of {passed + len(failed)} tests passed")
    for test in failed:
        print(f"  failed: {test['fullName']}: {test['failureMessages'][0].splitlines()[0]}")
    for name, number in left_out.items():
        print(f"  left out: {name}, {number} tests")
    unknown = [name for name in left_out if not name.startswith(REFUSED)]
    return 1 if failed or unknown or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["sqlite", "postgresql"]))
