"""A page in Chromium without a window, by the DevTools protocol over pipes
(https://chromedevtools.github.io/devtools-protocol/)."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.gpu.browser import end, find

_FLAGS = (
    "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip
SOFTWARE_WEBGPU = (
    "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--disable-gpu-watchdog",
    "--disable-gpu-process-crash-limit",
)  # fmt: skip
"""Flags for WebGPU on the browser's own software adapter."""
VULKAN_WEBGPU = (
    "--enable-unsafe-webgpu", "--enable-features=Vulkan", "--use-angle=vulkan", "--disable-vulkan-surface",
    "--ignore-gpu-blocklist", "--disable-gpu-watchdog",
)  # fmt: skip
"""Flags for WebGPU on a GPU with a driver for Vulkan."""
_PATIENCE = 30.0
SHIFT = 8
_KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, "")}


class _GoneError(AssertionError):
    """The page went elsewhere before it answered."""


class Page:
    """A page of a browser.

    Parameters
    ----------
    reads, writes : pipes of the browser
    """

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._held = b""
        self._number = 0
        self._session: dict[str, str] = {}
        self._complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}

    def call(self, method: str, **params: Any) -> Any:
        """Return what the browser answers to a command."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": params, **self._session}
        os.write(self._writes, json.dumps(asked).encode() + b"\0")
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            message, end, rest = self._held.partition(b"\0")
            if not end:
                if select.select([self._reads], [], [], 1.0)[0]:
                    self._held += os.read(self._reads, 1 << 20)
                continue
            self._held, told = rest, json.loads(message)
            self._note(told)
            if told.get("id") == self._number:
                if "navigated" in told.get("error", {}).get("message", ""):
                    raise _GoneError(told)
                assert "error" not in told, told
                return told["result"]
        raise TimeoutError(method)

    def _note(self, told: dict[str, Any]) -> None:
        """Keep what the page itself reports as an error (after ``Runtime.enable``)."""
        params = told.get("params", {})
        if told.get("method") == "Runtime.exceptionThrown":
            self._complaints.append(json.dumps(params["exceptionDetails"]))
        elif told.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self._complaints.append(json.dumps(params["args"]))
        elif told.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self._complaints.append(json.dumps(params["entry"]))

    def complaints(self) -> list[str]:
        """Return errors of the page's scripts so far."""
        self.value("0")
        return list(self._complaints)

    def forget_complaints(self) -> None:
        """Start anew with `complaints`."""
        self._complaints.clear()

    def open(self, url: str) -> None:
        """Go to an address."""
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """Return what an expression of JavaScript gives."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true, on this page or on the one that it goes to meanwhile."""
        until = time.monotonic() + _PATIENCE
        while not self._holds(expression):
            assert time.monotonic() < until, (
                f"{expression}: never; the page shows {self.value('document.body.innerText')}"
            )
            time.sleep(0.02)

    def _holds(self, expression: str) -> bool:
        try:
            return bool(self.value(expression))
        except _GoneError:
            return False

    def write(self, text: str) -> None:
        """Write where the focus is."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, modifiers: int = 0) -> None:
        """Press a key."""
        code, text = _KEYS[key]
        about = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", **about, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def paste(self) -> None:
        """Paste where the focus is."""
        about = {"key": "v", "code": "KeyV", "windowsVirtualKeyCode": 86, "modifiers": 2}
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", **about, commands=["paste"])
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def click(self, selector: str) -> None:
        """Press and let go of the mouse in the middle of an element."""
        box = f"document.querySelector({selector!r}).getBoundingClientRect()"
        x, y = self.value(f"[{box}.x + {box}.width / 2, {box}.y + {box}.height / 2]")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, width: int, height: int, scheme: str) -> bytes:
        """Return a PNG of the page at a size, in the ``light`` or ``dark`` scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


@contextmanager
def chromium(*flags: str) -> Iterator[Page]:
    """Run a browser with an empty page while the context lasts; raises `NoBrowserError` where there is none."""
    path = find()
    theirs, writes = os.pipe()
    reads, ours = os.pipe()
    given = [fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in (theirs, ours)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The browser reads descriptor 3 and writes 4.
        chosen = [flag for flag in _FLAGS if not flags or flag != "--disable-gpu"] + list(flags)
        command = ["bash", "-c", f'exec "$@" 3<&{given[0]} 4>&{given[1]}', "bash", path, *chosen]
        browser = subprocess.Popen(
            [*command, f"--user-data-dir={profile}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=given,
            start_new_session=True,
        )
        try:
            yield Page(reads, writes)
        finally:
            end(browser)
            for one in (theirs, writes, reads, ours, *given):
                os.close(one)
