"""The page of a run of evolution in a browser: driven by mouse and keys, finished and live."""

from __future__ import annotations

import threading
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.scope.pages import open_page, show
from tests.serve.chromium import Page
from volumetric.evolution import EvolutionConfig, History, ParetoRun, Population, evolve
from volumetric.evolution.genealogy import BestGenome, Births
from volumetric.evolution.nsga import SizedProblem
from volumetric.evolution.problems import parity, xor
from volumetric.evolution.reporters import FrontEvaluated
from volumetric.scope import ScopeDocument, Viewer
from volumetric.scope.evolution_feed import EvolutionFeed
from volumetric.scope.evolution_view import evolution_view
from volumetric.viz.scope_figure import LinesFigure, scope_figures

POPULATION = 40


@cache
def recorded() -> History:
    history = History(genealogy=True)
    config = EvolutionConfig(population=POPULATION, fitness_threshold=9.0)
    Population(config, seed=3).evolve(parity(3), generations=30, reporters=[history])
    return history


@cache
def with_objectives() -> History:
    history = History(genealogy=True)
    run = ParetoRun(Population(xor().configure(EvolutionConfig(population=POPULATION)), seed=3))
    run.evolve(SizedProblem(xor()), generations=15, reporters=[history])
    return history


def document(source: Any) -> ScopeDocument:
    return ScopeDocument(title="evolution", source="here", views=(evolution_view(source),))


def hover(page: Page, x: float, y: float) -> str:
    """Move the mouse and return what the tooltip shows."""
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    return page.value("(box => box.hidden ? '' : box.textContent)(document.querySelector('.tooltip'))")


def click_at(page: Page, x: float, y: float) -> None:
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def key(page: Page, name: str) -> None:
    page.call("Input.dispatchKeyEvent", type="keyDown", key=name, code=name)
    page.call("Input.dispatchKeyEvent", type="keyUp", key=name, code=name)


def box(page: Page, selector: str) -> list[float]:
    return page.value(
        f"(b => [b.x, b.y, b.width, b.height])((e => (e.scrollIntoView({{block: 'center'}}), e))"
        f"(document.querySelector({selector!r})).getBoundingClientRect())"
    )


def ancestors(history: History, chosen: int) -> set[int]:
    parents = {
        births.first + row: [one for one in pair if one >= 0]
        for births in history.events
        if isinstance(births, Births)
        for row, pair in enumerate(births.parents.tolist())
    }
    reached, waiting = set[int](), [chosen]
    while waiting:
        one = waiting.pop()
        waiting += [parent for parent in parents[one] if parent not in reached]
        reached |= set(parents[one])
    return reached


def test_one_generation_is_shown_by_all_charts(browser: Page, tmp_path: Path):
    history = recorded()
    page = show(browser, document(history), tmp_path)
    last = history.generations[-1]
    assert page.value("document.querySelector('.evolution').dataset.rows") == "30"
    text = page.value("document.querySelector('.timeline-text').textContent")
    assert text.startswith("generation 29 · best")

    # the stream: a tooltip tells of the species under the pointer, a click highlights it everywhere
    x, y, width, height = box(page, ".stream svg")
    tooltip = hover(page, x + width - 30, y + height / 2 - 12)
    assert "generation 29" in tooltip or "generation 28" in tooltip
    species = int(tooltip.split("species ")[1].split("\n")[0])
    assert "genomes" in tooltip
    assert "best fitness" in tooltip
    assert "age" in tooltip
    click_at(page, x + width - 30, y + height / 2 - 12)
    assert page.value("scope.shown.species.value") == species
    faded = "document.querySelectorAll('.stream path[data-class][fill-opacity=\"0.18\"]').length"
    drawn = len({one for event in history.generations for one in event.species})
    assert page.value(faded) == drawn - 1

    # the slider by keys: the best genome of that generation is drawn, what is new is marked
    page.value("(document.querySelector('.timeline input').focus(), 0)")
    structures = [event for event in history.events if isinstance(event, BestGenome)]
    grown = next(i for i in range(1, len(structures)) if len(structures[i].nodes) > len(structures[i - 1].nodes))
    page.value(f"(scope.shown.generation.set({structures[grown].generation}), 0)")
    assert page.value("document.querySelectorAll('.champion g.node').length") == len(structures[grown].nodes)
    before = {node[0] for node in structures[grown - 1].nodes}
    fresh = [node[0] for node in structures[grown].nodes if node[0] not in before]
    assert page.value("document.querySelectorAll('.champion g.fresh-node').length") == len(fresh)
    assert page.value("document.querySelector('.champion-about').textContent").startswith(
        f"genome {structures[grown].genome} best since generation {structures[grown].generation}"
    )
    page.value("(document.activeElement.blur(), 0)")
    key(page, "End")
    assert page.value("scope.shown.generation.value") == last.generation
    key(page, "ArrowLeft")
    assert page.value("scope.shown.generation.value") == last.generation - 1
    page.wait("location.hash.includes('gen=28')")
    marker = "document.querySelector('.evolution-fitness .marker').getAttribute('x1')"
    at = float(page.value(marker))
    key(page, "Home")
    assert float(page.value(marker)) < at

    # a weight on hover: exact
    edge = structures[0].edges[0]
    middle = (
        "((p, q, m) => [q.x * m.a + m.e, q.y * m.d + m.f])(...(p => "
        "[p, p.getPointAtLength(p.getTotalLength() / 3), p.getScreenCTM()])(document.querySelector('.champion path')))"
    )
    box(page, ".champion svg")
    tooltip = hover(page, *page.value(middle))
    assert f"{edge[0]} → {edge[1]}" in tooltip
    assert f"weight {float(f'{edge[2]:.7g}')}"[:12] in tooltip


def test_the_genealogy_traces_ancestors(browser: Page, tmp_path: Path):
    history = recorded()
    page = show(browser, document(history), tmp_path)
    page.wait("document.querySelector('.lineage-canvas').dataset.members !== undefined")
    canvas = "document.querySelector('.lineage-canvas').dataset"
    assert page.value(f"{canvas}.genomes") == str(30 * POPULATION)
    best = history.generations[-1].best_genome
    assert page.value("scope.shown.lineage.chosen") == best
    wait = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    page.value(wait)
    assert page.value(f"{canvas}.members") == str(1 + len(ancestors(history, best)))

    # a click chooses a genome; its parents are a button away, and a key
    chosen = 17 * POPULATION + 21
    x, y, *_ = box(page, ".lineage-canvas")
    px, py = page.value(f"scope.shown.lineage.position({chosen})")
    assert f"genome {chosen}" in hover(page, x + px, y + py)
    click_at(page, x + px, y + py)
    assert page.value("scope.shown.lineage.chosen") == chosen
    page.value(wait)
    expected = ancestors(history, chosen)
    assert page.value(f"{canvas}.members") == str(1 + len(expected))
    about = page.value("document.querySelector('.lineage-about').textContent")
    assert f"Genome {chosen}, generation 17" in about
    assert f"{len(expected)} ancestors" in about
    page.wait(f"location.hash.includes('genome={chosen}')")
    births = next(event for event in history.events if isinstance(event, Births) and event.generation == 17)
    key(page, "ArrowLeft")
    assert page.value("scope.shown.lineage.chosen") == births.parents[21, 0]
    key(page, "ArrowRight")
    child = page.value("scope.shown.lineage.chosen")
    assert births.parents[child - 17 * POPULATION].tolist().count(births.parents[21, 0]) >= 1
    mode = "document.querySelector('.panel-tools select[aria-label=\"What is drawn out\"]')"
    page.value(f"({mode}.value = 'descendants', {mode}.dispatchEvent(new Event('change')), 0)")
    assert "descendants" in page.value("document.querySelector('.lineage-about').textContent")

    # the wheel zooms where the canvas has the focus
    before = page.value(f"scope.shown.lineage.position({chosen + 100})")
    page.call("Input.dispatchMouseEvent", type="mouseWheel", x=x + px, y=y + py, deltaX=0, deltaY=-300)
    page.wait(f"scope.shown.lineage.position({chosen + 100})[0] !== {before[0]}")
    key(page, "0")
    assert page.value(f"scope.shown.lineage.position({chosen + 100})") == pytest.approx(before)


@pytest.mark.thorough
def test_panels_can_be_shown_alone_and_pages_fit_a_phone(browser: Page, tmp_path: Path):
    page = show(browser, document(recorded()), tmp_path, anchor="#panel=genealogy&gen=12")
    visible = "[...document.querySelectorAll('section.panel')].filter(one => !one.hidden).map(one => one.dataset.panel)"
    assert page.value(visible) == ["genealogy"]
    assert page.value("scope.shown.generation.value") == 12
    bottom = "document.querySelector('{}').getBoundingClientRect().{}"
    fits = f"{bottom.format('.lineage-hint', 'bottom')} <= {bottom.format('.timeline', 'top')}"
    assert page.value(fits)
    for _ in range(3):
        page.value("(document.querySelector('[aria-label=\"Zoom in\"]').click(), 0)")
    page.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=False)
    page.wait("document.querySelector('.lineage-canvas').width < 390")
    page.value("new Promise(done => setTimeout(done, 100))")
    x, y = page.value("scope.shown.lineage.position(scope.shown.lineage.chosen)")
    assert 0 <= x <= 390  # what was seen is still there
    assert 0 <= y <= 844
    assert page.value(fits)
    page.call("Emulation.clearDeviceMetricsOverride")
    key(page, "Escape")
    assert page.value(visible) == ["species", "champion", "fitness", "sizes", "genealogy"]
    page.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=False)
    page.value("new Promise(done => setTimeout(done, 100))")
    assert page.value("document.documentElement.scrollWidth") == 390
    wide = (
        "[...document.querySelectorAll('.evolution-board *')]"
        ".filter(one => one.getBoundingClientRect().right > 391).length"
    )
    assert page.value(wide) == 0
    unnamed = (
        "[...document.querySelectorAll('button, select, input, [role=application]')]"
        ".filter(one => !(one.getAttribute('aria-label') || one.textContent)).length"
    )
    assert page.value(unnamed) == 0


@pytest.mark.thorough
def test_fronts_grow_with_the_generations(browser: Page, tmp_path: Path):
    history = with_objectives()
    page = show(browser, document(history), tmp_path)
    fronts = fronts_of(history)
    dots = "document.querySelectorAll('.front circle').length"
    for event in (fronts[-1], fronts[0], fronts[7]):
        page.value(f"(scope.shown.generation.set({event.generation}), 0)")
        assert page.value(dots) == len(event.front)
    circle = "document.querySelector('.front circle').getBoundingClientRect()"
    x, y = page.value(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({circle})")
    tooltip = hover(page, x, y)
    assert "objective 1" in tooltip
    assert "objective 2" in tooltip
    genome = int(tooltip.split("genome ")[1].split("\n")[0])
    assert genome in fronts[7].genomes
    click_at(page, x, y)
    assert page.value("scope.shown.lineage.chosen") == genome
    assert page.value("document.querySelector('[data-panel=species]')") is None


@pytest.mark.thorough
def test_what_is_missing_is_told_and_names_stay_texts(browser: Page, tmp_path: Path):
    evil = "<img src=x onerror=alert(1)>"
    history = recorded()
    nodes = ((0, "input", evil, None), (1, "output", evil, 0.5))
    best = BestGenome(
        generation=0, genome=0, fitness=1.0, nodes=nodes, edges=((0, 1, float("inf"), True), (1, 1, 0.5, True))
    )
    page = show(browser, document([best, *history.generations]), tmp_path)
    assert page.value("document.querySelectorAll('.champion g.node').length") == 2
    assert page.value("document.querySelectorAll('img').length") == 0
    why = page.value("document.querySelector('[data-panel=genealogy] .empty').textContent")
    assert why.startswith("This run did not record who descends from whom")
    assert page.value("document.querySelector('.lineage-canvas')") is None


@pytest.mark.thorough
def test_a_run_is_shown_while_it_goes_on(browser: Page):
    feed = EvolutionFeed()
    server = Viewer(feed.document(), feed).serve()
    half, more = threading.Event(), threading.Event()

    def pause(event: Any) -> None:
        if event.event == "Evaluated" and event.generation == 9:
            half.set()
            more.wait(30)

    def run() -> None:
        evolve("xor", population=30, generations=25, fitness_threshold=9.0, seed=1, reporters=[feed, pause])

    worker = threading.Thread(target=run)
    try:
        open_page(browser, server.address)
        assert (
            browser.value("document.querySelector('.timeline-text').textContent") == "waiting for the first generation"
        )
        worker.start()
        assert half.wait(30)
        browser.wait("scope.shown.store.rows.length === 10")
        first = "document.querySelector('.stream path[data-class=\"0\"]')"
        browser.value(f"(window.node = {first}, 0)")
        assert browser.value("document.querySelector('.live').hidden") is False
        open_page(browser, server.address)  # a page that comes later asks for what it lacks
        browser.wait("scope.shown.store.rows.length === 10")
        browser.value(f"(window.node = {first}, 0)")
        more.set()
        browser.wait("scope.shown.store.rows.length === 25")
        assert browser.value(f"window.node === {first}") is True  # elements stay, they are not drawn anew
        browser.wait("document.querySelector('.live').hidden")
        assert browser.value("scope.shown.generation.value") == 24
        browser.wait("document.querySelector('.lineage-canvas').dataset.genomes === '750'")
        fitness = browser.value("scope.shown.store.rows.map(row => row.best)")
        assert np.all(np.diff(fitness) >= 0)
        browser.open("about:blank")
        browser.forget_complaints()
    finally:
        more.set()
        if worker.is_alive():
            worker.join()
        server.close()


@pytest.mark.thorough
def test_a_live_run_with_objectives_gets_its_front(browser: Page):
    feed = EvolutionFeed()
    server = Viewer(feed.document(), feed).serve()  # before anything is known of the run
    try:
        run = ParetoRun(Population(xor().configure(EvolutionConfig(population=20)), seed=3))
        front = run.evolve(SizedProblem(xor()), generations=4, reporters=[feed])
        open_page(browser, server.address)
        browser.wait("document.querySelectorAll('.front circle').length > 0")
        assert browser.value("document.querySelectorAll('.front circle').length") == len(front)
        assert browser.value("document.querySelector('[data-panel=species]')") is None
        browser.open("about:blank")
        browser.forget_complaints()
    finally:
        server.close()


@pytest.mark.thorough
def test_what_is_shown_can_be_saved(browser: Page, tmp_path: Path):
    for history, titles in ((recorded(), ["Species", "", ""]), (with_objectives(), ["Front", "", ""])):
        page = show(browser, document(history), tmp_path, anchor="#panel=genealogy")
        figures = page.value("[...document.querySelectorAll('.chart')].map(one => one.figureData())")
        assert [figure["title"] for figure in figures] == titles
        read = scope_figures({"volumetric.figure": 1, "title": "evolution", "figures": figures})
        best = [event.best for event in history.generations] or [event.front[-1][0] for event in fronts_of(history)]
        curves = read.figures[1]
        assert isinstance(curves, LinesFigure)
        assert curves.series[0].y == pytest.approx(best)
        svg = page.value("scope.shown.exports().svg()")
        kinds = [element.tag.rpartition("}")[2] for element in ET.fromstring(svg).iter()]
        assert kinds.count("path") > 30
        assert kinds.count("text") >= 2


def fronts_of(history: History) -> list[FrontEvaluated]:
    return [event for event in history.events if isinstance(event, FrontEvaluated)]
