"""What values show in notebooks: whole HTML or SVG, with all text escaped, and no script but in frames of their own."""

from __future__ import annotations

import dataclasses
import html
import io
import logging
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from volumetric.analysis import scoring
from volumetric.base.notebook_cell import CellLine, in_notebook, report_work
from volumetric.base.notebook_html import PICTURES, ShowsFields, facts_table, framed_page, picture_of, text_page
from volumetric.base.text_table import TextTable
from volumetric.evolution.dna import extract_dna
from volumetric.evolution.dna_comparison import compare
from volumetric.generate.token_events import Generation, GenerationStats
from volumetric.layers import Dense
from volumetric.observe import fired, record
from volumetric.program import read_program
from volumetric.run.device import DeviceInfo, MemoryReport
from volumetric.train import train
from volumetric.viz import Heatmap, fitness_curves, species_stack, training_curves

EVIL = "<script>alert('x')</script>&"
VOID = {"img", "br", "hr", "meta", "input", "link"}
X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
NET = volumetric.sequential(2, 4, 1, activation="tanh")
STATS = GenerationStats(
    prompt_tokens=3,
    cached_tokens=1,
    generated_tokens=4,
    prompt_seconds=0.1,
    first_token_seconds=0.1,
    generation_seconds=0.5,
    peak_bytes=None,
    device_bytes=0,
    finish_reason="length",
)


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects texts and frames."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.frames: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag == "iframe":
            facts = dict(attrs)
            assert facts["sandbox"] == "allow-scripts"
            self.frames.append(facts["srcdoc"] or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def check(text: str) -> Page:
    """Return a parsed page without a script of its own."""
    page = Page(text)
    assert "script" not in page.tags
    return page


@dataclasses.dataclass
class Named(ShowsFields):
    name: str
    parts: Mapping[str, float]
    rest: int = 3


def recording(title: str = "") -> Any:
    cube = volumetric.cube(1, 2, 2, Dense(2, 2, "tanh"), neighbours=6)
    rows = np.ones((1, 6, 2), np.float32)
    params = volumetric.initialise(cube, seed=1)
    return record(volumetric.Clocked(cube), rows, params=params, device="reference", title=title)


def morphed() -> Any:
    params = volumetric.initialise(NET, seed=0)
    return NET.morph(params, "int8:row")


def evolved() -> Any:
    return volumetric.evolve("xor", generations=3, population=10, seed=1)


def dna() -> Any:
    a, b = (extract_dna(NET, volumetric.initialise(NET, seed=seed)) for seed in (0, 1))
    return compare(a, b)


SHOWN: Mapping[str, tuple[Callable[[], Any], str]] = {
    "network": (lambda: NET, "dense, tanh"),
    "clocked": (lambda: volumetric.Clocked(NET), "start"),
    "params": (lambda: volumetric.initialise(NET, seed=0), "float32"),
    "training": (lambda: train(NET, X, X[:, :1], epochs=2, device="reference"), "loss by epoch"),
    "evolution": (evolved, "best by generation"),
    "dna": (dna, "similarity"),
    "morph": (morphed, "NMSE"),
    "devices": (volumetric.list_devices, "reference"),
    "device": (lambda: DeviceInfo(name=EVIL, kind="cpu", description="a"), EVIL),
    "memory": (lambda: MemoryReport(weights=123456, scratch=0, state_per_token=1), "123,456"),
    "layer": (lambda: Dense(2, 3, "tanh"), "out features"),
    "dtype": (lambda: volumetric.parse_dtype("int4"), "int4"),
    "evaluation": (lambda: scoring.evaluate([1.0, 2.0], [1.0, 3.0]), "score"),
    "generation": (
        lambda: Generation(text=f"a\n{EVIL}", token_ids=(1,), finish_reason="length", stats=STATS),
        f"a\n{EVIL}",
    ),
    "fields": (lambda: Named(name=EVIL, parts={EVIL: 0.123456789}), f"{EVIL}: 0.123457"),
    "heat map": (
        lambda: Heatmap(values=np.array([[0.5, -1], [np.nan, 1]]), rows=["a", EVIL], columns=["c", EVIL], title=EVIL),
        EVIL,
    ),
    "table": (lambda: TextTable(title=EVIL, columns=(EVIL,), rows=((EVIL,),), notes=(EVIL,)), EVIL),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_a_value_shows_itself_as_html(name: str) -> None:
    make, text = SHOWN[name]
    assert any(text in part for part in check(make()._repr_html_()).texts)


def test_helpers_escape_names_values_and_titles() -> None:
    page = check(facts_table([(EVIL, EVIL)], title=EVIL) + text_page(EVIL, EVIL))
    assert page.texts.count(EVIL) == 5
    assert EVIL not in framed_page(EVIL, title=EVIL, height=3)
    assert check(framed_page(EVIL, title=EVIL, height=3)).frames == [EVIL]


def test_fields_with_their_default_value_are_left_out() -> None:
    assert "rest" not in Named(name="a", parts={})._repr_html_()
    assert "rest" in Named(name="a", parts={}, rest=4)._repr_html_()


def test_a_recording_plays_in_a_frame() -> None:
    [film] = check(recording(title=EVIL)._repr_html_()).frames
    page = Page(film)
    assert "script" in page.tags
    assert page.texts.count(EVIL) == 1  # the title; the script makes the heading
    assert film.count(EVIL) == 0
    assert repr(recording()) == "<Recording: 6 frames of 4 nodes>"


def test_a_genome_and_figures_are_svg_drawings() -> None:
    pytest.importorskip("matplotlib")
    result = evolved()
    drawings = [result.champion, fitness_curves(result.history), species_stack(result.history)]
    drawings.append(training_curves(train(NET, X, X[:, :1], epochs=2, device="reference").history, title=EVIL))
    bundle: dict[str, str] = {}
    for drawing in drawings:
        bundle = drawing._repr_mimebundle_()
        root = ET.fromstring(bundle["image/svg+xml"])
        assert root.tag.endswith("svg")
        assert not [node for node in root.iter() if node.tag.endswith("script")]
        assert bundle == drawing._repr_mimebundle_()  # a notebook that runs again does not change
        assert bundle["text/plain"].startswith("<")
    assert html.escape(EVIL, quote=False) in bundle["image/svg+xml"]


def test_a_program_and_what_fired_are_svg_drawings() -> None:
    pytest.importorskip("matplotlib")
    path = Path(__file__).parents[2] / "examples" / "echo.program.json"
    network = read_program(path).network()
    params, x = volumetric.initialise(network, seed=0), np.ones((1, 5, *network.input_shape), np.float32)
    shown = fired(network, x, params=params, device="reference")
    for value in (shown.program, shown):
        bundle = value._repr_mimebundle_()
        assert ET.fromstring(bundle["image/svg+xml"]).tag.endswith("svg")
    assert repr(shown).startswith("<Firing: 5 rows of 1 streams")


def test_without_matplotlib_the_table_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    result = evolved()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "volumetric.viz.picture_figure", raising=False)
    assert "img" not in check(result._repr_html_()).tags
    assert list(result.champion._repr_mimebundle_()) == ["text/plain"]
    assert picture_of("no such kind", 1) == ""


def test_installed_packages_register_the_pictures() -> None:
    assert set(PICTURES.names()) >= {"firing", "genome", "program", "recording"}


class _Display:
    """What a kernel's display does: each id has its last version."""

    def __init__(self) -> None:
        self.versions: list[list[dict[str, str]]] = []

    def __call__(self, bundle: dict[str, str], *, raw: bool, display_id: bool) -> _Display:
        assert raw
        assert display_id
        self.versions.append([bundle])
        return self

    def update(self, bundle: dict[str, str], *, raw: bool) -> None:
        self.versions[-1].append(bundle)


def stand_in_cell(monkeypatch: pytest.MonkeyPatch) -> _Display:
    """Let stderr be that of a notebook's cell; for the body of a test, since pytest sets stderr before it."""
    display = pytest.importorskip("IPython.display")
    shown = _Display()
    monkeypatch.setattr(display, "display", shown)
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    monkeypatch.setattr("sys.stderr", stream)
    return shown


def test_a_line_of_a_cell_replaces_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = stand_in_cell(monkeypatch)
    line = CellLine()
    line.show(EVIL, 0.5)
    line.show("done")
    [[first, last]] = cell.versions
    assert EVIL in check(first["text/html"]).texts
    assert "progress" in Page(first["text/html"]).tags
    assert last["text/plain"] == "done"
    assert "progress" not in Page(last["text/html"]).tags


def test_training_and_evolution_show_one_line_of_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = stand_in_cell(monkeypatch)
    assert in_notebook()
    train(NET, X, X[:, :1], epochs=3, device="reference")
    volumetric.evolve("xor", generations=2, population=10, seed=1)
    first, second = cell.versions
    assert first[-1]["text/plain"].startswith("epoch 3/3  loss ")
    assert second[-1]["text/plain"].startswith("generation 2/2 ")
    assert sys.stderr.getvalue() == ""  # pyright: ignore[reportAttributeAccessIssue]


def test_work_is_logged_and_shown_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cell = stand_in_cell(monkeypatch)
    logger = logging.getLogger("volumetric.test")
    with caplog.at_level(logging.INFO, logger="volumetric.test"):
        for done in (1, 2):
            report_work(logger, f"compiling {done} of 2", (done, 2))
        report_work(logger, "compiled", None)
        report_work(logger, "reading", (1, 4))
        report_work(logger, "read", None)
    assert [[bundle["text/plain"] for bundle in line] for line in cell.versions] == [
        ["compiling 1 of 2", "compiling 2 of 2", "compiled"],
        ["reading", "read"],
    ]
    assert [record.__dict__["progress"] for record in caplog.records] == [(1, 2), (2, 2), None, (1, 4), None]
