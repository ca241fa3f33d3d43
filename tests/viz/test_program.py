"""Pictures of programs, and of what fired: all is in them, and nothing lies on one another."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.cli.test_program import PROGRAM
from volumetric.base.errors import SpecError
from volumetric.cli import main
from volumetric.loaders import save_native
from volumetric.network import initialise
from volumetric.observe import fired
from volumetric.program import Canvas, Edge, Program, Region, save_program
from volumetric.viz import draw_firing, draw_program
from volumetric.viz.figure import save_figure
from volumetric.viz.program_labels import Spot, edge_label, fold_text


def texts(figure: Any) -> str:
    return "\n".join(text.get_text() for axes in figure.axes for text in axes.texts)


def boxes(figure: Any) -> list[Spot]:
    from matplotlib.patches import FancyBboxPatch

    found = [patch.get_bbox().bounds for patch in figure.axes[0].patches if isinstance(patch, FancyBboxPatch)]
    return [(float(x), float(y), float(w), float(h)) for x, y, w, h in found]


@pytest.mark.thorough
def test_a_program_is_drawn_with_all_that_it_has() -> None:
    figure = draw_program(PROGRAM, "an agent")
    told = texts(figure)
    for word in ("eye", "belief", "residual", "→ pixels", "motor →", "when err.prediction > 0.25", "every(2), lag 2"):
        assert word in told
    legend = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"observation", "state", "residual", "action", "cross", "copy", "writes: replace", "writes: add"} <= legend
    together = [len(each.get_paths()) for each in figure.axes[0].collections]  # lines of a style, and their heads
    assert sum(together) / 2 == len(PROGRAM.edges)


def test_boxes_have_room_for_their_text_and_lie_apart() -> None:
    rng = np.random.default_rng(0)
    regions = {f"r{i}": Region(((2 * (i // 4), 2 * (i // 4) + 2), (i % 4, i % 4 + 1))) for i in range(16)}
    edges = [Edge(f"r{a}", f"r{b}", when="every(4)") for a, b in rng.integers(0, 16, (30, 2))]
    figure = draw_program(Program(Canvas(1, (8, 4), 8, regions), edges))
    found = boxes(figure)
    assert len(found) == 16
    for (ax, ay, aw, ah), (bx, by, bw, bh) in combinations(found, 2):
        assert ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay
    axes = figure.axes[0]
    figure.draw_without_rendering()
    frames = [axes.transData.transform([(x, y), (x + w, y + h)]) for x, y, w, h in found]
    for text in axes.texts:
        if re.fullmatch(r"r\d+", text.get_text()):
            extent = text.get_window_extent()
            assert any(
                low[0] <= extent.x0 and extent.x1 <= high[0] and high[1] <= extent.y0 and extent.y1 <= low[1]
                for low, high in frames
            )


def among_all() -> Program:
    """Eight regions, each of which writes each other one on one condition that is long, and itself on several."""
    regions = {f"area{i}": Region(((2 * (i // 4), 2 * (i // 4) + 2), (2 * (i % 4), 2 * (i % 4) + 2))) for i in range(8)}
    edges = [
        Edge(a, b, when="every(2)" if a == b else "area0.change > 0.25 && every(3)", lag=int(b[-1]) + 1)
        for a in regions
        for b in regions
    ]
    return Program(Canvas(1, (4, 8), 16, regions), edges)


def long_line() -> Program:
    regions = {f"r{i}": Region(((2 * i, 2 * i + 2),)) for i in range(30)}
    return Program(Canvas(1, (60,), 16, regions), [Edge(f"r{i}", f"r{i + 1}", when="every(2)") for i in range(29)])


@pytest.mark.thorough
@pytest.mark.parametrize("program", [PROGRAM, among_all(), long_line()], ids=["agent", "among all", "line"])
def test_no_words_hide_one_another_or_leave_the_picture(program: Program) -> None:
    figure = draw_program(program, "a title that is somewhat longer than a narrow picture is wide.program.json")
    figure.draw_without_rendering()
    [legend], page = figure.legends, figure.bbox
    words = [text for axes in figure.axes for text in axes.texts if not text.get_text().isdigit()]
    words += [*figure.texts, *legend.get_texts()]
    extents = [(text.get_text(), text.get_window_extent()) for text in words]
    for said, extent in extents:
        assert page.x0 <= extent.x0 < extent.x1 <= page.x1, said
        assert page.y0 <= extent.y0 < extent.y1 <= page.y1, said
    for (one, a), (other, b) in combinations(extents, 2):
        assert not a.overlaps(b), (one, other)


@pytest.mark.parametrize("program", [among_all(), long_line()], ids=["among all", "line"])
def test_each_condition_stands_beside_its_arrow_or_under_its_number(program: Program) -> None:
    figure = draw_program(program)
    notes = [text.get_text().partition(": ") for text in figure.legends[0].get_texts()]
    numbers = {number: note for number, _, note in notes if number.isdigit()}
    words = [text.get_text() for text in figure.axes[0].texts]
    beside = Counter(numbers.get(said, " ".join(said.split())) for said in words)
    for label, count in Counter(edge_label(edge) for edge in program.edges).items():
        assert beside[label] >= count


def test_a_strip_is_cut_into_bands() -> None:
    wide, high = draw_program(long_line()).get_size_inches()
    assert 0.5 < wide / high < 2
    tall = {f"r{i}": Region(((2 * i, 2 * i + 2), (0, 3))) for i in range(30)}
    figure = draw_program(Program(Canvas(1, (60, 3), 16, tall), [Edge("r0", "r29")]))
    wide, high = figure.get_size_inches()
    assert 0.5 < wide / high < 2
    assert len(boxes(figure)) == 30


@pytest.mark.parametrize(("shape", "frames"), [((6,), 1), ((6,), 6), ((2, 3, 4), 2)])
def test_any_canvas_can_be_drawn(shape: tuple[int, ...], frames: int) -> None:
    halves = [(*((0, side) for side in shape[:-1]), (at, at + shape[-1] // 2)) for at in (0, shape[-1] // 2)]
    regions = {"a": Region(halves[0]), "b": Region(((0, frames), *halves[1]), family="goal")}
    figure = draw_program(Program(Canvas(frames, shape, 4, regions), [Edge("a", "b", weight=0), Edge("b", "b")]))
    assert "goal, deterministic" in texts(figure)


def test_clocks_are_folded_without_loss() -> None:
    clock = "err.prediction > 0.25 || every(8) && !on(now) || cooldown(a.b > 1, 3)"
    assert " ".join(line.strip() for line in fold_text(clock)) == clock


@pytest.mark.thorough
def test_what_fired_is_drawn_row_by_row(tmp_path: Path) -> None:
    network = PROGRAM.network()
    x = np.random.default_rng(0).standard_normal((2, 12, 192)).astype(np.float32)
    resets = np.zeros((2, 12), np.int64)
    resets[0, 5] = 1
    found = fired(network, x, params=initialise(network), device="cpu", resets=resets)
    figure = draw_firing(found, "a run")
    regions, edges, meters = figure.axes
    assert [label.get_text() for label in regions.get_yticklabels()] == ["eye", "belief", "err", "act"]
    assert len(edges.get_yticklabels()) == len(PROGRAM.edges)
    [picture] = regions.images
    drawn = (np.asarray(picture.get_array()) < 0.9).any(-1)
    np.testing.assert_array_equal(drawn, found.regions[0].T > 0)
    np.testing.assert_allclose(np.asarray(meters.lines[0].get_ydata(), np.float64), found.meters["err.prediction"][0])
    few = draw_firing(found, meters=[], most=2)
    assert len(few.axes) == 2
    assert f"{len(PROGRAM.edges) - 2} more" in few.axes[1].get_title(loc="left")
    with pytest.raises(SpecError, match=r"no meter 'x\.y'"):
        draw_firing(found, meters=["x.y"])
    with pytest.raises(SpecError, match="no stream 2"):
        draw_firing(found, stream=2)
    save_figure(draw_firing(found, stream=1), tmp_path / "fired.png")


@pytest.mark.thorough
def test_programs_and_runs_are_drawn_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_program("x.program.json", replace(PROGRAM, edges=PROGRAM.edges[:3]))
    assert main(["program", "draw", "x.program.json"]) == 0
    assert "<svg" in Path("x.svg").read_text()
    network = PROGRAM.network()
    save_native("model", network, initialise(network))
    np.savez("rows.npz", input=np.zeros((2, 9, 192), np.float32))
    run = ["program", "draw", "model", "--in", "rows.npz", "-o", "fired.png", "--device", "cpu"]
    assert main([*run, "--meters", "err.prediction", "--row", "1"]) == 0
    assert Path("fired.png").read_bytes()[:4] == b"\x89PNG"
    assert "9 rows drawn in fired.png" in capsys.readouterr().err
    for wrong in (["--row", "2"], ["--meters", "no.such"], ["-o", "x.txt"], ["--device", "cqu"]):
        assert main([*run, *wrong]) in (1, 2)
    assert main(["program", "draw", "x.program.json", "--row", "1"]) == 2
    assert main(["program", "check", "x.program.json", "--in", "rows.npz"]) == 2
    assert "Traceback" not in capsys.readouterr().err
