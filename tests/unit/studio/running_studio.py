"""A studio that runs on a thread, and requests to it that a browser would not make."""

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from tulle.studio.serving import Studio, StudioConfig, open_studio
from waiting import HANG_S

Reply = tuple[int, dict[str, str], bytes]


@contextlib.contextmanager
def running(config: StudioConfig | None = None) -> Iterator[Studio]:
    """Serves until the end of the block."""
    studio = open_studio(config or StudioConfig())
    thread = threading.Thread(target=studio.serve)
    thread.start()
    try:
        yield studio
    finally:
        studio.stop()
        thread.join(timeout=HANG_S)
        assert not thread.is_alive()


def send(
    studio: Studio, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None
) -> Reply:
    """One request with exactly these headers, and Host where they name none."""
    connection = http.client.HTTPConnection("127.0.0.1", studio.access.port, timeout=HANG_S)
    with contextlib.closing(connection):
        connection.request(method, path, headers=dict(headers or {}))
        reply = connection.getresponse()
        found = {name.lower(): value for name, value in reply.getheaders()}
        return reply.status, found, reply.read()


def get(studio: Studio, path: str) -> Reply:
    """One request of somebody who was let in."""
    access = studio.access
    return send(studio, path, headers={"Cookie": f"{access.cookie_name}={access.session}"})


def get_data(studio: Studio, path: str, settings: Mapping[str, Any] | None = None) -> Any:
    """What an address answers, as JSON."""
    query = f"?{urlencode(settings)}" if settings else ""
    return json.loads(get(studio, path + query)[2])
