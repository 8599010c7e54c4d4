"""A headless Chromium, driven by its DevTools protocol over a pipe: no driver program, no port, no
further package.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = """
--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --mute-audio
--disable-background-networking --disable-component-update --disable-sync --disable-extensions
--disable-dev-shm-usage --hide-scrollbars --force-color-profile=srgb --remote-debugging-pipe
"""
_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, "PageUp": 33, "PageDown": 34, "End": 35, "Home": 36}
_CODES |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
"""The codes of keys that are no letters."""
PATIENCE_S = 60.0
"""How long an answer may take on a machine that has other work."""


_WITH_PIPES = (
    "import os, sys; given = [os.dup(os.dup(int(fd))) for fd in sys.argv[1:3]]; "
    "os.dup2(given[0], 3); os.dup2(given[1], 4); os.execv(sys.argv[3], sys.argv[3:])"
)
"""A program that replaces itself by the command of its arguments, and gives it the first two
descriptors as 3, to read from, and 4, to write to. The first copies are above 4, so that no copy
closes another one.
"""


_MIDDLE = """(element) => {
  const box = element.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
}"""
_RESTS = f"""await (async (element) => {{
  const middle = {_MIDDLE};
  if (!element) return false;
  element.scrollIntoView({{ block: "nearest" }});
  const before = middle(element);
  for (const frame of [1, 2, 3]) await new Promise(requestAnimationFrame);
  const after = middle(element);
  return element.isConnected && before[0] === after[0] && before[1] === after[1];
}})"""
"""Whether an element stays where it is for three frames."""


_TAB = "try { sessionStorage['foldlog-tab'] ??= '%s' } catch {}"


class BrowserUnavailable(Exception):
    """There is no browser here."""


class PageFailed(Exception):
    """The page raised an error while a test asked it something."""


def find_program() -> str | None:
    """Return the browser that ``$FOLDLOG_CHROMIUM`` names, or else the first on the path."""
    return os.environ.get("FOLDLOG_CHROMIUM") or next(
        filter(None, map(shutil.which, PROGRAMS)), None
    )


class Chromium:
    """One browser process. ``new_page`` opens a tab. Everything that any tab requests, says or
    throws is kept.
    """

    def __init__(self, *flags: str) -> None:
        program = find_program()
        if program is None:
            raise BrowserUnavailable(
                f"no browser here: none of {', '.join(PROGRAMS)} is on the path"
            )
        self._folder = tempfile.mkdtemp(prefix="foldlog-chromium-")
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        command = [
            program,
            *_FLAGS.split(),
            f"--user-data-dir={self._folder}",
            *flags,
            "about:blank",
        ]

        self._process = subprocess.Popen(
            [sys.executable, "-c", _WITH_PIPES, str(theirs_in), str(theirs_out), *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._numbers = iter(range(1, 1 << 30))
        self._lock = threading.Lock()
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._listeners: list[Callable[[dict[str, Any]], None]] = []
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self.version = self.send("Browser.getVersion")["product"]
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        rest = b""
        while True:
            try:
                part = os.read(self._from, 1 << 20)
            except OSError:
                part = b""
            if not part:
                break
            *messages, rest = (rest + part).split(b"\0")
            for text in messages:
                message = json.loads(text)
                if "id" in message:
                    waiting = self._answers.get(message["id"])
                    if waiting is not None:
                        waiting.put(message)
                else:
                    for listener in list(self._listeners):
                        listener(message)
        for waiting in list(self._answers.values()):
            waiting.put({"error": {"message": "the browser ended"}})

    def send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Call a method, and return its result."""
        number = next(self._numbers)
        answer = self._answers[number] = queue.Queue()
        self.post(method, session, number, **parameters)
        try:
            reply = answer.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise TimeoutError(f"{method} was not answered within {PATIENCE_S:.0f} s") from None
        finally:
            del self._answers[number]
        if "error" in reply:
            raise PageFailed(f"{method}: {reply['error']['message']}")
        return reply["result"]

    def post(self, method: str, session: str | None, number: int = 0, **parameters: Any) -> None:
        """Call a method, and do not wait for its result."""
        message = {
            "id": number,
            "method": method,
            "params": parameters,
            **({"sessionId": session} if session else {}),
        }
        with self._lock:
            data = json.dumps(message).encode() + b"\0"
            while data:
                data = data[os.write(self._to, data) :]

    @contextmanager
    def listening(self, listener: Callable[[dict[str, Any]], None]) -> Iterator[None]:
        """Call a function with each event of any tab, during a block."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    @contextmanager
    def new_page(
        self, width: int = 1440, height: int = 900, theme: str = "light", tab: str = "memory"
    ) -> Iterator[Page]:
        """Yield a new tab, and close it. ``tab`` is what a page of a run shows first, if its address
        does not say. At the end, the page must have no problem that the test does not expect.
        """
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)[
            "targetId"
        ]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        try:
            with self.listening(page.note):
                page.begin(width, height, theme)
                page.send("Page.addScriptToEvaluateOnNewDocument", source=_TAB % tab)
                yield page
                unexpected = page.unexpected()
                assert unexpected == [], unexpected
        finally:
            self.send("Target.disposeBrowserContext", browserContextId=context)

    def close(self) -> None:
        os.close(self._to)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)
        shutil.rmtree(self._folder, ignore_errors=True)


def _is_replaced(error: PageFailed) -> bool:
    """Return whether a question was lost because the tab went to another page: the browser says so,
    and not the page, whose errors may have the same words.
    """
    return re.match(r"Runtime\.evaluate: .*(context|navigated)", str(error)) is not None


class Page:
    """One tab. ``requests`` are all URLs that it asked for, ``problems`` what it threw, logged as
    an error, was refused by its policy, or asked with a dialog. A test puts into ``expected`` what
    the texts of the problems contain that it provokes.
    """

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session
        self.requests: list[str] = []
        self.problems: list[str] = []
        self.expected: list[str] = []

    def begin(self, width: int, height: int, theme: str) -> None:
        """Let the browser send the events of the tab, and set how the tab looks."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.resize(width, height)
        self.set_theme(theme)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.send(method, self._session, **parameters)

    def note(self, message: dict[str, Any]) -> None:
        """Note what an event of the browser says about this tab."""
        if message.get("sessionId") != self._session:
            return
        parameters = message["params"]
        match message["method"]:
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Runtime.exceptionThrown":
                self.problems.append(
                    f"threw {parameters['exceptionDetails'].get('exception', parameters['exceptionDetails'])}"
                )
            case "Runtime.consoleAPICalled" if parameters["type"] == "error":
                self.problems.append(f"logged {parameters['args']}")
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.problems.append(
                    f"{parameters['entry']['source']}: {parameters['entry']['text']}"
                    f" {parameters['entry'].get('url', '')}"
                )
            case "Page.javascriptDialogOpening":
                self.problems.append(f"opened a dialog: {parameters['message']}")
                self._browser.post("Page.handleJavaScriptDialog", self._session, accept=True)
            case "Page.windowOpen" | "Page.downloadWillBegin" as what:
                self.problems.append(f"{what} {parameters.get('url')}")

    def unexpected(self) -> list[str]:
        return [
            problem
            for problem in self.problems
            if not any(words in problem for words in self.expected)
        ]

    def resize(self, width: int, height: int) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def set_theme(self, theme: str) -> None:
        self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": theme}],
        )

    def open(self, url: str) -> None:
        """Go to a page, and wait until its script has drawn it."""
        self.send("Page.navigate", url=url)
        self.wait("document.getElementById('app')?.dataset.ready !== undefined")
        self.settle()

    def ask(self, expression: str) -> Any:
        """Return the value of a JavaScript expression. A promise is awaited."""
        reply = self.send(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        if "exceptionDetails" in reply:
            raise PageFailed(
                reply["exceptionDetails"].get("exception", {}).get("description") or str(reply)
            )
        return reply["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                if self.ask(f"(async () => Boolean({condition}))()"):
                    return
            except PageFailed as error:
                if not _is_replaced(error):
                    raise
            if time.monotonic() > until:
                raise TimeoutError(f"{condition} did not become true; problems: {self.problems}")
            time.sleep(0.02)

    def settle(self) -> None:
        """Wait until the page is drawn. If it goes to another page, wait until that one is drawn."""
        self.wait(
            "await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>"
            " setTimeout(() => done(true), 30))))"
        )

    def run(self, expression: str) -> None:
        """Have the page do something, and wait until it is drawn."""
        self.ask(expression)
        self.settle()

    def press(self, key: str, *, shift: bool = False) -> None:
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        common = {
            "key": key,
            "windowsVirtualKeyCode": _CODES.get(key, 0),
            "modifiers": 8 if shift else 0,
        }
        self.send(
            "Input.dispatchKeyEvent",
            type="keyDown" if text else "rawKeyDown",
            **common,
            **({"text": text} if text else {}),
        )
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)
        self.settle()

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)
        self.settle()

    def search(self, text: str) -> None:
        """Type into the first box for searches. A page that scrolls to an event that it has just
        loaded can take the box away from under a click: then it is clicked on again.
        """
        until = time.monotonic() + PATIENCE_S
        while not self.ask("document.activeElement?.type === 'search'"):
            if time.monotonic() > until:
                raise TimeoutError("the box for searches did not take the focus")
            self.click("input[type=search]")
        self.type(text)

    def click(self, selector: str, text: str = "") -> None:
        """Click on the middle of the first visible element that matches and has this text, once it
        rests: a page that is still scrolling would move another element under the click.
        """
        chosen = (
            f"Array.from(document.querySelectorAll({json.dumps(selector)})).find((each) =>"
            f" each.getClientRects().length && each.textContent.includes({json.dumps(text)}))"
        )
        self.wait(f"{chosen} !== undefined")
        self.wait(f"{_RESTS}({chosen})")
        place = self.ask(f"({_MIDDLE})({chosen})")
        self.click_at(*place)

    def click_at(self, x: float, y: float) -> None:
        self.move_to(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def move_to(self, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def text(self, selector: str) -> str:
        return str(self.ask(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def screenshot(self, path: Path) -> Path:
        self.settle()
        path.write_bytes(
            base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])
        )
        return path
