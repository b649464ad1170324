"""The page in Chromium: it opens quickly, search finds, a click shows the decision, and the console is empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from devtools import Browser, find_browser
from explored_programs import Activations, Hostile, Layers

import thunder
from thunder_plugin_explorer.page import page

PROGRAM = find_browser()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium or Chrome on PATH")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None
    with Browser(PROGRAM, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiled = thunder.jit(Layers(), dynamic=False, executors=[Activations()])
    for length in (3, 4):
        compiled(torch.randn(length, 8)).sum().backward()
    path = tmp_path_factory.mktemp("page") / "out.html"
    thunder.explain(compiled).to_html(path)
    return path


@pytest.fixture
def opened(browser: Browser, explored: Path) -> Iterator[Browser]:
    browser.problems.clear()
    browser.open(explored)
    yield browser
    assert browser.problems == []


def text(browser: Browser, selector: str) -> str:
    found: str = browser.run(f"document.querySelector('{selector}').textContent")
    return found


def search(browser: Browser, words: str) -> None:
    browser.press("/")
    browser.call("Input.insertText", text=words)
    browser.wait("document.querySelector('nav .hits')")


@pytest.mark.slow
def test_search_finds_and_a_click_shows_who_declined_and_why(opened: Browser) -> None:
    search(opened, "rms_norm layers.1.norm")
    opened.click(".row", "layers.1.norm")
    panel = text(opened, "#panel")
    assert "its rows of <b>16</b> are too long" in panel
    assert "explored_programs.py:" in panel
    assert "self.down(F.silu(self.up(self.norm(x))))" in panel
    assert opened.run("document.querySelectorAll('#panel b, .row b').length") == 0
    search_hits = opened.run("[...document.querySelectorAll('[role=tab]')].map(e => e.textContent)")
    assert any(label.startswith("Decisions") and label != "Decisions0" for label in search_hits)


@pytest.mark.slow
def test_equal_layers_are_folded_and_open(opened: Browser) -> None:
    rows = "document.querySelector('.rows').style.height"
    before = opened.run(rows)
    opened.click(".row .layers, .layers", "the same")
    assert int(opened.run(rows)[:-2]) > int(before[:-2])


@pytest.mark.slow
def test_every_view_opens(opened: Browser) -> None:
    names = opened.run("[...document.querySelectorAll('[role=tab]')].map(e => e.textContent)")
    assert names == [
        *["Program", "Decisions", "Stages", "Regions", "Memory", "Saved", "Time", "Guards", "Compilations", "Report"]
    ]
    for name in names:
        opened.click("[role=tab]", name)
        opened.wait(f"document.querySelector('[aria-selected=true]').textContent === '{name}'")
        assert text(opened, "#view").strip()
    opened.click("[role=tab]", "Regions")
    assert "// kernel of" in text(opened, ".generated")
    opened.click("[role=tab]", "Saved")
    opened.click(
        "td:nth-child(3) button.value"
    )  # from a saved value to the op that computes it, whose panel links to backward
    opened.wait("document.querySelector('#view').className === 'program'")
    assert "Saved for backward" in text(opened, "#panel")
    opened.click("[role=tab]", "Compilations")
    opened.click("td button", "program 0")
    assert "it is the first call" in text(opened, "header option:checked")


def test_passes_are_side_by_side(opened: Browser) -> None:
    opened.click("[role=tab]", "Stages")
    opened.click(".step", "AssignExecutors")
    assert "activations_region" in text(opened, ".side.added")
    assert text(opened, ".side.removed")
    opened.click(".row")
    assert "After" in text(opened, "#panel")


def test_the_keyboard_suffices(opened: Browser) -> None:
    opened.press("]")
    opened.wait("document.querySelector('#view').className === 'decisions'")
    opened.press("ArrowDown")
    opened.press("j")
    opened.wait("document.querySelectorAll('.row')[1].getAttribute('aria-selected') === 'true'")
    assert "decided in this way" in text(opened, "#panel")
    color = "getComputedStyle(document.body).backgroundColor"
    light = opened.run(color)
    opened.press("t")
    assert opened.run(color) != light
    opened.press("1")
    opened.wait("document.querySelector('#view').className === 'program'")


def test_texts_of_programs_are_texts(browser: Browser, tmp_path: Path) -> None:
    compiled = thunder.jit(Hostile(), executors=[])
    compiled(torch.randn(1, 2))
    thunder.explain(compiled).to_html(tmp_path / "out.html")
    browser.problems.clear()
    browser.open(tmp_path / "out.html")
    for name in browser.run("[...document.querySelectorAll('[role=tab]')].map(e => e.textContent)"):
        browser.click("[role=tab]", name)
    browser.click("[role=tab]", "Program")
    browser.click(".row", "linear")
    assert "<img src=x onerror=" in text(browser, "#panel")
    assert browser.run("document.title") == "Hostile - Thunder explorer"
    assert browser.run("document.images.length + document.scripts.length") == 2
    assert browser.problems == []


@pytest.mark.slow
def test_ten_thousand_ops_open_quickly(browser: Browser, tmp_path: Path) -> None:
    text_of_page = page(_large(10_000))
    (tmp_path / "out.html").write_text(text_of_page)
    assert len(text_of_page) < 15_000_000
    browser.problems.clear()
    browser.open(tmp_path / "out.html")
    assert browser.run("document.querySelectorAll('.row').length") < 200  # only what is visible is in the document
    browser.press("/")
    browser.call("Input.insertText", text="exp t9998")
    browser.wait("document.querySelectorAll('.row').length <= 2")
    browser.click(".row", "t9998")
    assert "t9998" in text(browser, "#panel")
    assert browser.problems == []


def _large(count: int) -> dict[str, Any]:
    """The data of a program of one op, with ``count`` ops in its place."""
    import json
    import re
    import tempfile

    compiled = thunder.jit(torch.exp, executors=[])
    compiled(torch.ones(2))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "out.html")
        thunder.explain(compiled).to_html(path)
        found = re.search(r'<script id="data" type="application/json">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    row = data["ops"][-1]
    data["ops"] = [[f"t{n + 1} = torch.exp(t{n})", *row[1:4], [f"t{n + 1}"], [f"t{n}"], *row[6:]] for n in range(count)]
    (program,) = data["programs"]
    for trace in (*program["traces"], *program["final"].values()):
        trace["ops"] = list(range(count))
    program["memory"]["bytes"] = {"inference": list(range(count))}
    return data
