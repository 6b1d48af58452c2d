"""Serving the studio on this computer until it is stopped."""

import dataclasses
import socket

import uvicorn

from tulle.errors import ConfigError
from tulle.studio.access import LOOPBACK, Access
from tulle.studio.answering import Answers
from tulle.studio.app import make_app
from tulle.studio.ledger_panel import ledger_state
from tulle.studio.settings import StudioConfig

_GRACE_S = 1


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Studio:
    """A studio that listens. Made by `open_studio`; requests wait until it is served."""

    access: Access
    listener: socket.socket
    answers: Answers
    server: uvicorn.Server

    @property
    def is_computing(self) -> bool:
        """Whether something is still being computed, also after it stopped."""
        return self.answers.is_busy

    @property
    def address(self) -> str:
        """Address of the page, with the token. A secret of whoever started it."""
        return self.access.address

    def serve(self) -> None:
        """Answers requests until `stop`, or until the process is interrupted.

        Raises:
          KeyboardInterrupt: Somebody pressed Ctrl-C; everything is closed by then.
        """
        try:
            self.server.run(sockets=[self.listener])
        finally:
            self.listener.close()

    def stop(self) -> None:
        """Ends `serve`, from any thread."""
        self.server.should_exit = True


def open_studio(config: StudioConfig) -> Studio:
    """Takes the port and checks what will be shown.

    Raises:
      ConfigError: The port is taken.
      RunStateError: The ledger cannot be read.
    """
    ledger_state(config.ledger)
    listener = _listen(config.port)
    access, answers = Access(port=listener.getsockname()[1]), Answers()
    settings = uvicorn.Config(
        make_app(config, access, answers),
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = _Server(settings, answers)
    return Studio(access=access, listener=listener, answers=answers, server=server)


class _Server(uvicorn.Server):
    """Lets go of answers under way when it stops, so that it stops at once."""

    def __init__(self, config: uvicorn.Config, answers: Answers) -> None:
        super().__init__(config)
        self._answers = answers

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._answers.stop()
        await super().shutdown(sockets)


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"port={port} cannot be used: {error.strerror}; choose another, or leave it out for a "
            "free one."
        ) from None
    return listener
