"""Pictures of a run of evolution from the files of its directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.evolution.dna import extract_dna
from volumetric.evolution.dna_comparison import similarity_matrix
from volumetric.evolution.evolution_job import NodeNames, read_job
from volumetric.evolution.generation_run import Run
from volumetric.evolution.genome import Genome
from volumetric.evolution.grids.grid_population import GridPopulation
from volumetric.evolution.population import Population
from volumetric.evolution.species import distances
from volumetric.observe.firing import watchable
from volumetric.viz.figure import save_figure
from volumetric.viz.heatmap import Heatmap
from volumetric.viz.network_drawing import draw_genome, draw_network
from volumetric.viz.program_drawing import draw_program
from volumetric.viz.run_curves import fitness_curves, fronts, species_stack

if TYPE_CHECKING:
    pass

FORMS = ("png", "svg", "pdf")
_MOST = 64
"""Maximum number of genomes in a similarity matrix."""


def plot_run(home: Path, form: str = "png") -> list[Path]:
    """Draw fitness, species, champion and similarity of the population, or fronts, into the directory of a run.

    Parameters
    ----------
    home : directory of ``volumetric evolve``
    form : "png", "svg" or "pdf"

    Returns
    -------
    The files written

    Raises
    ------
    CheckpointError : the directory holds no run, or a damaged one
    UnsupportedError : the form is unknown, or matplotlib is missing
    """
    if form not in FORMS:
        raise UnsupportedError(f"cannot draw {form!r}", hint="use one of " + ", ".join(FORMS))
    generations = read_history(home / "history.jsonl")
    if generations and "front" in generations[0]:
        return [save_figure(fronts(generations), home / f"front.{form}")]
    run = load_any(home / "checkpoint.npz")
    drawn = {"fitness": fitness_curves(generations), "species": species_stack(generations)}
    if run.champion is not None:
        genome, title = run.champion.genome, f"genome {run.champion.id}, fitness {run.champion.fitness:.6g}"
        if isinstance(genome, Genome):
            names = read_job(home / "config.toml").names if (home / "config.toml").is_file() else NodeNames()
            drawn["champion"] = draw_genome(genome, title, inputs=names.inputs, outputs=names.outputs)
        else:
            spec = watchable(genome.network) if len(genome.network.layers) == 1 else None
            drawn["champion"] = (
                draw_network(genome.network, title) if spec is None else draw_program(spec.program, title)
            )
    paths = [save_figure(figure, home / f"{name}.{form}") for name, figure in drawn.items()]
    similarity = home / f"similarity.{form}"
    similarity_of(run).save(similarity)
    return [*paths, similarity]


def read_history(path: Path) -> list[dict[str, Any]]:
    """Return the events of each generation in the history."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [line for line in lines if line["event"] in ("Evaluated", "FrontEvaluated")]
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}", hint="pass a run's directory") from None
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is not the history of a run: {error}") from None


def load_any(path: Path) -> Run[Any, Any]:
    """Return the run of a checkpoint, for any kind of genome."""
    try:
        return Population.load(path)
    except CheckpointError as first:
        try:
            return GridPopulation.load(path)
        except CheckpointError:
            raise first from None


def similarity_of(run: Run[Any, Any]) -> Heatmap:
    """Return the similarity of the best genomes of the current generation, by species, then from best to worst.

    Grids are compared by DNA. Genomes of nodes and connections have a compatibility distance δ, shown as
    ``1 / (1 + δ)``.
    """
    fitness = run.progress.fitness
    worth = np.zeros(len(run.pool)) if fitness is None else run.sign * fitness
    best = np.argsort(-worth, kind="stable")[:_MOST]
    rows = best[np.argsort(run.species.member[best], kind="stable")].tolist()
    genomes = [run.pool.genome(row) for row in rows]
    if isinstance(run, Population):
        values, what = 1 / (1 + distances(genomes, run.config)), "similarity 1/(1 + δ)"
    else:
        values, what = similarity_matrix([extract_dna(g.network, g.params) for g in genomes]), "similarity of DNA"
    species = run.species.member[rows].tolist()
    names = [f"s{run.species.ids[run.species.member[row]]} #{row}" for row in rows]
    title = f"{what} of the best {len(rows)} of generation {run.generation}"
    starts = [place for place in range(len(rows)) if place == 0 or species[place] != species[place - 1]]
    apart = [place for i, place in enumerate(starts) if i == 0 or place - starts[i - 1] > 1 or len(rows) <= 32]
    ticks = {place: f"species {run.species.ids[species[place]]}" for place in apart}
    return Heatmap(
        values=np.asarray(values, np.float64),
        rows=names,
        columns=names,
        title=title,
        ticks=ticks,
        note="labels mark the first genome of a species, if there is room; its genomes go from best to worst",
    )
