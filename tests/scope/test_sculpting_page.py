"""The panel of a running network in a browser: buttons, keys, several pages, and a page that comes again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from tests.scope.machines_to_sculpt import KINDS, open_machine
from tests.scope.pages import open_page
from tests.serve.chromium import Page
from volumetric.scope.live_server import LiveServer
from volumetric.scope.sculpting import SculptedStream, replay, sculpt_viewer
from volumetric.scope.viewer import Viewer

ACTS = "[...document.querySelectorAll('.sculpt-acts li')].map(one => one.textContent)"


@contextmanager
def sculpting(
    browser: Page, kind: str, rows: object = "noise", **options: object
) -> Iterator[tuple[SculptedStream, LiveServer]]:
    """Open the page of a stream; yields the stream and its server."""
    sculpted = SculptedStream(open_machine(kind), rows)  # pyright: ignore[reportArgumentType]
    viewer: Viewer = sculpt_viewer(sculpted, **options)  # pyright: ignore[reportArgumentType]
    server = viewer.serve()
    try:
        open_page(browser, server.address)
        browser.wait(f"{ACTS}.length > 0")
        yield sculpted, server
        browser.open("about:blank")
    finally:
        server.close()


def press(browser: Page, name: str) -> None:
    """Press a key on the page, as people do."""
    browser.value("(document.activeElement.blur(), 0)")
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key=name, text=name if kind == "keyDown" else "")


def fill(browser: Page, selector: str, value: str, number: int = 0) -> None:
    """Write into a field."""
    browser.value(f"(() => {{ document.querySelectorAll({selector!r})[{number}].value = {value!r}; }})()")


def choose(browser: Page, node: int) -> None:
    browser.value(f"(scope.selection.set({node}), 0)")


def click(browser: Page, text: str, within: str = ".sculpt") -> None:
    """Click the first button with a text or a name."""
    fits = f"one => one.textContent === {text!r} || one.ariaLabel === {text!r}"
    script = f"[...document.querySelectorAll({within + ' button'!r})].find({fits})"
    browser.wait(f"{script} !== undefined && !{script}.disabled")
    browser.value(f"({script}.click(), 0)")


def test_a_fabric_is_sculpted_by_keys_and_buttons(browser):
    with sculpting(browser, "fabric") as (sculpted, _):
        click(browser, "Step")
        browser.wait("document.querySelector('.sculpt-tick').textContent.startsWith('row 1')")
        press(browser, "n")
        browser.wait("document.querySelector('.sculpt-tick').textContent.startsWith('row 2')")
        choose(browser, 5)
        press(browser, "m")
        browser.wait(f"{ACTS}.includes('mask left 5 at tick 2')")
        assert sculpted.changes.masked == {5}
        browser.wait("document.querySelector('.sculpt').textContent.includes('masked')")
        press(browser, "x")
        browser.wait(f"{ACTS}.length === 2")
        press(browser, "u")
        browser.wait("document.querySelector('.sculpt-undone') !== null")
        press(browser, "r")
        browser.wait("document.querySelector('.sculpt-undone') === null")
        press(browser, "c")
        browser.wait("document.querySelector('.status').textContent.includes('Choose the node')")
        choose(browser, 13)
        browser.wait(f"{ACTS}.some(one => one.startsWith('add an edge from left 5 to core'))")
        browser.value(
            "(() => { const [field] = document.querySelectorAll('.sculpt-columns input'); field.value = '0.5'; })()"
        )
        click(browser, "Clamp")
        browser.wait(f"{ACTS}.some(one => one.startsWith('clamp input eye to (0.5, ·, ·)'))")
        click(browser, "Inject")
        browser.wait(f"{ACTS}.some(one => one.startsWith('inject (0.5, ·, ·) into input eye for 1 tick'))")
        browser.value("(() => { const box = document.querySelector('.sculpt-check input'); box.click(); })()")
        click(browser, "Step")
        browser.wait("document.querySelector('.sculpt-check').textContent.includes('% of the time')")
        assert sculpted.has_twin
        script = browser.value("scope.live.act('network', {do: 'script', form: 'json'}).then(answer => answer.text)")
        again, _ = replay(open_machine("fabric"), script, "noise")
        assert again.history.describe()["done"] == browser.value(ACTS)


@pytest.mark.thorough
def test_a_clocked_grid_and_a_program_have_clocks_and_thresholds(browser):
    with sculpting(browser, "clocked") as (sculpted, _):
        choose(browser, 5)
        browser.wait("document.querySelectorAll('.sculpt-field').length === 2")
        browser.value(
            "(() => { const field = document.querySelectorAll('.sculpt-field input')[1]; field.value = '0.25'; })()"
        )
        click(browser, "Set threshold")
        browser.wait(f"{ACTS}.includes('set threshold of 1.0.1.0 discrete to 0.25 at tick 0')")
        assert sculpted.node_facts(5).numbers == (("threshold", 0.25),)
        fill(browser, ".sculpt-field input", "every(")
        click(browser, "Set the clock")
        browser.wait("document.querySelector('.alerts').textContent.includes('clock')")
        browser.forget_complaints()  # the browser reports the status 400 itself
        fill(browser, ".sculpt-field input", "every(2)")
        click(browser, "Set the clock")
        browser.wait(f"{ACTS}.length === 2")
        assert sculpted.node_facts(5).clock == "every(2)"
    with sculpting(browser, "program") as (sculpted, _):
        choose(browser, 2)
        browser.wait("document.querySelectorAll('.sculpt-more > .sculpt-field').length === 3")
        click(browser, "Mask")
        browser.wait(f"{ACTS}.includes('mask store at tick 0')")
        click(browser, "Step")
        browser.wait("document.querySelector('.sculpt-tick').textContent.startsWith('row 1')")
        assert sculpted.changes.masked == {2}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [kind if isinstance(kind, str) else kind.values[0] for kind in KINDS])
def test_a_network_runs_at_a_rate_and_pages_see_the_same(browser, kind):
    with sculpting(browser, kind, running=True, rate=200.0) as (sculpted, server):
        browser.wait("document.querySelector('.sculpt-run').ariaLabel === 'Pause'")
        tick = "Number(document.querySelector('.sculpt-tick strong').textContent.replace(/[^0-9]/g, ''))"
        first = browser.value(tick)
        browser.wait(f"{tick} > {first} + 20")
        click(browser, "Save state")
        browser.wait("document.querySelector('[aria-label=\"Saved state\"]').value === 'start'")
        choose(browser, 1)
        click(browser, "Mask")
        browser.wait(f"{ACTS}.some(one => one.startsWith('mask '))")
        click(browser, "Rewind")
        browser.wait(f"{ACTS}.some(one => one.startsWith('rewind '))")
        press(browser, "g")
        browser.wait("document.querySelector('.sculpt-run').ariaLabel === 'Run'")
        acts = browser.value(ACTS)
        open_page(browser, server.address)  # the page that comes again learns all
        browser.wait(f"{ACTS}.length === {len(acts)}")
        assert browser.value(ACTS) == acts
        assert browser.value(tick) == sculpted.elapsed
        assert browser.value("document.querySelector('[aria-label=\"Saved state\"]').value") == "start"


@pytest.mark.thorough
def test_what_fails_is_a_sentence_on_the_page(browser):
    def rows(t: int) -> np.ndarray:
        if t == 2:
            raise RuntimeError("<b>no more</b>")
        return np.zeros((1, 3), np.float32)

    with sculpting(browser, "fabric", rows, running=True, rate=1000.0):
        browser.wait("document.querySelector('.sculpt-failure').textContent === 'RuntimeError: <b>no more</b>'")
        assert browser.value("document.querySelector('.alerts').textContent").startswith("RuntimeError: <b>no more</b>")
        press(browser, "u")
        browser.wait("document.querySelector('.alerts').textContent.includes('there is nothing to undo')")
        press(browser, "m")
        browser.wait("document.querySelector('.status').textContent === 'Choose a node first.'")
        click(browser, "Clamp")
        browser.wait(
            "document.querySelector('.alerts').textContent.includes('Write a number into a column of input eye')"
        )
        browser.forget_complaints()


@pytest.mark.thorough
def test_controls_have_names_and_fit_a_phone(browser):
    with sculpting(browser, "fabric"):
        choose(browser, 5)
        browser.wait("document.querySelectorAll('.sculpt-more details').length > 0")
        browser.value("document.querySelectorAll('.sculpt details').forEach(one => { one.open = true; })")
        nameless = """[...document.querySelectorAll('.sculpt input, .sculpt select, .sculpt button')].filter(
            one => !(one.ariaLabel || one.labels?.[0]?.textContent.trim() || one.textContent.trim())).length"""
        assert browser.value(nameless) == 0
        for width in (1280, 390):
            browser.call(
                "Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=False
            )
            cut_off = """[...document.querySelectorAll('.sculpt button, .sculpt input, .sculpt select')].filter(one => {
                const box = one.getBoundingClientRect(), panel = one.closest('.scene-side').getBoundingClientRect();
                return box.width && (box.right > panel.right || box.left < panel.left); }).length"""
            assert browser.value(cut_off) == 0
