import contextlib
import pathlib
import socket

import pytest

from tulle.errors import ConfigError, RunStateError
from tulle.studio.serving import StudioConfig, open_studio
from unit.studio.running_studio import get, running


def test_it_listens_on_this_computer_alone() -> None:
    with running() as studio:
        assert studio.listener.getsockname() == ("127.0.0.1", studio.access.port)
        assert studio.address.startswith(f"http://127.0.0.1:{studio.access.port}/?token=")
        assert get(studio, "/")[0] == 200
        with (
            contextlib.closing(socket.socket()) as other,
            pytest.raises(ConnectionRefusedError),
        ):
            other.connect(("127.0.0.2", studio.access.port))


def test_it_stops_and_gives_its_port_back() -> None:
    with running() as studio:
        port = studio.access.port
    with contextlib.closing(socket.socket()) as other, pytest.raises(ConnectionRefusedError):
        other.connect(("127.0.0.1", port))


def test_a_taken_port_is_an_error_that_names_it() -> None:
    with contextlib.closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port={port} cannot be used"):
            open_studio(StudioConfig(port=port))


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_cannot_be_is_refused(port: int) -> None:
    with pytest.raises(ConfigError, match=f"port={port} must be from 1 to 65535"):
        StudioConfig(port=port)


def test_a_folder_of_runs_that_is_none_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match="is no folder"):
        StudioConfig(runs=tmp_path / "missing")


def test_a_ledger_that_cannot_be_read_is_refused_before_anything_is_served(
    tmp_path: pathlib.Path,
) -> None:
    with pytest.raises(RunStateError, match="does not exist"):
        open_studio(StudioConfig(ledger=tmp_path / "ledger.db"))
