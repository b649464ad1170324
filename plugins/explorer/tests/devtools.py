"""Chromium without a window, driven by the DevTools protocol through pipes."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str | None:
    """The path of an installed Chromium or Chrome; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A page in a new browser process, which ends with the context.

    Attributes:
        problems: the messages of the console that are errors or warnings, uncaught exceptions, and requests other than
            the file itself.
    """

    def __init__(self, program: str, folder: Path, width: int = 1440, height: int = 900) -> None:
        self._to_browser, to_browser = _pipe()
        from_browser, self._from_browser = _pipe()
        self._write, self._read = to_browser, from_browser
        command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        command += [
            "--remote-debugging-pipe",
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
        ]
        command += [f"--user-data-dir={folder}", f"--window-size={width},{height}", "--hide-scrollbars", "about:blank"]
        self._size = (width, height)
        ends = (self._to_browser, self._from_browser)
        # The browser reads commands from descriptor 3 and writes answers to 4.
        script = f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", *command],
            pass_fds=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in ends:
            os.close(end)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._file = ""
        self._loaded = False
        self.problems: list[str] = []

    def __enter__(self) -> Browser:
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        width, height = self._size
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command. Raises RuntimeError if it fails or takes a minute."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 60
        while time.monotonic() < end:
            answer = self._receive(end)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._event(answer)
        raise RuntimeError(f"{method}: the browser does not answer")

    def open(self, path: Path) -> float:
        """Load a file; returns the seconds until its scripts have run."""
        self._file = path.resolve().as_uri()
        self._loaded = False
        start = time.monotonic()
        self.call("Page.navigate", url=self._file)
        while not self._loaded:
            self._event(self._receive(start + 60))
        return time.monotonic() - start

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript, or of the promise that it is."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true. Raises AssertionError after twenty seconds."""
        end = time.monotonic() + 20
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < end, condition
            time.sleep(0.02)

    def click(self, selector: str, text: str = "") -> None:
        """Click the first element of a selector that contains a text, where a person would: in its middle."""
        elements = f"[...document.querySelectorAll({json.dumps(selector)})]"
        found = f"{elements}.find(e => e.textContent.includes({json.dumps(text)}))"
        self.wait(found)
        x, y = self.run(
            f"(() => {{ const e = {found}; e.scrollIntoView({{block: 'nearest'}}); const b = e.getBoundingClientRect();"
            " return [b.left + Math.min(b.width, 700) / 2, b.top + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path: Path) -> None:
        """Write a picture of the page as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def _receive(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            part = os.read(self._read, 1 << 20) if ready else b""
            if not part:
                raise RuntimeError("the browser ended, or does not answer")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        received: dict[str, Any] = json.loads(message)
        return received

    def _event(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent" and params["request"]["url"] != self._file:
            self.problems.append(f"a request of {params['request']['url']}")


def _pipe() -> tuple[int, int]:
    return os.pipe()
