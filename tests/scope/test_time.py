"""Time below the scene: frames are stepped, played, looped and marked; charts are linked; recordings are compared."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.devices import device
from tests.scope.pages import open_page, show
from tests.serve.chromium import Page
from volumetric import fabric
from volumetric.base.errors import SpecError
from volumetric.builders import sequential
from volumetric.fabric import Blueprint, Input, Output, Population, lattice2d
from volumetric.fabric.cells import SLSTM
from volumetric.network import initialise
from volumetric.observe import Recorder, Recording, record
from volumetric.observe.frame_blocks import ActivityFrame, FrameBlocks
from volumetric.observe.recording_file import RecordingMeta
from volumetric.observe.scene import Scene, SceneEdge, SceneNode
from volumetric.run.streams import open_stream
from volumetric.run.streams.stream_chunks import StreamChunk
from volumetric.scope import ScopeDocument, ScopeView, Viewer
from volumetric.scope.live_frames import LiveFrames
from volumetric.scope.recording_view import recording_view
from volumetric.scope.scene_tables import scene_view


@pytest.fixture(autouse=True)
def _large(request: pytest.FixtureRequest) -> None:
    """Give the page the size in which it has all charts from the start."""
    if "browser" in request.fixturenames:
        size = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        request.getfixturevalue("browser").call("Emulation.setDeviceMetricsOverride", **size)


FRAMES = "scope.timePanel.first()"


@cache
def recorded(seed: int = 0, rows: int = 60) -> Recording:
    """A fabric of 6 × 5 nodes, reset at every 25th row."""
    graph = lattice2d.Graph(width=6, height=5, populations={"core": Population(cell=SLSTM(hidden=2))})
    model = fabric.compile(Blueprint(graph=graph, inputs={"in": Input(3)}, outputs={"out": Output(2)}), seed=seed)
    x = np.random.default_rng(0).standard_normal((1, rows, 3)).astype(np.float32)
    resets = (np.arange(rows) % 25 == 24).astype(np.int64)[None]
    return record(model.network, x, params=model.params, device="reference", resets=resets, title=f"seed {seed}")


def page_of(*views: ScopeView) -> ScopeDocument:
    return ScopeDocument(title="time", source="a test", views=views)


def press(page: Page, *keys: str) -> None:
    """Press keys, each of which the page must take."""
    for key in keys:
        page.value("document.activeElement?.blur()")
        event = f"new KeyboardEvent('keydown', {{key: {json.dumps(key)}, bubbles: true, cancelable: true}})"
        assert page.value(f"!document.body.dispatchEvent({event})"), key


def now(page: Page) -> int:
    return page.value("scope.time.value")


def settle(page: Page) -> None:
    page.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def text(page: Page, selector: str) -> str:
    return page.value(f"document.querySelector({json.dumps(selector)}).textContent")


def noise(frames: int, nodes: int, *, seed: int = 0, start: int = 1, step: int = 1, missed: int = 0) -> Recording:
    """Return frames of random activity; some are not finite."""
    rng = np.random.default_rng(seed)
    scene = Scene(
        kind="fabric",
        nodes=tuple(
            SceneNode(id=i, name=f"n{i}", role="cell", group="g", at=(float(i % 40), float(i // 40), 0.0))
            for i in range(nodes)
        ),
        edges=(SceneEdge(id=0, source=0, target=1, kind="local"),),
    )
    blocks = FrameBlocks(scene)
    for i in range(frames):
        rms = np.abs(rng.standard_normal(nodes))
        rms[rng.integers(nodes)] = np.nan
        blocks.append(ActivityFrame(t=start + i * step, rms=rms, fired=rng.random(nodes) < 0.5, reset=i % 9 == 0))
    return Recording(meta=RecordingMeta(missed=missed), scene=scene, **blocks.arrays())


@pytest.mark.thorough
def test_frames_are_stepped_and_linked_with_charts(browser: Page, tmp_path: Any) -> None:
    recording = recorded()
    page = show(browser, page_of(recording_view(recording)), tmp_path)
    assert text(page, ".time-place") == "tick 1 of 60"
    assert page.value("scope.timePanel.playback.playing") is False  # nothing moves before it is asked to
    press(page, ".", ".", ".", ",")
    assert now(page) == 2
    press(page, "End")
    assert text(page, ".time-place") == "tick 60 of 60"
    press(page, ".", "Home", "PageDown")
    assert now(page) == 3
    page.value("(slider => { slider.value = 24; slider.dispatchEvent(new Event('input')); })"
               "(document.querySelector('.time-scrub input'))")  # fmt: skip
    assert now(page) == 24
    assert page.value("!document.querySelector('.time-reset').hidden")
    assert page.value("document.querySelector('.time-scrub input').getAttribute('aria-valuetext')") == "tick 25 of 60"
    page.wait("location.hash.includes('t=24')")

    # values are those of the recording, in its unit
    shown = np.array(page.value(f"Array.from({{length: 30}}, (_, i) => {FRAMES}.value(24, i))"))
    np.testing.assert_allclose(shown, recording.values()[24], rtol=1e-5)
    page.value("scope.selection.set(17)")
    assert page.value("[...document.querySelectorAll('.time-strip')].map(one => one.dataset.strip)") == [
        "meter.mean", "node.17"]  # fmt: skip
    number = text(page, "[data-strip='node.17'] output")
    assert re.fullmatch(r"[\d.]+ rms", number)
    assert float(number.split()[0]) == pytest.approx(recording.values()[24, 17], rel=1e-3)

    # a pinned strip stays, a chosen one goes with the choice
    page.click("[data-strip='node.17'] [aria-label^='Pin']")
    page.value("scope.selection.set(3)")
    page.value("scope.selection.set(4)")
    assert page.value("scope.timePanel.charts.strips.nodes()") == [17, 4]
    for node in range(5, 20):
        page.value(f"scope.timePanel.charts.strips.pin({node})")
    assert page.value("scope.timePanel.charts.strips.nodes().length") <= 13
    assert "12 pinned strips" in text(page, ".alerts")
    page.click("[data-strip='node.5'] [aria-label^='Remove']")
    assert 5 not in page.value("scope.timePanel.charts.strips.nodes()")

    # a click on the raster goes to its frame and node
    settle(page)
    box = page.value(
        "(box => [box.x, box.y, box.width, box.height])(document.querySelector('.time-raster').getBoundingClientRect())"
    )
    x, y = box[0] + 5 + (box[2] - 5) * 40.5 / 60, box[1] + box[3] * 12.5 / 30
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    order = np.argsort(recording.scene.group_of, kind="stable")
    assert (now(page), page.value("scope.selection.value")) == (40, int(order[12]))
    colours = page.value(
        "(canvas => { const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);"
        "return new Set(new Uint32Array(data.buffer)).size; })(document.querySelector('.time-raster'))"
    )
    assert colours > 20


def test_playing_loops_marks_and_links(browser: Page, tmp_path: Any) -> None:
    page = show(browser, page_of(recording_view(noise(60, 12))), tmp_path)
    press(page, " ")
    assert page.value("scope.timePanel.playback.playing")
    page.wait("scope.time.value > 2")
    press(page, " ")
    assert not page.value("scope.timePanel.playback.playing")
    stood = now(page)
    settle(page)
    assert now(page) == stood

    # what is due follows from the time alone, so that late pictures do not add up
    page.value("(scope.time.set(0), scope.timePanel.playback.setSpeed(25))")
    due = page.value(
        "(at => [0, 39, 40, 1000, 1001, 2000, 1e6].map(more => scope.timePanel.playback.frameAt(at + more + .5).k))"
        "((scope.timePanel.playback.moved(), performance.now()))"
    )
    assert due == [0, 0, 1, 25, 25, 50, 59]

    page.value("scope.time.set(10)")
    press(page, "l")
    page.value("scope.time.set(19)")
    press(page, "l")
    assert page.value("scope.timePanel.playback.loop") == [10, 19]
    page.value("(scope.time.set(10), scope.timePanel.playback.moved())")
    due = page.value(
        "(at => [0, 400, 440, 4000].map(more => scope.timePanel.playback.frameAt(at + more + .5).k))(performance.now())"
    )
    assert due == [10, 10, 11, 10]

    press(page, "b")
    page.value("scope.time.set(30)")
    press(page, "b", "b")
    page.click(".time-holder > button")
    name = "<img src=x onerror=alert(1)>!~"
    page.value(f"(field => {{ field.value = {json.dumps(name)}; field.dispatchEvent(new Event('change')); }})"
               "(document.querySelector('.time-marks input'))")  # fmt: skip
    assert page.value("[...document.querySelectorAll('.time-marks input')].map(one => one.value)") == [name, "tick 31"]
    page.wait(
        "location.hash.includes('onerror') && location.hash.includes('loop=10-19') && location.hash.includes('t=30')"
    )
    anchor = page.value("location.hash")
    page.click(".time-marks button")
    assert now(page) == 10

    page = show(browser, page_of(recording_view(noise(60, 12))), tmp_path, anchor=anchor)  # the link holds all of it
    assert (now(page), page.value("scope.timePanel.playback.loop")) == (30, [10, 19])
    page.click(".time-holder > button")
    assert page.value("[...document.querySelectorAll('.time-marks input')].map(one => one.value)") == [name, "tick 31"]
    assert page.value("document.querySelectorAll('.time img').length") == 0
    show(
        browser,
        page_of(recording_view(noise(60, 12))),
        tmp_path,
        anchor="#t=nan&loop=5-1e9&marks=x~y!~&strips=-1,99,2.5&speed=-1",
    )
    assert (now(browser), browser.value("scope.timePanel.playback.loop")) == (0, None)


def test_a_step_reads_each_node_a_few_times(browser: Page, tmp_path: Any) -> None:
    nodes = 500
    recording = noise(400, nodes)
    page = show(browser, page_of(recording_view(recording, budget=None)), tmp_path)
    settle(page)
    page.value("scope.selection.set(7)")
    settle(page)
    read = page.value(
        f"(before => {{ for (const k of [3, 399, 200, 201]) scope.time.set(k); return {FRAMES}.reads - before; }})"
        f"({FRAMES}.reads)"
    )
    assert 4 * nodes <= read <= 4 * (5 * nodes + 50)
    for k in (0, 201, 399):  # among blocks, with what is not finite and what did not compute
        shown = page.value(f"Array.from({{length: {nodes}}}, (_, i) => String({FRAMES}.value({k}, i)))")
        np.testing.assert_allclose(np.array(shown, float), recording.values()[k], rtol=1e-5, equal_nan=True)
        fired = page.value(f"Array.from({{length: {nodes}}}, (_, i) => {FRAMES}.isFired({k}, i))")
        assert fired == recording.fired[k].tolist()


@pytest.mark.thorough
def test_two_recordings_are_compared_at_the_same_ticks(browser: Page, tmp_path: Any) -> None:
    one, other = recorded(0), recorded(1, rows=50)
    page = show(browser, page_of(recording_view(one, other, names=("before", "after"))), tmp_path, anchor="#t=30")
    page.value("scope.selection.set(9)")
    values = [float(x.split()[0]) for x in text(page, "[data-strip='node.9'] output").split(" | ")]
    np.testing.assert_allclose(values, [one.values()[30, 9], other.values()[30, 9]], rtol=1e-3)
    page.click("[data-mode=difference]")
    settle(page)
    assert re.fullmatch(r"after − before, ±[\d.]+", text(page, ".time-notes span"))
    assert page.value("document.querySelector('[data-mode=difference]').getAttribute('aria-pressed')") == "true"
    press(page, "End")
    assert text(page, ".time-notes span") == "after has no frame at this tick"
    assert page.value("scope.timePanel.second().name") == "after"
    scenes = page.value("document.querySelectorAll('.scene-stage canvas').length")
    page.click("[data-mode=split]")
    settle(page)
    assert page.value("document.querySelectorAll('.scene-stage').length") == 2
    assert page.value("document.querySelectorAll('.scene-stage canvas').length") > scenes
    page.wait("location.hash.includes('split=1') && location.hash.includes('compare=difference')")
    page.click("[data-mode=second]")
    assert page.value("document.querySelectorAll('.scene-stage').length") == 1


def test_thinned_recordings_say_so(browser: Page, tmp_path: Any) -> None:
    recording = noise(300, 200, missed=12)
    view = recording_view(recording, budget=20_000)
    [tables] = view.data["recordings"]
    assert (tables["total"], len(tables["ticks"])) == (300, -(-300 // tables["step"]))
    packed = sum(len(gzip.compress(np.ascontiguousarray(tables[name]).tobytes())) for name in ("node", "odd", "fired"))
    assert packed <= 20_000 < 300 * 200
    page = show(browser, page_of(view), tmp_path)
    assert re.fullmatch(r"every \d+(st|nd|rd|th) of 300 frames; 12 later ticks were not recorded",
                        text(page, ".time-notes span:last-child"))  # fmt: skip
    press(page, ".")
    assert text(page, ".time-place").startswith(f"tick {1 + tables['step']} of")
    assert tables["reset"].tolist() == [
        bool(recording.reset[max(0, k - tables["step"] + 1) : k + 1].any()) for k in range(0, 300, tables["step"])
    ]


def test_views_of_recordings_are_checked() -> None:
    one, other = noise(5, 4), noise(5, 3)
    with pytest.raises(SpecError, match="the first has 4 nodes, the second 3"):
        recording_view(one, other)
    with pytest.raises(SpecError, match="different scenes: name of node 0 is"):
        recording_view(noise(5, 30), recorded())
    with pytest.raises(SpecError, match="or compares two, got 0"):
        recording_view()
    with pytest.raises(SpecError, match="expected 2 different names"):
        recording_view(one, one, names=("a", "a"))
    with pytest.raises(SpecError, match="not even one frame fits 9 bytes"):
        recording_view(one, budget=9)
    edges = noise(5, 4)
    object.__setattr__(edges, "scene", Scene(kind="fabric", nodes=edges.scene.nodes, edges=(
        SceneEdge(id=0, source=1, target=2, kind="local", delay=3),)))  # fmt: skip
    with pytest.raises(SpecError, match="edge 0 is from n0 to n1, local, delay 0 in the first, from n1 to n2"):
        recording_view(one, edges)
    assert [tables["name"] for tables in recording_view(one, one).data["recordings"]] == ["first", "second"]
    assert [tables["name"] for tables in recording_view(recorded(0), recorded(1)).data["recordings"]] == [
        "seed 0",
        "seed 1",
    ]


class Source:
    """A stream that sends frames when the test says so."""

    def connect(self, send: Any) -> None:
        self.send = send

    def act(self, view: str, action: Any) -> Any:
        return {}

    def snapshot(self) -> list[Any]:
        return []

    def close(self) -> None:
        pass


def test_live_frames_are_received_and_followed(browser: Page) -> None:
    network = sequential(4, 2, hidden=(16, 16))
    recorder = Recorder(open_stream(device("reference"), network, initialise(network), batch=1), most=0)
    frames, rows, source = LiveFrames(recorder.scene), list[ActivityFrame](), Source()
    recorder.tell = rows.append
    x = np.random.default_rng(0).standard_normal((1, 60, 4)).astype(np.float32)
    x[0, 2] = np.nan
    recorder.advance(StreamChunk(x={"input": x}, count=60))
    assert len(rows) == 60
    server = Viewer(page_of(scene_view(recorder.scene, more={"frameLimit": 20})), source).serve()
    try:
        open_page(browser, server.address)
        assert server.wait_for_viewers(10)
        assert text(browser, ".time-place") == "waiting for frames"
        for row in rows[:5]:
            source.send(frames.message(row))
        browser.wait("scope.time.value === 4")
        assert text(browser, ".time-place") == "row 5 of 5"
        shown = browser.value(f"[0, 1, 2].map(i => String({FRAMES}.value(2, i)))")
        assert shown == ["NaN"] * 3
        shown = browser.value(f"[0, 1, 2].map(i => {FRAMES}.value(1, i))")
        np.testing.assert_allclose(shown, rows[1].rms, atol=float(rows[1].rms.max()) / 255)

        press(browser, " ")  # paused, and still received
        for row in rows[5:12]:
            source.send(frames.message(row))
        browser.wait(f"{FRAMES}.count === 12")
        assert now(browser) == 4
        assert browser.value("document.querySelector('.time-live').getAttribute('aria-pressed')") == "false"
        browser.click(".time-live")
        assert now(browser) == 11
        source.send(frames.message(rows[3]))  # of the past
        source.send({**frames.message(rows[12]), "node": np.zeros(5, np.uint8)})  # of another scene
        for row in rows[12:]:
            source.send(frames.message(row))
        browser.wait("scope.time.value === 59")
        assert browser.value(f"[{FRAMES}.first, {FRAMES}.count]") == [40, 20]
        assert text(browser, ".time-place") == "row 60 of 60"
        assert text(browser, ".time-notes span:last-child") == (
            "the oldest 40 frames were dropped; 2 frames did not fit this scene"
        )
        press(browser, "Home")
        assert now(browser) == 40
        shown = browser.value(f"[0, 1, 2].map(i => {FRAMES}.value(40, i))")
        np.testing.assert_allclose(shown, rows[40].rms, atol=float(rows[40].rms.max()) / 255)
        browser.open("about:blank")
        browser.forget_complaints()
    finally:
        server.close()
