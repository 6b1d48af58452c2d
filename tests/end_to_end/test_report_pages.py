"""Pages in a real browser: they load without a complaint and are legible, wide and narrow.

The browser cannot be narrower than some 500 pixels, so a page is measured inside a frame of the
wanted width.
"""

import html
import json
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tulle.report.html.page import joined_page
from tulle.report.html.page_text import render_html
from tulle.report.labels_report import labels_page
from unit.report.html.sample_releases import KINDS, labels_record, pages, small_card
from unit.report.test_label_channels import described
from waiting import HANG_S

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt-get install chromium"),
]
WIDTHS = (390, 1280)
LEAST_LETTER_PIXELS = 12.0
"""Height of a line of text in a chart; letters of 10 pixels have such a line."""
LOST_PIXELS = 1.0
LEAST_CONTRAST = 4.5
"""Of letters against their panel: what WCAG 2 asks for text of this size."""

_MEASURE = """
<script>
function light(color) {
  const parts = color.match(/[0-9.]+/g).slice(0, 3).map(part => part / 255);
  const [r, g, b] = parts.map(p => p <= 0.04045 ? p / 12.92 : ((p + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(frame, words) {
  const style = element => frame.contentWindow.getComputedStyle(element);
  const panel = light(style(words.closest("figure")).backgroundColor);
  const letters = light(style(words).fill);
  return (Math.max(panel, letters) + 0.05) / (Math.min(panel, letters) + 0.05);
}
addEventListener("load", () => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, root = page.documentElement;
    const words = [...page.querySelectorAll("svg text")].filter(t => t.textContent.trim());
    const outside = words.filter(t => {
      const own = t.getBoundingClientRect(), all = t.ownerSVGElement.getBoundingClientRect();
      return own.left < all.left - LOST || own.right > all.right + LOST;
    });
    const view = frame.contentWindow.getComputedStyle(page.body);
    found[frame.dataset.width] = {
      client: root.clientWidth, scroll: root.scrollWidth,
      figures: [...page.querySelectorAll("figure svg")].filter(s => s.clientHeight > 40).length,
      letters: Math.min(...words.map(t => t.getBoundingClientRect().height)),
      outside: outside.map(t => t.textContent), background: view.backgroundColor,
      contrasts: words.filter(t => t.hasAttribute("stroke")).map(t => contrast(frame, t)),
      panel: frame.contentWindow.getComputedStyle(page.querySelector("figure")).backgroundColor,
    };
  }
  document.getElementById("found").textContent = JSON.stringify(found);
});
</script>
"""


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    made = pages(tmp_path_factory.mktemp("releases"))
    return {kind: render_html(page) for kind, page in made.items()}


def browse(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    page = folder / "page.html"
    page.write_text(text, encoding="utf-8")
    return subprocess.run(
        [
            str(BROWSER),
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
            *("--disable-component-update", "--disable-sync", "--no-first-run"),
            *("--hide-scrollbars", "--enable-logging=stderr", "--disable-dev-shm-usage"),
            f"--user-data-dir={folder / 'profile'}",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )


def measured(folder: Path, text: str, *options: str) -> dict[str, Any]:
    """What the browser finds in the page at each width."""
    frames = "".join(
        f'<iframe data-width="{width}" width="{width}" height="800" '
        f'style="border:0" srcdoc="{html.escape(text, quote=True)}"></iframe>'
        for width in WIDTHS
    )
    script = _MEASURE.replace("LOST", str(LOST_PIXELS))
    holder = f'<!DOCTYPE html><meta charset="utf-8">{script}{frames}<pre id="found"></pre>'
    shown = browse(folder, holder, "--window-size=1800,900", "--dump-dom", *options).stdout
    found = re.search(r'<pre id="found">(.*?)</pre>', shown, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(html.unescape(found.group(1)))
    return data


def complaints(run: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in run.stderr.splitlines() if ":CONSOLE" in line]


def picture_size(path: Path) -> tuple[int, int]:
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    return width, height


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_loads_without_a_complaint_and_shows_something(
    tmp_path: Path, texts: dict[str, str], kind: str
) -> None:
    picture = tmp_path / "page.png"
    run = browse(tmp_path, texts[kind], f"--screenshot={picture}", "--window-size=1280,1600")
    assert complaints(run) == []
    assert picture_size(picture) == (1280, 1600)
    assert picture.stat().st_size > 20_000  # an empty page has some 7,000


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_fits_a_phone_and_a_desk(tmp_path: Path, texts: dict[str, str], kind: str) -> None:
    found = measured(tmp_path, texts[kind])
    for width in WIDTHS:
        page = found[str(width)]
        assert page["client"] == width
        assert page["scroll"] <= width
        assert page["figures"] == texts[kind].count("<svg ")
        assert page["letters"] >= LEAST_LETTER_PIXELS
        assert page["outside"] == []


def test_the_picture_of_every_mechanism_fits_a_phone_and_a_desk(tmp_path: Path) -> None:
    made = [
        labels_page(labels_record(**mechanism), small_card()) for mechanism in described().values()
    ]
    text = render_html(joined_page("labels", made))
    for width, page in measured(tmp_path, text).items():
        assert page["figures"] == text.count("<svg ") >= 2 * len(made)
        assert page["scroll"] <= int(width)
        assert page["letters"] >= LEAST_LETTER_PIXELS
        assert page["outside"] == []


def test_pages_and_their_panels_are_dark_where_the_reader_is(
    tmp_path: Path, texts: dict[str, str]
) -> None:
    light = measured(tmp_path, texts["run"], "--blink-settings=preferredColorScheme=1")["390"]
    dark = measured(tmp_path, texts["run"], "--blink-settings=preferredColorScheme=0")["390"]
    assert light["background"] == "rgb(255, 255, 255)"
    assert dark["background"] == "rgb(15, 20, 25)"
    assert light["panel"] == "rgb(255, 255, 255)"
    assert dark["panel"] == "rgb(22, 28, 35)"
    for page in (light, dark):
        assert min(page["contrasts"]) >= LEAST_CONTRAST


def test_the_checks_can_fail(tmp_path: Path, texts: dict[str, str]) -> None:
    broken = texts["labels"].replace(
        "</main>",
        '<div style="width:2000px">wide</div><figure><svg viewBox="0 0 4000 2000">'
        '<text x="3990" y="1000" font-size="12">lost words</text></svg></figure></main>',
    )
    for page in measured(tmp_path, broken).values():
        assert page["scroll"] >= 2000
        assert page["letters"] < LEAST_LETTER_PIXELS
        assert page["outside"] == ["lost words"]
    # A script that a page cannot hold is refused by the page itself, and the browser says so.
    with_script = texts["labels"].replace("</main>", "<script>throw 1</script></main>")
    assert complaints(browse(tmp_path, with_script, "--dump-dom"))
