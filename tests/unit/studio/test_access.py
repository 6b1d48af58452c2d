from collections.abc import Iterator

import pytest

from tulle.studio.access import Access
from tulle.studio.serving import Studio
from unit.studio.running_studio import get, running, send

ADDRESSES = (
    *("/", "/static/studio.js", "/static/studio.css", "/static/index.html", "/api/panels"),
    *("/api/answers/labels", "/api/ledger", "/api/runs", "/runs/monday/report"),
    *("/files/auctions.jsonl", "/nowhere"),
)


@pytest.fixture(scope="module")
def studio() -> Iterator[Studio]:
    with running() as opened:
        yield opened


@pytest.mark.parametrize("address", ADDRESSES)
def test_nothing_is_shown_without_the_token(studio: Studio, address: str) -> None:
    status, headers, body = send(studio, address)
    assert status == 401
    assert b"token is missing" in body
    assert "set-cookie" not in headers
    assert studio.access.token.encode() not in body


@pytest.mark.parametrize("token", ["", "wrong", "é", "x" * 43])
def test_a_wrong_token_is_refused(studio: Studio, token: str) -> None:
    cookie = {"Cookie": f"{studio.access.cookie_name}={token.encode().hex()}"}
    assert send(studio, f"/?token={token.encode().hex()}")[0] == 401
    assert send(studio, "/", headers=cookie)[0] == 401


def test_the_token_does_not_serve_as_the_cookie_nor_beside_the_start_page(studio: Studio) -> None:
    access = studio.access
    cookie = {"Cookie": f"{access.cookie_name}={access.token}"}
    assert send(studio, "/", headers=cookie)[0] == 401
    assert send(studio, f"/api/ledger?token={access.token}")[0] == 401


def test_the_token_is_exchanged_for_a_cookie_and_leaves_the_address(studio: Studio) -> None:
    status, headers, _ = send(studio, f"/?token={studio.access.token}")
    assert status == 303
    assert headers["location"] == "/"
    words = {word.strip().lower() for word in headers["set-cookie"].split(";")}
    assert {"httponly", "samesite=strict", "path=/"} <= words
    name, value = headers["set-cookie"].split(";")[0].split("=", 1)
    assert send(studio, "/", headers={"Cookie": f"{name}={value}"})[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}", ""]
)
def test_a_request_to_another_name_is_refused_even_with_the_cookie(
    studio: Studio, host: str
) -> None:
    access = studio.access
    headers = {
        "Host": host.format(port=access.port),
        "Cookie": f"{access.cookie_name}={access.session}",
    }
    status, found, _ = send(studio, f"/?token={access.token}", headers=headers)
    assert status == 421
    assert "set-cookie" not in found


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_both_names_of_this_computer_are_served(studio: Studio, host: str) -> None:
    access = studio.access
    headers = {
        "Host": f"{host}:{access.port}",
        "Cookie": f"{access.cookie_name}={access.session}",
    }
    assert send(studio, "/", headers=headers)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE"])
def test_nothing_but_reading_is_possible(studio: Studio, method: str) -> None:
    access = studio.access
    cookie = {"Cookie": f"{access.cookie_name}={access.session}"}
    status, headers, _ = send(studio, "/api/ledger", method=method, headers=cookie)
    assert status == 405
    assert headers["allow"] == "GET"


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_answer_is_sealed(studio: Studio, address: str) -> None:
    for _, headers, _ in (get(studio, address), send(studio, address)):
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert not any(name.startswith("access-control") for name in headers)


def test_secrets_are_new_each_time_and_do_not_show() -> None:
    first, second = Access(port=1), Access(port=1)
    assert len({first.token, first.session, second.token, second.session}) == 4
    assert len(first.token) >= 43
    assert first.token not in repr(first)
