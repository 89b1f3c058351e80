"""A headless Chromium driven by the DevTools protocol with the standard library alone; no network is used."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)
PATIENCE = 60.0


def find_chromium() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page; events that came in between commands are in ``events``."""

    def __init__(self, binary: str, profile: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self._number = 0
        self._socket: socket.socket | None = None
        command = [binary, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            port = self._wait_for_port(profile / "DevToolsActivePort")
            with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=PATIENCE) as answer:
                pages = [target for target in json.load(answer) if target["type"] == "page"]
            path = pages[0]["webSocketDebuggerUrl"].split("/", 3)[3]
            self._socket = self._open(port, f"/{path}")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        self._send(json.dumps({"id": self._number, "method": method, "params": parameters}).encode())
        while True:
            message = json.loads(self._receive())
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)
        deadline = time.monotonic() + PATIENCE
        script = f"location.href.startsWith({json.dumps(address)}) && document.readyState === 'complete'"
        while not self.run(script):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{address} did not load")
            time.sleep(0.05)

    def _wait_for_port(self, path: Path) -> int:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if path.exists() and (lines := path.read_text().splitlines()):
                return int(lines[0])
            if self._process.poll() is not None:
                raise RuntimeError(f"the browser ended with {self._process.returncode}")
            time.sleep(0.05)
        raise TimeoutError("the browser did not start")

    # ---- the parts of a WebSocket (RFC 6455) that this needs ----

    def _open(self, port: int, path: str) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        lines = (
            f"GET {path} HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
        )
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += connection.recv(1)
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(head.decode(errors="replace"))
        return connection

    def _send(self, payload: bytes) -> None:
        assert self._socket is not None
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", 0x81, 0x80 | size)
        elif size < 2**16:
            head = struct.pack("!BBH", 0x81, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x81, 0x80 | 127, size)
        mask = secrets.token_bytes(4)
        self._socket.sendall(head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload)))

    def _receive(self) -> bytes:
        message = b""
        while True:
            first, second = self._read(2)
            size = second & 0x7F
            if size > 125:
                size = int.from_bytes(self._read(2 if size == 126 else 8), "big")
            payload = self._read(size)
            if first & 0x0F in (0, 1):
                message += payload
                if first & 0x80:
                    return message

    def _read(self, count: int) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise ConnectionError("the browser closed the connection")
            data += part
        return bytes(data)
