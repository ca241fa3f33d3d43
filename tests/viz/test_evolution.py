"""Pictures of runs: what is drawn, and what is refused."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from tests.evolution.genomes import genome
from volumetric import Coord, Grid, Network
from volumetric.base.errors import CheckpointError, SpecError, UnsupportedError
from volumetric.builders import sequential, stack
from volumetric.evolution import EvolutionConfig, JsonLines, Population
from volumetric.evolution.problems import xor
from volumetric.layers import Dense, LayerSpec, Parallel, Residual, Sequential
from volumetric.network.blueprint import blueprint
from volumetric.network.grid import Link
from volumetric.viz.diagram import lay_out
from volumetric.viz.network_drawing import draw_genome, draw_network
from volumetric.viz.run_curves import fitness_curves, species_stack
from volumetric.viz.run_plots import plot_run, read_history, similarity_of


@pytest.fixture
def home(tmp_path: Path) -> Path:
    run = Population(EvolutionConfig(population=30), seed=1)
    run.evolve(xor(), 6, reporters=[JsonLines(tmp_path / "history.jsonl")], checkpoint=tmp_path / "checkpoint.npz")
    return tmp_path


@pytest.mark.thorough
def test_curves_show_what_the_history_says(home: Path) -> None:
    generations = read_history(home / "history.jsonl")
    lines = {line.get_label(): line for line in fitness_curves(generations).axes[0].get_lines()}
    assert set(lines) == {"best", "mean", "worst"}
    np.testing.assert_allclose(np.asarray(lines["best"].get_ydata()), [event["best"] for event in generations])


def test_species_fill_the_population(home: Path) -> None:
    generations = read_history(home / "history.jsonl")
    axes = species_stack(generations).axes[0]
    assert axes.get_ylim() == (0, 30)
    assert len(axes.collections) == len({key for event in generations for key in event["species"]})
    species_stack(generations[:1])


MEMBER = genome(
    [(0, 0, 2, 1.0, True), (1, 1, 3, -2.0, True), (2, 3, 2, 0.5, False), (3, 3, 3, 0.25, True)],
    hidden=[3], recurrent=True,
)  # fmt: skip


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts if text.get_text()]


def lines(figure: Any) -> list[Any]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, FancyArrowPatch)]


def test_every_node_and_connection_is_drawn_with_its_weight() -> None:
    figure = draw_genome(MEMBER)
    boxes = ["in 0", "in 1", "node 3\nsteep_sigmoid\nbias 0", "out 0\nsteep_sigmoid\nbias 0"]
    assert sorted(texts(figure)) == sorted([*boxes, "1", "-2", "0.5", "0.25"])
    wide = [line.get_linewidth() for line in lines(figure)]
    assert max(wide) == wide[1]  # -2 is the strongest
    assert [line.get_linestyle() for line in lines(figure)].count(":") == 1
    figure.savefig(io.BytesIO(), format="png")


def test_a_legend_tells_colours_widths_and_dots() -> None:
    labels = {text.get_text() for text in draw_genome(MEMBER).legends[0].get_texts()}
    assert labels == {"positive weight", "negative weight", "|weight| 0.2", "|weight| 2", "disabled connection"}
    chain = draw_network(sequential(2, 1, hidden=(3,)))
    assert not chain.legends
    assert [text.split("\n")[0] for text in texts(chain)] == ["input", "0.0.0.0", "1.0.0.0"]


def test_nodes_have_the_names_that_they_are_given() -> None:
    shown = texts(draw_genome(MEMBER, inputs=["x" * 40, "y"], outputs=["z"]))
    assert "y" in shown
    assert any(text.startswith("z\n") for text in shown)
    assert any("…" in text and len(text) < 25 for text in shown)
    with pytest.raises(SpecError, match="1 names for 2 inputs"):
        draw_genome(MEMBER, inputs=["x"])


def test_no_line_runs_behind_a_box() -> None:
    config = EvolutionConfig.from_dict(
        {"genome": {"inputs": 4, "outputs": 2}, "mutation": {"add_node": 0.4, "add_connection": 0.6}}
    )
    best = Population(config, seed=3).evolve(lambda genome: genome.hidden, 8).genome
    figure = draw_genome(best)
    axes = figure.axes[0]
    boxes = [patch for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    assert len(boxes) == 4 + len(best.nodes)
    for line in lines(figure):
        path = line.get_path().interpolated(20).to_polygons(closed_only=False)[0]
        ends = path[0], path[-1]
        for box in boxes:
            x, y, wide, high = box.get_x(), box.get_y(), box.get_width(), box.get_height()
            inside = (x < path[:, 0]) & (path[:, 0] < x + wide) & (y < path[:, 1]) & (path[:, 1] < y + high)
            at_its_end = any(x - 0.2 < ex < x + wide + 0.2 and y - 0.2 < ey < y + high + 0.2 for ex, ey in ends)
            assert at_its_end or not inside.any()


def test_containers_are_opened() -> None:
    inner = Sequential(layers=(Dense(in_features=4, out_features=4, activation="relu"), Residual(source="input")))
    network = Network(
        grid=Grid(3),
        layers={
            Coord(0): Dense(in_features=2, out_features=4),
            Coord(1): Parallel(branches=(Dense(in_features=4, out_features=4), inner), combine="avg"),
            Coord(2): Dense(in_features=4, out_features=1),
        },
        links=(Link(kind="activation", source=Coord(0), target=Coord(2), combine="add"),),
        input_shape=(2,),
        input_dtype="float32",
    )
    figure = draw_network(network)
    shown = [text.split("\n")[0] for text in texts(figure)]
    assert sorted(shown) == sorted(
        [
            "input",
            "0.0.0.0",
            "dense 4",
            "dense 4 relu",
            "residual",
            "avg",
            "2.0.0.0",
            "sequential",
            "1.0.0.0 parallel → 4",
        ]
    )
    styles = [line.get_linestyle() for line in lines(figure)]
    assert (styles.count(":"), styles.count("-")) == (2, 7)  # the link and the residual; the chain and the branches


def test_a_layout_keeps_boxes_apart_and_lines_between_them() -> None:
    columns = {"a": 0, "b": 0, "c": 5, "d": 5, "e": 9}
    layout = lay_out(columns, [("a", "c"), ("b", "d"), ("a", "e"), ("c", "e"), ("e", "b"), ("d", "d")])
    assert layout.column == {"a": 0, "b": 0, "c": 1, "d": 1, "e": 2}  # columns without boxes are left out
    assert [len(way) for way in layout.ways] == [0, 0, 1, 0, 1, 0]
    middle = sorted([layout.row["c"], layout.row["d"], layout.ways[2][0][1], layout.ways[4][0][1]])
    assert min(b - a for a, b in itertools.pairwise(middle)) > 0.44
    assert abs(layout.row["a"] - layout.row["b"]) >= 1


def test_similarity_is_one_on_the_diagonal_and_by_species(home: Path) -> None:
    drawn = similarity_of(Population.load(home / "checkpoint.npz"))
    np.testing.assert_array_equal(np.diag(drawn.values), 1.0)
    species = [name.partition(" ")[0] for name in drawn.rows]
    assert len(list(dict.fromkeys(species))) == sum(a != b for a, b in zip(species, ["", *species], strict=False))


def test_what_cannot_be_drawn(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="jpg"):
        plot_run(home, "jpg")
    with pytest.raises(CheckpointError, match="cannot read"):
        plot_run(tmp_path / "none")
    with pytest.raises(SpecError, match="no generation"):
        fitness_curves([])
    (home / "history.jsonl").write_text("{}\n")
    with pytest.raises(CheckpointError, match="is not the history"):
        plot_run(home)


def test_links_from_later_layers_are_drawn() -> None:
    dense = Dense(in_features=3, out_features=3)
    links = (
        Link(kind="activation", source=Coord(1), target=Coord(0), delay=1),
        Link(kind="activation", source=Coord(1), target=Coord(1), combine="add", delay=2),
    )
    network = Network(
        grid=Grid(2), layers={Coord(0): dense, Coord(1): dense}, links=links, input_shape=(3,), input_dtype="float32"
    )
    shown = [text.split("\n")[0] for text in texts(draw_network(network))]
    assert {"input", "0.0.0.0", "1.0.0.0"} <= set(shown)
    assert [layer.output for layer in blueprint(network).layers] == [(-1, 3), (-1, 3)]


def test_a_grid_is_drawn_as_its_slabs() -> None:
    coords = [Coord(z, y, x) for z in range(4) for y in range(4) for x in range(4)]
    dense = Dense(in_features=3, out_features=3, activation="tanh")
    layers: dict[Coord, LayerSpec] = dict.fromkeys(coords, dense)
    layers[Coord(3, 3, 3)] = Sequential(
        layers=(Dense(in_features=3, out_features=2), Dense(in_features=2, out_features=1))
    )
    link = Link(kind="activation", source=Coord(2), target=Coord(0, 1, 1), combine="add", delay=1)
    network = Network(grid=Grid(4, 4, 4), layers=layers, links=(link,), input_shape=(3,), input_dtype="float32")
    figure = draw_network(network)
    wide, high = figure.get_size_inches()
    assert 0.5 < wide / high < 2
    shown = texts(figure)
    assert shown.count("dense tanh → 3") == 63
    assert [text for text in shown if text.startswith("depth")] == [f"depth {z}" for z in range(4)]
    assert {"sequential → 1", "  dense"} <= set(shown)
    assert {"input", "output"} <= set(shown)
    styles = [line.get_linestyle() for line in lines(figure)]
    assert styles.count(":") == 1
    assert len(styles) == 63 + 1  # the chain and the link


def test_long_chains_are_no_strips() -> None:
    figure = draw_network(sequential(4, 2, hidden=(4,) * 40))
    wide, high = figure.get_size_inches()
    assert 0.4 < wide / high < 2.5


def test_what_scaffolds_hold_is_drawn() -> None:
    shown = [part for text in texts(draw_network(stack(8, ["MC"], inputs=3))) for part in text.split("\n")]
    assert {"mlstm", "causal_conv1d", "pre_up_gated", "column"} <= set(shown)
