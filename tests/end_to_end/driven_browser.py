"""A headless Chromium that is told what to do through two pipes (Chrome DevTools Protocol)."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from waiting import wait_until

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
_END = b"\0"


class PageLeftError(Exception):
    """A question reached a page that was just left for another one."""


class Page:
    """One tab: what it shows, what it complained of, keys pressed in it."""

    def __init__(self, commands: int, events: int) -> None:
        self._commands, self._events = commands, events
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []

    def attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + _END)
        while True:
            reply = self._receive()
            if reply.get("id") == self._number:
                if "navigated" in reply.get("error", {}).get("message", ""):
                    raise PageLeftError(method)
                assert "error" not in reply, (method, reply["error"])
                result: dict[str, Any] = reply["result"]
                return result
            self._note(reply)

    def open(self, address: str) -> None:
        """Leaves the page first: a busy browser goes on showing it for a while."""
        self.call("Page.navigate", url="about:blank")
        self.wait_for("location.href === 'about:blank'")
        self.call("Page.navigate", url=address)
        self.wait_for("location.href !== 'about:blank'")

    def find(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, (expression, found["exceptionDetails"])
        return found["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """The value as soon as it is true."""
        found = [None]

        def is_true() -> bool:
            try:
                found[0] = self.find(f"(() => {{ try {{ return {expression} }} catch {{}} }})()")
            except PageLeftError:
                return False  # asked while one page gave way to the next
            return bool(found[0])

        wait_until(is_true, expression)
        return found[0]

    def press(self, key: str, times: int = 1) -> None:
        codes = {"ArrowRight": 39, "Tab": 9}
        for _ in range(times):
            for kind in ("rawKeyDown", "keyUp"):
                self.call(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    key=key,
                    code=key,
                    windowsVirtualKeyCode=codes[key],
                )

    def be_wide(self, width: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def prefer(self, scheme: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def _receive(self) -> dict[str, Any]:
        while _END not in self._buffer:
            part = os.read(self._events, 1 << 16)
            assert part, "the browser is gone"
            self._buffer += part
        text, self._buffer = self._buffer.split(_END, 1)
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        method, about = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(about["exceptionDetails"]))
        if method == "Runtime.consoleAPICalled" and about["type"] in {"error", "warning"}:
            self.complaints.append(json.dumps(about["args"]))
        if method == "Log.entryAdded" and about["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(f"{about['entry']['text']} {about['entry'].get('url')}")


@contextlib.contextmanager
def browsing(folder: Path) -> Iterator[Page]:
    """A tab of a browser that keeps everything in a folder."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    # The browser reads from descriptor 3 and writes to 4.
    redirected = f'exec "$0" "$@" 3<&{to_read} 4>&{from_write}'
    process = subprocess.Popen(
        [
            *("bash", "-c", redirected, str(BROWSER)),
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
            *("--disable-component-update", "--disable-sync", "--no-first-run"),
            *("--disable-dev-shm-usage", "--remote-debugging-pipe"),
            f"--user-data-dir={folder / 'profile'}",
        ],
        pass_fds=(to_read, from_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_write)
    try:
        page = Page(to_write, from_read)
        page.attach()
        yield page
    finally:
        process.kill()
        process.wait()
        os.close(to_write)
        os.close(from_read)
