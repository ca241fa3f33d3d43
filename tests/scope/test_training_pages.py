"""The page of training runs in a browser: every part on real runs, by mouse and keys, and live."""

from __future__ import annotations

import threading

import pytest

from tests.scope.pages import open_page, show
from tests.scope.training_runs import train_digits, train_spirals, write_diverged, write_run
from volumetric.scope import ScopeDocument
from volumetric.scope.training_live import training_viewer
from volumetric.scope.training_view import training_view
from volumetric.scope.training_watch import TrainingWatch

HOSTILE = "</script><script>alert(1)</script>"
LINE = "document.querySelector('.training-first path[stroke-width=\"1.8\"]')"
TIP = "document.querySelector('.tooltip').textContent"


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    runs = write_run(home / "fast"), write_run(home / "slow", lr=0.004), write_diverged(home / "hot")
    return ScopeDocument(title="runs", source="", views=(training_view(*runs, names=["fast", HOSTILE, "hot"]),))


def hover(page, selector, x=0.5, y=0.5):
    """Move the mouse over a part of an element."""
    box = f"document.querySelector({selector!r}).getBoundingClientRect()"
    page.value(f"(document.querySelector({selector!r}).scrollIntoView({{block: 'center'}}), 0)")
    left, top, width, height = page.value(f"[{box}.x, {box}.y, {box}.width, {box}.height]")
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=left + x * width, y=top + y * height)
    return left + x * width, top + y * height


def click(page, selector, x=0.5, y=0.5):
    """Click on a part of an element."""
    at = hover(page, selector, x, y)
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)


def arrow(page, name, code):
    """Press a key that writes nothing."""
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)


def choose(page, label, value):
    """Set a menu or a slider."""
    element = f"document.querySelector('[aria-label={label}]')"
    page.value(
        f"({element}.value = {value!r}, ['input', 'change'].forEach(of => {element}.dispatchEvent(new Event(of))))"
    )


def captions(page):
    return page.value("[...document.querySelectorAll('.training-body figcaption')].map(one => one.textContent)")


def test_curves_of_several_runs(browser, document, tmp_path):
    page = show(browser, document, tmp_path)
    assert captions(page) == ["Loss", "Accuracy", "Gradient norm", "Learning rate", "Time of an update"]
    assert HOSTILE in page.value("document.querySelector('.training-runs').textContent")
    assert "diverged" in page.value("document.querySelector('.training-runs li:nth-child(3)').textContent")
    assert page.value("document.querySelector('.chart-mark title').textContent").startswith("hot: diverged at step 1")
    lines = "document.querySelectorAll('.training-first path[fill=none]').length"
    before = page.value(lines)
    hover(page, ".training-first svg", 0.6)
    assert page.value(TIP).startswith("updates ")
    assert "fast: " in page.value(TIP)
    assert f"{HOSTILE}, validation: " in page.value(TIP)
    page.click(".training-run")
    assert page.value(lines) < before
    assert page.value("document.activeElement.getAttribute('aria-pressed')") == "false"  # the focus stays
    assert "fast" not in page.value("document.querySelector('.training-first .chart-legend').textContent")
    path = f"{LINE}.getAttribute('d')"
    smooth = page.value(path)
    choose(page, "smoothing", 0)
    assert page.value(path) != smooth
    assert page.value("scope.state.get('smoothing')") == "0"
    choose(page, "over", "epoch")
    page.value("document.querySelector('.training-first svg').focus()")
    arrow(page, "ArrowRight", 39)
    assert page.value(TIP).startswith("epochs ")


def test_layers_and_weights_are_picked(browser, document, tmp_path):
    page = show(browser, document, tmp_path, anchor="#part=layers")
    assert "0.0.0.0 dense: outputs" in captions(page)
    click(page, ".heat", 0.5, 0.9)
    assert "2.0.0.0 dense: outputs" in captions(page)
    assert "updates " in page.value(TIP)
    arrow(page, "ArrowUp", 38)
    page.press("Enter")
    assert "1.0.0.0 dense: outputs" in captions(page)
    choose(page, "of", "backward")
    assert "1.0.0.0 dense: gradients" in captions(page)
    choose(page, "colours", "logarithm")
    arrow(page, "3", 51)
    assert page.value("document.querySelector('[data-panel=weights]').getAttribute('aria-selected')") == "true"
    assert "Values of 1.0.0.0/weight, 12 × 12" in captions(page)
    assert page.value("document.querySelectorAll('.chart path[fill-opacity]').length") == 4  # one histogram an epoch
    click(page, ".heat", 0.5, 0.05)
    assert "Values of 0.0.0.0/weight, 12 × 2" in captions(page)
    hover(page, "[aria-label^='Values of']", 0.6, 0.6)
    assert page.value(TIP).startswith("epoch ")


def test_samples_now_and_earlier(browser, document, tmp_path):
    page = show(browser, document, tmp_path, anchor="#part=samples")
    of = document.views[0].data["runs"][0]["samples"]
    for epoch in (3, 0):
        choose(page, "epoch", epoch)
        wrong = int((of["predictions"][epoch] != of["targets"]).sum())
        assert page.value("document.querySelectorAll('.sample').length") == 12
        assert page.value("document.querySelectorAll('.sample.is-wrong').length") == wrong
        assert f"12 validation samples, {wrong} of them wrong" in page.value("document.body.innerText")
        cells = "[...document.querySelectorAll('.sample-table td.number')].map(one => Number(one.textContent) || 0)"
        assert page.value(cells) == of["confusion"][epoch].ravel().tolist()


def test_the_table_of_runs_and_their_differences(browser, document, tmp_path):
    page = show(browser, document, tmp_path, anchor="#part=runs")
    text = page.value("document.querySelector('.training-body').innerText")
    assert "optimiser.lr\t0.02\t0.004\t–" in text
    assert "diverged at step 1: " in text
    assert "beta1" not in text
    page.value("[...document.querySelectorAll('.training-body button')].at(-1).click()")
    assert "optimiser.beta1" in page.value("document.querySelector('.training-body').innerText")


def test_a_run_is_seen_while_it_goes_on(browser):
    watch, going, resume = TrainingWatch("live", share=1.0), threading.Event(), threading.Event()

    def wait(event):
        if event.event == "epoch" and event.epoch == 1:
            going.set()
            resume.wait(30)

    server = training_viewer(watch).serve()
    thread = threading.Thread(
        target=train_spirals, kwargs={"reporters": [watch, wait], "observers": [watch], "epochs": 8}
    )
    try:
        open_page(browser, server.address)
        assert server.wait_for_viewers(10)
        thread.start()
        assert going.wait(30)
        browser.wait("document.querySelector('.training-facts').textContent.startsWith('6 updates')")
        assert "● live" in browser.value("document.querySelector('.training-run').textContent")
        browser.value(f"(window.line = {LINE}, window.was = line.getAttribute('d'), 0)")
        resume.set()
        browser.wait("document.querySelector('.training-facts').textContent.startsWith('24 updates')")
        assert browser.value("line.isConnected && line.getAttribute('d') !== was")  # it grew, and was not made anew
        browser.wait("!document.querySelector('.training-run').textContent.includes('●')")
        for part, expected in (("weights", ".chart path[fill-opacity]"), ("samples", ".sample"), ("layers", ".heat")):
            browser.value(f"document.querySelector('[data-panel={part}]').click()")
            assert browser.value(f"document.querySelectorAll({expected!r}).length") >= 1
        open_page(browser, server.address)  # a page that comes later shows the same
        assert browser.value("document.querySelector('.training-facts').textContent").startswith("24 updates")
        browser.open("about:blank")
        browser.forget_complaints()
    finally:
        resume.set()
        thread.join(30)
        server.close()


def test_parts_that_were_not_recorded_say_how(browser, tmp_path):
    view = training_view(train_spirals())
    page = show(browser, ScopeDocument(title="a", source="", views=(view,)), tmp_path)
    assert captions(page) == ["Loss", "Accuracy"]
    for part in ("layers", "weights", "samples"):
        page.value(f"document.querySelector('[data-panel={part}]').click()")
        assert "recorded. Pass" in page.value("document.querySelector('.training-body').innerText")


@pytest.mark.thorough
def test_pictures_fit_on_a_phone(browser, tmp_path):
    watch = TrainingWatch("digits", share=1.0)
    train_digits(reporters=[watch], observers=[watch])
    document = ScopeDocument(title="digits", source="", views=(training_view(watch.record),))
    browser.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=False)
    page = show(browser, document, tmp_path)
    for part in ("curves", "layers", "weights", "samples", "runs"):
        page.value(f"document.querySelector('[data-panel={part}]').click()")
        assert page.value("document.querySelector('.stage').scrollWidth") <= 390
    page.value("document.querySelector('[data-panel=samples]').click()")
    assert page.value("document.querySelectorAll('canvas.sample-image').length") == 24
    bright = "(c => c.getContext('2d').getImageData(0, 0, 8, 8).data.some(value => value > 200 && value < 255))"
    assert page.value(f"{bright}(document.querySelector('canvas.sample-image'))")
