"""Headless Chromium, driven through a pipe by its own protocol: no driver, and no listening port."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time

PROGRAM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--hide-scrollbars",
)  # fmt: skip
# The program finds the pipe as its files 3 and 4.
START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
PATIENCE = 60.0  # seconds


class Browser:
    """One page, in which `messages` collects console messages and `asked` requests."""

    def __init__(self, folder):
        (out, self._write), (self._read, back) = ((_high(fd) for fd in os.pipe()) for _ in range(2))
        words = (PROGRAM, *OPTIONS, "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank")
        with open(os.path.join(folder, "log"), "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", START, str(out), str(back), *words], pass_fds=(out, back),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        os.close(out)
        os.close(back)
        self._buffer, self._number, self._session = b"", 0, None
        self.messages, self.asked = [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        os.close(self._write)
        self._process.terminate()
        self._process.wait(PATIENCE)
        os.close(self._read)

    def call(self, method, **parameters):
        """Call a method of the browser and return its answer; events that come before it are noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while True:
            answer = self._next(end)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._note(answer)

    def _next(self, end):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            subset = os.read(self._read, 1 << 20)
            assert subset, "the browser ended"
            self._buffer += subset
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event):
        name, what = event.get("method"), event.get("params", {})
        if name == "Runtime.exceptionThrown":
            self.messages.append(json.dumps(what["exceptionDetails"])[:600])
        elif name == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
            self.messages.append(str(what["args"]))
        elif name == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.messages.append(what["entry"]["text"])
        elif name == "Network.requestWillBeSent":
            self.asked.append(what["request"]["url"])

    def run(self, script):
        """Evaluate an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def until(self, script, seconds=20.0):
        """Wait until an expression is true; return whether it became true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.run(script):
                return True
            time.sleep(0.05)
        return False

    def complains(self, seconds=20.0):
        """True if the console soon has a message; its messages come with a delay."""
        end = time.monotonic() + seconds
        while not self.messages and time.monotonic() < end:
            self.run("new Promise((r) => setTimeout(r, 50))")
        return bool(self.messages)

    def open(self, path, width=1280, height=900, dark=False):
        """Open the page at the path, possibly with an anchor; return the seconds until it was ready."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        started = time.monotonic()
        self.call("Page.navigate", url="about:blank")
        self.messages.clear()
        self.asked.clear()
        self.call("Page.navigate", url=f"file://{path}")
        assert self.until("location.protocol === 'file:' && document.readyState === 'complete'", PATIENCE)
        # What is near is shown after the first frame.
        self.run("new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(r, 50))))")
        self.until("document.querySelector('.part')?.childElementCount !== 0", 5.0)  # on a busy machine it takes longer
        return time.monotonic() - started

    def press(self, key, code=None):
        """Press a key of the keyboard, such as Enter or ArrowDown."""
        numbers = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40}
        more = {"text": "\r"} if key == "Enter" else {}
        look = {"key": key, "code": code or key, "windowsVirtualKeyCode": numbers[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown", **look, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", **look)

    def paper(self):
        """The page as printed: bytes of a PDF file."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])


def _high(fd):
    """Duplicate a file descriptor to a number that is out of the way."""
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100)
    os.close(fd)
    return high
