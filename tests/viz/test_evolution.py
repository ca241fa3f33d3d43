"""Pictures of runs: what is drawn, and what is refused."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from tests.evolution.genomes import genome
from volumetric.errors import CheckpointError, SpecError, UnsupportedError
from volumetric.evolution import EvolutionConfig, JsonLines, Population
from volumetric.evolution.problems import xor
from volumetric.viz.curves import fitness_curves, species_stack
from volumetric.viz.drawing import draw_genome
from volumetric.viz.evolution import plot_run, read_history, similarity_of


@pytest.fixture
def home(tmp_path: Path) -> Path:
    run = Population(EvolutionConfig(population=30), seed=1)
    run.evolve(xor(), 6, reporters=[JsonLines(tmp_path / "history.jsonl")], checkpoint=tmp_path / "checkpoint.npz")
    return tmp_path


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


def test_every_node_and_connection_is_drawn() -> None:
    member = genome(
        [(0, 0, 2, 1.0, True), (1, 1, 3, -2.0, True), (2, 3, 2, 0.5, False), (3, 3, 3, 0.5, True)],
        hidden=[3], recurrent=True,
    )  # fmt: skip
    figure = draw_genome(member)
    texts = [text.get_text() for text in figure.axes[0].texts if text.get_text()]
    assert sorted(texts) == ["3\nsteep_sigmoid", "in 0", "in 1", "out 0\nsteep_sigmoid"]
    assert len(figure.axes[0].texts) == 4 + 4
    figure.savefig(io.BytesIO(), format="png")


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
    with pytest.raises(CheckpointError, match="no history"):
        plot_run(home)
