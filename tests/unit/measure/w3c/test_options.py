"""Sites are registrable domains; what is no domain is refused."""

from pathlib import Path

import pytest

from tulle.errors import DataError
from tulle.measure.w3c.options import PublicSuffixes, RejectedCallError, parse_site

LIST = """// a comment

com
co.uk
*.ck
!www.ck
github.io
公司.cn
"""


@pytest.fixture
def suffixes(tmp_path: Path) -> PublicSuffixes:
    (tmp_path / "list.dat").write_text(LIST, encoding="utf-8")
    return PublicSuffixes.from_file(tmp_path / "list.dat")


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("shop.example", "shop.example"),
        ("a.b.shop.example", "shop.example"),
        ("Shop.EXAMPLE.", "shop.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("www.shop.co.uk", "co.uk"),
    ],
)
def test_without_a_list_the_last_label_is_the_suffix(host: str, site: str) -> None:
    assert parse_site(host, PublicSuffixes()) == site


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("www.shop.co.uk", "shop.co.uk"),
        ("a.b.c.ck", "b.c.ck"),
        ("x.www.ck", "www.ck"),
        ("me.github.io", "me.github.io"),
        ("deep.me.github.io", "me.github.io"),
        ("shop.com", "shop.com"),
        ("a.shop.unlisted", "shop.unlisted"),
        ("a.b.公司.cn", "b.xn--55qx5d.cn"),
    ],
)
def test_with_a_list_its_rules_hold(suffixes: PublicSuffixes, host: str, site: str) -> None:
    assert parse_site(host, suffixes) == site


@pytest.mark.parametrize("host", ["co.uk", "github.io", "c.ck", "com"])
def test_a_public_suffix_is_no_site(suffixes: PublicSuffixes, host: str) -> None:
    with pytest.raises(RejectedCallError):
        parse_site(host, suffixes)


@pytest.mark.parametrize(
    "host",
    [
        "",
        ".",
        "a",
        ":",
        "localhost",
        "foo.localhost",
        "a.foo.localhost",
        "https://shop.example",
        "shop.example:443",
        "shop.example/path",
        "shop..example",
        "192.0.2.1",
        "shop.1",
        "shop.0x7f",
        "[2001:db8::1]",
        "a b.example",
        "-a.example",
        "a" * 64 + ".example",
    ],
)
def test_what_is_no_domain_is_a_syntax_error(host: str) -> None:
    with pytest.raises(RejectedCallError) as caught:
        parse_site(host, PublicSuffixes())
    assert (caught.value.error, caught.value.name) == ("DOMException", "SyntaxError")


def test_a_list_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"public_suffix_list\.dat"):
        PublicSuffixes.from_file(tmp_path / "missing.dat")
