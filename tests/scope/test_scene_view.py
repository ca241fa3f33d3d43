"""The scene in a browser: what is drawn where, what is picked, and what keys, menus and pictures do."""

from __future__ import annotations

import numpy as np
import pytest

from tests.examples.fabrics import small
from tests.examples.programs import TIMED
from tests.scope.pages import open_page, show
from tests.serve.chromium import Page
from volumetric import Coord, Grid, Link, Network, initialise
from volumetric.fabric.layer.node_graphs import Lattice
from volumetric.layers import LSTM, Dense
from volumetric.scope import ScopeDocument, ScopeView
from volumetric.scope.network_view import network_view

LAYERS = {
    Coord(z, y, x): Dense(in_features=4, out_features=4) if (x + y + z) % 3 else LSTM(input_size=4, hidden_size=4)
    for z in range(3)
    for y in range(2)
    for x in range(3)
}
GRID = Network(
    grid=Grid(3, 2, 3),
    layers=LAYERS,
    links=(Link(Coord(0, 0, 0), Coord(2, 1, 2)), Link(Coord(2, 0, 0), Coord(0, 1, 1), delay=3)),
    input_shape=(4,),
    input_dtype="float32",
)
FABRIC = Network(
    grid=Grid(1), layers={Coord(0): small(graph=Lattice((12, 10)))}, input_shape=(3,), input_dtype="float32"
)
PROGRAM = Network(grid=Grid(1), layers={Coord(0): TIMED}, input_shape=(3,), input_dtype="float32")

R = "scope.shown.renderer"


def page_of(browser: Page, tmp_path, *views: ScopeView, width: int = 1000, height: int = 700) -> Page:
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    show(browser, ScopeDocument(title="scene", source="here", views=views), tmp_path)
    settle(browser)
    return browser


def view_edges(network: Network) -> list[int]:
    return network_view(network).data["scene"]["edges"]["source"].tolist()


def settle(page: Page) -> None:
    """Wait for two frames."""
    page.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")


def colour_at(page: Page, node: int) -> list[int]:
    """Return the colour of the scene's pixel in the middle of a node."""
    return page.value(f"""(() => {{
      {R}.now();
      const {{ x, y }} = {R}.project({node}), copy = document.createElement("canvas");
      Object.assign(copy, {{ width: {R}.canvas.width, height: {R}.canvas.height }});
      const brush = copy.getContext("2d");
      brush.drawImage({R}.canvas, 0, 0);
      return [...brush.getImageData(Math.round(x), Math.round(y), 1, 1).data].slice(0, 3);
    }})()""")


def move_to(page: Page, node: int) -> None:
    """Put the pointer on a node."""
    x, y = page.value(
        f"(() => {{ const b = {R}.canvas.getBoundingClientRect(), p = {R}.project({node}); "
        "return [b.x + p.x, b.y + p.y]; })()"
    )
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    settle(page)


def click_node(page: Page, node: int) -> None:
    move_to(page, node)
    page.value("0")
    x, y = page.value(
        f"(() => {{ const b = {R}.canvas.getBoundingClientRect(), p = {R}.project({node}); "
        "return [b.x + p.x, b.y + p.y]; })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    settle(page)


def key(page: Page, name: str) -> None:
    event = f"new KeyboardEvent('keydown', {{key: {name!r}, bubbles: true}})"
    page.value(f"({R}.canvas.focus(), {R}.canvas.dispatchEvent({event}), 0)")
    settle(page)


def test_picking_a_node_returns_its_coordinate(browser, tmp_path):
    page = page_of(browser, tmp_path, network_view(GRID, initialise(GRID)))
    shown = page.value(f"""[...Array({R}.count).keys()].filter(node => {{
      const at = {R}.project(node);
      return at && {R}.pick(at.x, at.y) === node;
    }})""")
    assert len(shown) >= 12  # the others are behind one of these
    coords = list(GRID.layers)
    for node in shown:
        assert page.value(f"{R}.coordinate({node})") == str(coords[node])
    click_node(page, shown[-1])
    assert page.value("scope.selection.value") == shown[-1]
    assert str(coords[shown[-1]]) in page.value("document.querySelector('.status').textContent")
    assert page.value(f"{R}.pick(-50, -50)") is None
    move_to(page, shown[0])
    tip = page.value("document.querySelector('.tooltip').textContent").split("\n")
    assert tip[0] == f"{coords[shown[0]]} {GRID.layers[coords[shown[0]]].kind}"
    assert any(line.startswith("parameters: ") for line in tip)


def test_values_are_colours_with_a_legend_and_odd_ones_stand_out(browser, tmp_path):
    page = page_of(browser, tmp_path, network_view(FABRIC))
    count = page.value(f"{R}.count")
    page.value(f"""(() => {{
      const values = new Float32Array({count}), fired = new Uint8Array({count}).fill(1);
      values[20] = 1; values[21] = NaN; fired[22] = 0; values[22] = 1;
      {R}.setValues({{ values, fired, label: "activation", unit: "volts", range: [0, 1] }});
    }})()""")
    settle(page)
    low, high, odd, dim = (np.array(colour_at(page, node), float) for node in (19, 20, 21, 22))
    assert high[0] > 200
    assert high[1] > 190
    assert high[2] < 90
    assert low[2] > low[1]  # and begins in violet
    assert odd[0] > 150
    assert odd[1] < 80
    assert np.abs(dim - high).max() > 40
    legend = page.value("document.querySelector('.scene-legend').innerText")
    assert "not finite" in legend
    assert "did not compute" in legend
    assert "volts" in legend
    assert "linear scale" in legend
    assert page.value("[...document.querySelectorAll('.scene-marks span')].map(one => one.textContent)") == [
        "0",
        "0.5",
        "1",
    ]
    page.value(f"{R}.setValues({{values: new Float32Array({count}).fill(-2), range: [-4, 4]}})")
    page.value(f"{R}.setChoice({{scale: 'sqrt'}})")
    settle(page)
    assert "square-root scale" in page.value("document.querySelector('.scene-legend').innerText")
    purple = colour_at(page, 20)
    assert purple[2] > purple[1]  # below 0 in PuOr
    page.value(f"{R}.setValues(null)")
    settle(page)
    assert page.value("document.querySelector('select[name=colour]').value") == "group"


def test_masks_slices_and_pulling_apart_change_what_is_drawn(browser, tmp_path):
    page = page_of(browser, tmp_path, network_view(GRID))
    before = colour_at(page, 17)
    page.value(f"({R}.setMask(Uint8Array.from({{length: 18}}, (_, i) => i === 17 ? 0 : 1)), 0)")
    settle(page)
    assert np.abs(np.subtract(before, colour_at(page, 17))).max() > 30
    assert "masked out" in page.value("document.querySelector('.scene-legend').innerText")
    assert "masked out" in page.value(f"{R}.describe(17)")
    small, large = (
        page.value(f"({R}.setChoice({{size: '{by}'}}), {R}.now(), {R}.project(0).radius)") for by in ("degree", "same")
    )
    assert small != large
    page.value(f"{R}.setChoice({{size: 'degree'}})")
    settle(page)
    assert "size: number of edges, smallest" in page.value("document.querySelector('.scene-legend').innerText")
    page.value(f"{R}.setChoice({{size: 'same'}})")
    page.click("button[aria-label^='Look of']")
    page.value("""(() => {
      const slider = document.querySelector("input[data-axis=z]");
      slider.value = 2;
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    })()""")
    settle(page)
    assert page.value(f"[...Array(18).keys()].filter(node => {R}.project(node))") == [12, 13, 14, 15, 16, 17]
    page.value(f"{R}.setSlices(null, null)")
    apart = f"Math.hypot({R}.project(0).x - {R}.project(17).x, {R}.project(0).y - {R}.project(17).y)"
    near = page.value(apart)
    page.value("""(() => {
      const slider = document.querySelector("input[name=explode]");
      slider.value = 1;
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    })()""")
    assert page.value(apart) > near * 1.2
    page.value(f"({R}.setVisible(new Uint8Array(18)), {R}.now(), 0)")
    assert page.value(f"{R}.project(3)") is None


@pytest.mark.thorough
def test_keys_turn_zoom_choose_and_walk(browser, tmp_path):
    page = page_of(browser, tmp_path, network_view(GRID))
    first = page.value(f"{R}.cameraState")
    key(page, "ArrowLeft")
    assert page.value(f"{R}.cameraState") != first
    radius = page.value(f"{R}.project(9).radius")
    key(page, "+")
    assert page.value(f"{R}.project(9).radius") > radius
    key(page, "o")
    assert page.value("document.querySelectorAll('.scene-buttons [aria-pressed=true]').length") == 1
    for name, behind in (("1", 6), ("2", 3), ("3", 1)):  # one step along z, y and x is hidden behind the first node
        key(page, name)
        places = page.value(f"[{R}.project(0), {R}.project({behind}), {R}.project(17)].map(at => [at.x, at.y])")
        assert places[0] == pytest.approx(places[1], abs=0.2), name
        assert np.abs(np.subtract(places[0], places[2])).max() > 60, name
    key(page, "f")
    key(page, "]")
    chosen = page.value("scope.selection.value")
    key(page, "]")
    said = page.value("document.querySelector('.status').textContent")
    assert said.startswith("1 of ")
    assert "Enter goes there" in said
    key(page, "Enter")
    assert page.value("scope.selection.value") != chosen
    key(page, "Escape")
    assert page.value("scope.selection.value") is None


@pytest.mark.thorough
def test_search_finds_nodes_and_shows_names_as_text(browser, tmp_path):
    view = network_view(GRID)
    names = list(view.data["scene"]["names"])
    names[4] = "<img src=x onerror=alert(1)>"
    data = {**view.data, "scene": {**view.data["scene"], "names": names}}
    page = page_of(browser, tmp_path, ScopeView(kind="scene", name="network", label="Network", data=data))
    page.click(".scene-search input")
    page.write("<IMG")
    assert page.value("document.querySelectorAll('.scene-hits li').length") == 1
    assert page.value("document.querySelector('.scene-hits li').textContent") == names[4]
    page.press("Enter")
    settle(page)
    assert page.value("scope.selection.value") == 4
    at = page.value(f"{R}.project(4)")
    size = page.value(f"[{R}.canvas.clientWidth, {R}.canvas.clientHeight]")
    assert abs(at["x"] - size[0] / 2) < size[0] * 0.3
    assert abs(at["y"] - size[1] / 2) < 60
    assert page.value("document.querySelectorAll('.stage img').length") == 0


@pytest.mark.thorough
def test_the_choice_highlights_edges_and_an_svg_has_the_scene(browser, tmp_path):
    page = page_of(browser, tmp_path, network_view(GRID))
    counts = page.value(f"[{R}.neighbours(0).incoming.length, {R}.neighbours(0).outgoing.length]")
    assert counts == [0, 2]
    before = page.value(f"({R}.now(), {R}.canvas.toDataURL())")
    page.value("scope.selection.set(0)")
    settle(page)
    assert page.value(f"({R}.now(), {R}.canvas.toDataURL())") != before
    assert "out of the chosen node" in page.value("document.querySelector('.scene-legend').innerText")
    svg = page.value("scope.shown.exports().svg().outerHTML")
    assert svg.count("<circle") >= 17
    assert "<polygon" in svg
    assert "0.0.0.0 lstm" in svg
    figure = page.value("scope.shown.exports().figures()[0]")
    assert len(figure["marks"]) == 18
    assert len(figure["strokes"]) == len(view_edges(GRID))
    assert {mark["label"] for mark in figure["marks"]} >= {"0.0.0.0 lstm"}
    wide, tall = page.value("(() => { const p = scope.shown.exports().picture(); return [p.width, p.height]; })()")
    assert wide > 500
    assert tall > 300
    # three dashes for a delay of 3
    delays = page.value(f"[...{R}.edges.delay.data]")
    assert 3 in delays


@pytest.mark.thorough
def test_the_link_holds_the_view_and_nothing_is_drawn_while_nothing_changes(browser, tmp_path):
    page = page_of(browser, tmp_path, network_view(GRID))
    key(page, "ArrowUp")
    page.value("scope.selection.set(7)")
    page.value("new Promise(done => setTimeout(() => done(0), 300))")
    state, address = page.value(f"{R}.cameraState"), page.value("location.href")
    page.value(f"(window.frames_before = {R}.info().frame, 0)")
    page.value("new Promise(done => setTimeout(() => done(0), 200))")
    assert page.value(f"{R}.info().frame === window.frames_before")
    open_page(page, address)
    settle(page)
    assert page.value(f"{R}.cameraState") == pytest.approx(state, rel=1e-3, abs=1e-3)
    assert page.value("scope.selection.value") == 7


@pytest.mark.thorough
def test_regions_are_boxes_in_four_draw_calls(browser, tmp_path):
    page = page_of(browser, tmp_path, network_view(PROGRAM), width=390, height=844)
    page.value(f"{R}.now()")
    assert page.value(f"{R}.info().calls") == 4
    # a place within the box of the eye, beside its node
    eye = page.value(f"{R}.project(0)")
    assert page.value(f"{R}.pick({eye['x'] + 2 * eye['radius']}, {eye['y']})") == 0
    outside = page.value(
        "[...document.querySelectorAll('.scene-bar, .scene-legend')].filter(one => { "
        "const b = one.getBoundingClientRect(); return b.left < 0 || b.right > innerWidth "
        "|| b.bottom > innerHeight; }).length"
    )
    assert outside == 0


@pytest.mark.thorough
def test_many_nodes_and_edges_are_four_draw_calls(browser, tmp_path):
    from benchmarks.scope_frames import lattice_scene
    from volumetric.scope.scene_tables import scene_view

    page = page_of(browser, tmp_path, scene_view(lattice_scene(50_000, 150_000)))
    page.value(f"{R}.now()")
    info = page.value(f"{R}.info()")
    assert info["nodes"] == 50_000
    assert info["edges"] == 150_000
    assert info["calls"] <= 4
    assert page.value("scope.shown.data.scene.names[49999]") == "core 49999"
    node = page.value(f"{R}.pick({R}.canvas.clientWidth / 2 + 60, {R}.canvas.clientHeight / 2)")
    assert node is not None
    assert "5,000" in page.value(
        "(() => { try { scope.shown.exports().svg(); return ''; } catch (e) { return e.message; } })()"
    )
