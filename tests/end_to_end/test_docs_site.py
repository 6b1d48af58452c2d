"""`make docs` builds a site without a warning, and its pages load nothing from elsewhere."""

import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("mkdocs")
ROOT = pathlib.Path(__file__).parents[2]
LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']([^\"']*)|<link\b[^>]*>")
FROM_ELSEWHERE = re.compile(r"^(?:https?:)?//")


def loaded_from_elsewhere(page: str) -> list[str]:
    found = [match[1] or match[0] for match in LOADED.finditer(page)]
    links = [re.search(r"href=[\"']([^\"']*)", text) for text in found if text.startswith("<link")]
    targets = [text for text in found if not text.startswith("<link")]
    targets += [link[1] for link in links if link is not None]
    return [target for target in targets if FROM_ELSEWHERE.match(target)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_site(site: pathlib.Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").exists(), page
    assert (site / "api" / "index.html").exists()


def test_pages_load_nothing_from_elsewhere(site: pathlib.Path) -> None:
    for page in site.rglob("*.html"):
        assert loaded_from_elsewhere(page.read_text()) == [], page


def test_a_font_from_elsewhere_would_be_found() -> None:
    page = '<link rel="x" href="https://fonts.example/a.css"><script src="//cdn.example/a.js">'
    assert loaded_from_elsewhere(page) == ["//cdn.example/a.js", "https://fonts.example/a.css"]
    assert loaded_from_elsewhere('<a href="https://example.org">x</a><img src="a.svg">') == []
