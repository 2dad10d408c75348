"""Pages in a browser: every chart is drawn, nothing is fetched, and it fits a phone, paper and the dark."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_corpus import report_page
from tests.handmade import bitcode, corpus, row, table
from tests.view.reportinputs import (
    HOSTILE,
    difference,
    evaluation,
    function_columns,
    plain_trace,
    policy,
    sizes,
    trace,
    trace_row,
)

pytestmark = pytest.mark.chromium

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
PHONE = 390


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    chromedriver = shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("chromium and chromedriver are not installed (make test installs them)")
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with every kind of section in it, and names that would do harm."""
    folder = tmp_path_factory.mktemp("page")
    count = 3000
    contents = {f"{place}/{number}.o": bitcode(bytes(number * 97)) for place in "abc" for number in range(30)}
    made = corpus(folder / "corpus", contents)
    named = [(HOSTILE if name == "a/29.o" else name, data) for name, data in contents.items()]
    table(made, [row(name, data, opt_level="z", split="train") for name, data in named])
    (made / "corpus_description.json").write_text(
        json.dumps({"has_thinlto": False, "modules": [name for name, _ in named]})
    )
    modules = {f"some/folder/with/a/very/long/name/{number}.o": 900 + number * 7 for number in range(40)}
    rows = [trace_row(HOSTILE, 700, observations=count)]
    rows.append(trace_row("bad" + HOSTILE, None, status="failed", reason="signal", stderr_tail=HOSTILE))
    hostile = {
        HOSTILE: np.arange(count) ** 3,
        "skewed": 1.5 ** (np.arange(count) % 60),
        "inlining_decision": np.arange(count) % 2,
    }
    inputs = [
        made,
        plain_trace(folder / "one", modules, count=count),
        plain_trace(folder / "two", {name: size + 40 for name, size in modules.items()}, seed=1),
        trace(folder / "hostile", hostile, rows, policy=HOSTILE),
        sizes(folder / "functions", function_columns(300)),
        sizes(folder / "other", function_columns(300, seed=1)),
        policy(
            folder / "policy",
            [HOSTILE, "plain"],
            [(0.0, 0.0), (-0.1, 0.02), (-0.2, 0.01)],
            2,
            importance={HOSTILE: 0.75, "cost_estimate": 0.25},
            differences={
                "decisions": 30,
                "llvm": 0.5,
                "policy": 0.25,
                "differ": 0.3,
                "by": {"cost_estimate": [difference(-5, 3, 20, 0.9, 0.4, 0.5), difference(4, 90, 10, 0.1, 0.2, 0.1)]},
            },
            worst=[[HOSTILE, 200, 100]],
        ),
        evaluation(folder / "sizes", {name: {"a": (90, 100), HOSTILE: (120, 100)} for name in (HOSTILE, "other")}),
    ]
    output = folder / "report.html"
    report_page(inputs, output, title=f"A page {HOSTILE}")
    return output


def show(browser: Any, page: Path, *, width: int = 1280, scheme: str = "light", media: str = "screen") -> None:
    """Open a page in a window of this width, and wait until it is drawn."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    browser.get(page.as_uri())
    deadline = time.monotonic() + 60
    while browser.execute_script("return document.documentElement.dataset.charts") != "drawn":
        assert time.monotonic() < deadline, "the charts were not drawn"
        time.sleep(0.05)


def test_every_chart_is_drawn_and_nothing_is_complained_about(browser: Any, page: Path) -> None:
    browser.get_log("browser")
    show(browser, page)
    charts = browser.execute_script(
        """return [...document.querySelectorAll(".chart")].map((box) => {
            const drawing = box.querySelector("svg");
            const marks = box.querySelectorAll("svg .mark-rect path, svg .mark-symbol path");
            return [box.id, drawing && drawing.getBoundingClientRect().width, marks.length];
        })"""
    )
    specs = json.loads(browser.execute_script("return document.getElementById('charts').textContent"))
    assert sorted(name for name, _, _ in charts) == sorted(specs["charts"])
    assert len(charts) >= 15
    for name, width, marks in charts:
        assert width, name
        assert width > 200, name
        assert marks > 0, name
    cards = browser.execute_script(
        "return [...document.querySelectorAll('.card')].map((one) => one.querySelectorAll('svg rect').length)"
    )
    assert len(cards) > 10
    assert min(cards) > 0
    assert browser.execute_script("return document.querySelectorAll('.treemap .leaf').length") > 50
    assert browser.get_log("browser") == []


def test_nothing_leaves_the_page_and_no_name_runs(browser: Any, page: Path) -> None:
    browser.get_log("performance")
    show(browser, page)
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = {one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"}
    assert urls <= {page.as_uri()}
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert browser.execute_script("return document.querySelectorAll('main script, main img').length") == 0
    # The page's own policy is what would stop it.
    blocked = browser.execute_async_script(
        """const done = arguments[0];
        document.addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));
        const image = new Image();
        image.src = "http://127.0.0.1:9/x.png";
        document.body.append(image);
        setTimeout(() => done("nothing"), 5000);"""
    )
    assert blocked == "img-src"


def test_no_name_is_an_expression(browser: Any, tmp_path: Path) -> None:
    name = 'x\\" + warn(1) + "' + HOSTILE.replace("/", "")  # Vega-Lite escapes the quote, not what is before it
    inputs = []
    for side, size in (("a", 900), ("b", 800)):
        columns = {"feature": np.arange(60) ** 2, name: np.arange(60) % 3}
        rows = [trace_row(f"m{number}{name}", size + number, observations=15) for number in range(4)]
        inputs.append(trace(tmp_path / (side + name), columns, rows, decision=name))
    report_page(inputs, tmp_path / "report.html")
    browser.get_log("browser")
    show(browser, tmp_path / "report.html")
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('.chart')].map((box) => [box.id, box.querySelectorAll('svg').length])"
    )
    assert len(drawn) >= 12
    assert [chart for chart, count in drawn if count != 1] == []
    assert browser.get_log("browser") == []
    titles = browser.execute_script("return document.querySelector('#input-1-actions svg').textContent")
    assert 'x\\" + warn(1) + "' in titles


@pytest.mark.parametrize("width", [320, PHONE, 768, 1280, 1600])
def test_no_width_scrolls_sideways(browser: Any, page: Path, width: int) -> None:
    show(browser, page, width=width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    widest = browser.execute_script(
        "const edges = [...document.querySelectorAll('.chart svg')].map((one) => one.getBoundingClientRect().right);"
        "return Math.max(...edges);"
    )
    assert widest <= width


def luminance(colour: str) -> float:
    """Give a colour's relative luminance, as WCAG defines it."""
    parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_text_is_legible_in_light_and_dark(browser: Any, page: Path, scheme: str, *, dark: bool) -> None:
    show(browser, page, scheme=scheme)
    found = browser.execute_script(
        """const behind = (one) => {
            for (; one; one = one.parentElement) {
                const colour = getComputedStyle(one).backgroundColor;
                if (colour !== "rgba(0, 0, 0, 0)" && colour.startsWith("rgb(")) return colour;
            }
            return "rgb(255, 255, 255)";
        };
        const chosen = ["h1", ".lead", ".headlines dt", ".callout p", ".mark", "figcaption span", "td", ".meaning",
                        ".flag", ".ends", "a", ".tile > span", "code"];
        const text = chosen.flatMap((name) => [...document.querySelectorAll(name)].slice(0, 5)).map(
            (one) => [one.className || one.tagName, getComputedStyle(one).color, behind(one)]);
        const labels = [...document.querySelectorAll(".chart svg text")].slice(0, 20).map(
            (one) => ["label", getComputedStyle(one).fill, behind(one)]);
        return [...text, ...labels];"""
    )
    assert len(found) > 50
    for name, colour, paper in found:
        bright, dim = sorted((luminance(colour), luminance(paper)), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, (name, colour, paper)
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (luminance(paper) < 0.1) == dark


def test_paper_has_all_of_it(browser: Any, page: Path) -> None:
    show(browser, page, scheme="dark")
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF-")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    paper, ink = browser.execute_script(
        "const body = getComputedStyle(document.body); return [body.backgroundColor, body.color];"
    )
    assert luminance(paper) > 0.9
    assert luminance(ink) < 0.1


def test_without_javascript_the_numbers_are_there(browser: Any, page: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(page.as_uri())
        text = browser.find_element("tag name", "main").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "Without JavaScript" in text
    assert "inlining decisions" in text
    figures = browser.find_elements("css selector", "figure")
    assert len(figures) > 15
    assert all(figure.find_elements("css selector", "table td") for figure in figures)


def test_all_can_be_reached_by_key_and_is_named(browser: Any, page: Path) -> None:
    show(browser, page)
    missing = browser.execute_script(
        """const links = [...document.querySelectorAll("nav a")].filter((one) => !document.querySelector(one.hash));
        const unnamed = [...document.querySelectorAll("svg, .chart, .treemap, [role=region]")].filter((one) =>
            !one.getAttribute("aria-label") && !one.closest("[aria-label]"));
        const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
        return [links.length, unnamed.length, ids.length - new Set(ids).size];"""
    )
    assert missing == [0, 0, 0]
    from selenium.webdriver.common.keys import Keys

    browser.find_element("tag name", "body").send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Skip to the report"
