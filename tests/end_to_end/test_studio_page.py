"""The studio in a real browser: sliders, answers, errors, ledger and runs, wide and narrow."""

import json
from collections.abc import Iterator

import pytest

from end_to_end.driven_browser import BROWSER, Page, browsing
from tulle.report.html.page_text import render_html
from tulle.studio.labels_panel import LABELS, answer_labels
from tulle.studio.panel import defaults
from tulle.studio.select_panel import SELECT, answer_selection
from tulle.studio.serving import Studio, StudioConfig
from tulle.studio.train_panel import TRAIN, answer_training
from unit.report.html.sample_releases import pages, small_card
from unit.studio.running_studio import running
from unit.studio.test_stored import make_ledger, make_run
from waiting import wait_until

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt-get install chromium"),
]
NUM_PANELS = 4


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    folder = tmp_path_factory.mktemp("shown")
    make_ledger(folder / "ledger.db")
    page = render_html(pages(tmp_path_factory.mktemp("releases"))["run"])
    make_run(folder / "runs" / "monday's run", report=page)
    make_run(folder / "runs" / "tuesday")
    with running(StudioConfig(ledger=folder / "ledger.db", runs=folder / "runs")) as opened:
        yield opened


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browsing(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def page(browser: Page, studio: Studio) -> Page:
    """The page with all answers to its defaults."""
    browser.be_wide(1280)
    browser.prefer("light")
    browser.open(studio.address)
    settle(browser)
    browser.complaints.clear()
    return browser


def settle(page: Page) -> None:
    answered = "document.querySelectorAll('.answer[aria-busy=\"false\"]').length"
    shown = "document.querySelectorAll('#ledger table, #runs article').length"
    page.wait_for(f"{answered} === {NUM_PANELS} && {shown} === 3")


def fact(page: Page, panel: str, name: str) -> str:
    return str(page.find(f"document.querySelector('#{panel} [data-fact={name}] dd').textContent"))


def typing(field: str, text: str) -> str:
    return (
        f"(() => {{ const box = document.getElementById('{field}'); box.value = {json.dumps(text)};"
        " box.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def type_into(page: Page, field: str, text: str) -> None:
    page.find(typing(field, text))


def wait_for_fact(page: Page, panel: str, name: str, text: str) -> None:
    found = f"document.querySelector('#{panel} [data-fact={name}] dd').textContent"
    page.wait_for(f"{found} === {json.dumps(text)}")


def percent(value: float | None) -> str:
    assert value is not None
    return f"{100 * value:.3g}%"


def test_it_loads_without_a_complaint_and_hides_its_token(browser: Page, studio: Studio) -> None:
    browser.complaints.clear()
    browser.be_wide(1280)
    browser.open(studio.address)
    settle(browser)
    assert browser.find("location.href") == f"http://127.0.0.1:{studio.access.port}/"
    assert browser.find("document.cookie") == ""
    assert browser.complaints == []
    outside = browser.find(
        "performance.getEntriesByType('resource').filter(e => new URL(e.name).origin !== "
        "location.origin).length"
    )
    assert outside == 0


def test_answers_to_the_defaults_are_those_of_the_library(page: Page) -> None:
    training = answer_training(defaults(TRAIN.fields))
    assert fact(page, "train", "steps") == str(training.steps)
    shown = float(fact(page, "train", "noise_multiplier"))
    assert training.noise_multiplier <= shown <= training.noise_multiplier * (1 + 2e-6)
    selection = answer_selection(defaults(SELECT.fields))
    assert fact(page, "select", "best") == percent(selection.best)
    assert page.find("document.querySelectorAll('#select figure svg').length") == 3
    page.wait_for("!!document.querySelector('#train figure svg')")


def test_a_slider_moved_by_keys_changes_the_answer_to_what_the_library_says(page: Page) -> None:
    before = fact(page, "select", "by_gamma")
    page.find("document.getElementById('select-gamma-slider').focus()")
    page.press("ArrowRight", times=3)
    assert page.find("document.getElementById('select-gamma').value") == "0.65"
    expected = percent(answer_selection(defaults(SELECT.fields) | {"gamma": 0.65}).by_gamma)
    assert expected != before
    wait_for_fact(page, "select", "by_gamma", expected)
    assert page.complaints == []


def test_a_slider_by_ratios_reaches_the_answer_too(page: Page) -> None:
    page.find("document.getElementById('labels-epsilon-slider').focus()")
    page.press("ArrowRight", times=10)
    epsilon = float(page.find("document.getElementById('labels-epsilon').value"))
    assert epsilon > 2
    answer = answer_labels(defaults(LABELS.fields) | {"epsilon": epsilon})
    wait_for_fact(page, "labels", "flip_prob", percent(answer.flip_prob))
    command = page.find("[...document.querySelectorAll('#labels pre')].at(-1).textContent")
    assert command == answer.commands[-1]


def test_of_many_moves_the_newest_answer_stays(page: Page) -> None:
    # In one go within the page, where no answer can come in between.
    moves = "".join(f"{typing('labels-epsilon', str(epsilon))};" for epsilon in (1, 5, 2, 7))
    state = "document.querySelector('#labels .state').textContent"
    assert page.find(f"(() => {{ {moves} return {state}; }})()") == "computing …"
    answer = answer_labels(defaults(LABELS.fields) | {"epsilon": 7.0})
    wait_for_fact(page, "labels", "flip_prob", percent(answer.flip_prob))
    page.wait_for(f"{state} === ''")


def test_a_bad_value_is_explained_beside_its_slider_and_the_page_goes_on(page: Page) -> None:
    page.find(f"{typing('train-batch_size', '999999')}; {typing('train-num_examples', '5000')}")
    beside = "document.querySelector('#train [data-field=batch_size] .error').textContent"
    message = page.wait_for(beside)
    assert message.startswith("batch_size=999999 must be <= num_examples=5000")
    box = "document.getElementById('train-batch_size')"
    assert page.find(f"{box}.getAttribute('aria-invalid')") == "true"
    assert page.find(f"{box}.getAttribute('aria-describedby')") == "train-batch_size-error"
    assert page.find("document.querySelectorAll('#train .field .error:not(:empty)').length") == 1
    type_into(page, "train-batch_size", "500")
    expected = answer_training(
        defaults(TRAIN.fields) | {"num_examples": 5_000, "batch_size": 500}
    ).steps
    wait_for_fact(page, "train", "steps", str(expected))
    assert page.find(beside) == ""


def test_fields_of_another_choice_are_hidden(page: Page) -> None:
    hidden = "document.querySelector('#train [data-field=label_share]').hidden"
    assert page.find(hidden) is True
    type_into(page, "train-method", "hybrid")
    assert page.find(hidden) is False
    page.wait_for("!!document.querySelector('#train [data-fact=label_epsilon]')")


def test_mosaic_is_shown_without_steps_and_batches(page: Page) -> None:
    type_into(page, "train-method", "mosaic")
    page.wait_for("!document.querySelector('#train [data-fact=steps]')")
    boxes = "[...document.querySelectorAll('#train [data-field]')].filter(b => !b.hidden)"
    assert page.find(f"{boxes}.map(b => b.dataset.field)") == ["method", "epsilon", "delta"]
    answer = answer_training(defaults(TRAIN.fields) | {"method": "mosaic"})
    command = page.find("[...document.querySelectorAll('#train pre')].at(-1).textContent")
    assert command == answer.commands[-1]


def test_the_best_shares_can_be_taken_over(page: Page) -> None:
    best = fact(page, "measure", "best_error")
    assert fact(page, "measure", "error") != best
    page.find("document.querySelector('#measure .found > button').click()")
    wait_for_fact(page, "measure", "error", best)


def test_ledger_and_runs_are_shown(page: Page) -> None:
    cells = page.find("[...document.querySelectorAll('#ledger td')].map(c => c.textContent)")
    assert cells[:2] == ["ads", "measure"]
    assert cells[8:10] == ["all", "every purpose"]
    assert cells[12:14] == ["0.5", "3.5"]
    runs = page.find("[...document.querySelectorAll('#runs article')].map(r => r.innerText)")
    assert all(small_card().verdict in run for run in runs)
    assert "report of monday's run" in runs[0]
    assert "tulle report" in runs[1]


def test_a_report_opens_and_shows_its_figures(page: Page) -> None:
    page.find("document.querySelector('#runs a').click()")
    page.wait_for("location.pathname.endsWith('/report')")
    assert page.find("location.pathname") == "/runs/monday's%20run/report"
    page.wait_for("document.querySelectorAll('figure svg').length > 0")
    assert page.complaints == []


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_scrolls_sideways(page: Page, width: int) -> None:
    page.be_wide(width)
    page.wait_for(f"innerWidth === {width} && !!document.querySelector('#train figure svg')")
    assert page.find("document.documentElement.scrollWidth") <= width
    outside = page.find(
        "[...document.querySelectorAll('input, select, button, dd, figure')].filter(e => "
        f"e.getBoundingClientRect().right > {width}).map(e => e.outerHTML)"
    )
    assert outside == []
    small = page.find(
        "Math.min(...[...document.querySelectorAll('svg text')].map(t => "
        "t.getBoundingClientRect().height))"
    )
    assert small >= 10


def test_every_control_has_a_name_and_can_be_reached_by_keys(page: Page) -> None:
    nameless = page.find(
        "[...document.querySelectorAll('input, select, button')].filter(e => !e.labels?.length && "
        "!e.getAttribute('aria-label') && !e.textContent).length"
    )
    assert nameless == 0
    assert page.find("document.querySelectorAll('[aria-live=polite]').length") >= NUM_PANELS
    page.find("document.getElementById('train-epsilon-slider').focus()")
    page.press("Tab")
    assert page.find("document.activeElement.id") == "train-epsilon"


def test_the_page_is_dark_where_the_system_is(page: Page) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.find(paper) == "rgb(255, 255, 255)"
    page.prefer("dark")
    assert page.find(paper) == "rgb(15, 20, 25)"


def test_the_checks_can_fail(page: Page) -> None:
    page.find("document.body.append(Object.assign(document.createElement('script'), {text: '1'}))")
    page.find(
        "(() => { const wide = document.createElement('div'); wide.style.width = '2000px'; "
        "wide.textContent = 'wide'; document.body.append(wide); })()"
    )
    # Complaints come with answers to what is asked.
    wait_until(
        lambda: (
            page.find("document.documentElement.scrollWidth") >= 2000
            and any("Content Security Policy" in complaint for complaint in page.complaints)
        )
    )
