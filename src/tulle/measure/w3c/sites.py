"""Sites: the registrable domain of a host, which is what impressions and budgets are kept by.

What counts as a public suffix ("com", "co.uk") is data that changes. Without a list the last
label is the suffix, which is the list's own rule for names it does not know.
"""

import dataclasses
import re
from pathlib import Path

from tulle.errors import DataError
from tulle.measure.w3c.rejections import syntax_error

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


@dataclasses.dataclass(frozen=True)
class PublicSuffixes:
    """Rules in the notation of the Public Suffix List: "co.uk", "*.ck", "!www.ck"."""

    rules: frozenset[str] = frozenset()

    @classmethod
    def from_file(cls, path: Path) -> "PublicSuffixes":
        """Reads a copy of the Public Suffix List."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"{path} cannot be read as a list of public suffixes ({type(error).__name__}); "
                "give a copy of public_suffix_list.dat."
            ) from None
        rules = (line.split()[0] for line in lines if line.strip() and not line.startswith("//"))
        return cls(frozenset(_ascii_rule(rule) for rule in rules))

    def registrable_domain(self, host: str) -> str | None:
        """The public suffix of a host and the label before it; None for a bare suffix."""
        labels = host.split(".")
        suffix_size = 1
        for start in range(len(labels)):
            name = ".".join(labels[start:])
            size = len(labels) - start
            if f"!{name}" in self.rules:
                suffix_size = size - 1
                break
            parent = ".".join(labels[start + 1 :])
            if name in self.rules or (parent and f"*.{parent}" in self.rules):
                suffix_size = size
                break
        if len(labels) <= suffix_size:
            return None
        return ".".join(labels[-suffix_size - 1 :])


def parse_site(text: str, suffixes: PublicSuffixes) -> str:
    """The site that a host belongs to; refuses what is no domain name, and localhost."""
    host = _ascii_host(text)
    site = None if host is None else suffixes.registrable_domain(host)
    is_local = host is not None and host.split(".")[-1] == "localhost"
    if site is None or is_local:
        raise syntax_error(
            f"site {text!r} is not usable: name a host below a public suffix, without scheme or "
            'port and not localhost, e.g. "shop.example".'
        )
    return site


def _ascii_host(text: str) -> str | None:
    try:
        host = text.encode("idna").decode("ascii").lower().removesuffix(".")
    except UnicodeError:
        return None
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):
        return None
    # Whatever ends in a number is read as an address.
    return None if _NUMBER.fullmatch(host.split(".")[-1]) else host


def _ascii_rule(rule: str) -> str:
    mark = "!" if rule.startswith("!") else "*." if rule.startswith("*.") else ""
    try:
        return mark + rule.removeprefix(mark).encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise DataError(f"rule {rule!r} is no public suffix; take it out of the list.") from None
