"""What is wrong with a page: tags that do not close, requests, scripts."""

from html.parser import HTMLParser

_VOID = {"meta", "br", "hr", "link", "img", "input"}
_TAGS = {
    *("html", "head", "meta", "title", "style", "body", "main", "section", "footer", "div"),
    *("h1", "h2", "p", "ul", "li", "strong", "b", "pre", "details", "summary", "figure"),
    *("figcaption", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td"),
    *("svg", "line", "polyline", "rect", "circle", "text"),
}
_ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "scope", "viewbox", "role"),
    *("aria-label", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height", "fill"),
    *("fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "points"),
    *("text-anchor", "font-size", "paint-order", "transform"),
}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.text: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._check(tag, attrs)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._check(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if "style" in self.open and ("url(" in data or "@import" in data):
            self.faults.append("the style loads something")

    def _check(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _TAGS:
            self.faults.append(f"<{tag}> has no place in a page")
        names = [name for name, _ in attrs]
        self.faults += [f"{tag} has {name}" for name in names if name not in _ATTRIBUTES]
        if len(set(names)) < len(names):
            self.faults.append(f"{tag} has an attribute twice")


def faults_of(html: str) -> list[str]:
    """Everything that is wrong; empty for a page that is whole, quiet and self-contained."""
    reader = _read(html)
    found = [f"<{tag}> is not closed" for tag in reader.open]
    if "://" in html:
        found.append("there is an address")
    return reader.faults + found


def text_of(html: str) -> str:
    """What a reader sees, in one line."""
    return " ".join("".join(_read(html).text).split())


def _read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader
