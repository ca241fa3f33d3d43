"""Runs of evolution as views: every source, what old files lack, and bounds."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.evolution.recorded_runs import SMALL, recorded, recorded_front, recorded_grids
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.cli import main
from volumetric.evolution import (
    EvolutionConfig,
    History,
    JsonLines,
    Population,
    evolve,
)
from volumetric.evolution.genealogy import BestGenome, Births
from volumetric.evolution.problems import xor
from volumetric.evolution.reporters import Evaluated
from volumetric.scope import ScopeDocument
from volumetric.scope.evolution_feed import EvolutionFeed, FollowedEvolution
from volumetric.scope.evolution_rows import EvolutionRows, champion_row
from volumetric.scope.evolution_thinning import OTHERS, thin_births, thin_champions, thin_species
from volumetric.scope.evolution_view import evolution_view, is_evolution, view_of_rows
from volumetric.scope.page import scope_page


def test_a_view_has_the_numbers_of_the_events():
    history = recorded()
    data = evolution_view(history).data
    events = history.generations
    numbers = data["generations"]
    assert numbers["best"].tolist() == [event.best for event in events]
    assert numbers["generation"].tolist() == list(range(10))
    species = data["species"]
    for i, event in enumerate(events):
        at = slice(species["at"][i], species["at"][i + 1])
        assert dict(zip(species["ids"][at].tolist(), species["sizes"][at].tolist(), strict=True)) == event.species
        assert species["best"][at].max() == np.float32(event.best)
    births = data["births"]
    assert births["at"].tolist() == list(range(0, 301, 30))
    assert (births["parents"][30:, 0] // 30 == births["ids"][30:] // 30 - 1).all()
    sizes = births["sizes"][:30].mean(axis=0)
    assert numbers["meanConnections"][0] == sizes[1]
    assert data["whyNoGenealogy"] == data["whyNoChampions"] == ""
    assert data["champions"][-1]["genome"] <= events[-1].best_genome


def test_results_and_old_files_are_shown_without_a_genealogy(tmp_path: Path):
    result = evolve("xor", population=30, generations=5, seed=1)
    data = evolution_view(result).data
    assert data["births"] is None
    assert "did not record who descends" in data["whyNoGenealogy"]
    best = result.population.champion
    assert best is not None
    assert [one["genome"] for one in data["champions"]] == [best.id]
    with_all = evolution_view(evolve("xor", population=30, generations=5, seed=1, genealogy=True)).data
    assert with_all["births"] is not None
    path = tmp_path / "history.jsonl"
    Population(SMALL, seed=1).evolve(xor(), 4, reporters=[JsonLines(path)])
    data = evolution_view(path).data
    assert data["rows"] == 4
    assert data["births"] is None
    assert data["champions"] == []
    assert "genealogy=True" in data["whyNoChampions"]
    assert is_evolution(path)
    assert is_evolution(tmp_path)
    assert not is_evolution(tmp_path / "none")
    assert not is_evolution(Path(__file__))


def test_directories_of_runs_are_shown(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text("population = 20\ngenerations = 3\nfitness_threshold = 9.0\n")
    assert main(["evolve", "job.toml", "--quiet"]) == 0
    old = evolution_view("job").data
    assert old["rows"] == 3
    assert old["births"] is None
    assert len(old["champions"]) == 1
    assert main(["evolve", "job.toml", "--out", "full", "--set", "genealogy=true", "--quiet"]) == 0
    full = evolution_view(Path("full")).data
    assert len(full["births"]["ids"]) == 60
    assert full["champions"]
    assert main(["evolve", "--resume", "full", "--generations", "5", "--quiet"]) == 0
    assert len(evolution_view(Path("full")).data["births"]["ids"]) == 100
    last = evolution_view(Path("full") / "checkpoint.npz").data
    assert last["rows"] == 1
    assert last["births"] is None
    assert last["generations"]["generation"].tolist() == [4]
    assert main(["evolve", "job.toml", "--out", "front", "--set", 'search="nsga2"', "--quiet"]) == 0
    capsys.readouterr()
    front = evolution_view(Path("front")).data
    assert front["fronts"]["points"].shape[1] == 2
    assert front["species"] is None
    assert evolution_view(Path("front") / "checkpoint.npz").data["fronts"] is not None
    (Path("full") / "history.jsonl").write_text("{}\n")
    with pytest.raises(CheckpointError, match="line 1"):
        evolution_view("full")
    (Path("full") / "history.jsonl").write_text("")
    with pytest.raises(SpecError, match="no event of an evolution run"):
        evolution_view("full")
    with pytest.raises(CheckpointError, match="there is no"):
        evolution_view("nowhere")
    with pytest.raises(SpecError, match="int is no run of evolution"):
        evolution_view(3)  # pyright: ignore[reportArgumentType]  (what is refused)
    with pytest.raises(SpecError, match="no generation was evaluated"):
        evolution_view([])


def test_fronts_and_grids_are_views():
    run, history = recorded_front(4)
    data = evolution_view(history).data
    assert data["species"] is None
    ends = data["fronts"]["points"][data["fronts"]["at"][-2] :]
    assert sorted(map(tuple, ends.tolist())) == sorted(point.objectives for point in run.front)
    assert data["generations"]["best"][-1] == max(point.objectives[0] for point in run.front)
    assert evolution_view(run).data["rows"] == 1
    grids, history = recorded_grids()
    data = evolution_view(history).data
    assert data["generations"]["hidden"].tolist() == [event.best_hidden for event in history.generations]
    assert {node[1] for node in data["champions"][0]["nodes"]} == {"input", "hidden", "output"}
    assert "dense at" in data["champions"][0]["nodes"][1][2]
    assert evolution_view(grids).data["champions"]


def test_a_thinned_genealogy_has_whole_lines_of_the_last_generation():
    rows = EvolutionRows()
    rows.add_all(recorded(generations=30).events)
    births, notes = [row["births"] for row in rows.rows()], list[str]()
    best = [row["bestGenome"] for row in rows.rows()]
    thin = thin_births(births, best, notes, most=300)
    assert len(thin["ids"]) <= 330
    assert "of 900 genomes" in notes[0]
    parents_of = dict(zip(thin["ids"].tolist(), thin["parents"].tolist(), strict=True))
    assert set(best) <= set(parents_of)
    assert thin["population"].tolist() == [30] * 30
    at = best[-1]
    for generation in reversed(range(30)):
        assert at // 30 == generation
        assert at in parents_of
        at = parents_of[at][0]
    every = thin_births(births, best, notes)
    assert len(every["ids"]) == 900
    assert len(notes) == 1


def test_small_species_are_put_together_and_sums_stay():
    rows = []
    for generation in range(40):
        ids = np.arange(generation * 10, generation * 10 + 10, dtype=np.int32)
        sizes = np.full(10, 3, np.int32) + (ids % 2 == 0)
        rows.append({"species": {"ids": ids, "sizes": sizes, "best": np.ones(10, np.float32)}})
    notes: list[str] = []
    thin = thin_species(rows, {0: 1.5}, notes)
    assert thin is not None
    assert "300 largest of 400" in notes[0]
    assert thin["sizes"].sum() == sum(row["species"]["sizes"].sum() for row in rows)
    assert OTHERS in thin["ids"]
    assert thin["endedBest"].tolist() == [1.5]


def test_champions_are_bounded():
    node = (0, "input", "in", None)
    small = BestGenome(generation=1, genome=2, fitness=1.0, nodes=(node,), edges=((0, 0, 0.123456789, True),))
    assert champion_row(small)["edges"] == [[0, 0, 0.1234568, 1]]
    large = BestGenome(generation=1, genome=2, fitness=1.0, nodes=tuple((i, *node[1:]) for i in range(5000)), edges=())
    assert champion_row(large)["nodes"] == []
    assert champion_row(large)["nodeCount"] == 5000
    notes: list[str] = []
    wide = [{"nodes": [0] * 1000, "edges": []} for _ in range(300)]
    assert len(thin_champions(wide, notes)) <= 40
    assert "of 300 structures" in notes[0]


def test_a_run_that_comes_again_replaces_its_rows():
    rows = EvolutionRows()
    events = recorded(generations=6, genealogy=False).generations
    rows.add_all([*events, *events[3:]])
    assert [row["generation"] for row in rows.rows()] == list(range(6))


@pytest.mark.thorough
def test_a_thousand_generations_of_a_thousand_genomes_fit_a_page():
    rng = np.random.default_rng(0)
    history = History(genealogy=True)
    config = EvolutionConfig(population=1000, fitness_threshold=9.0)
    Population(config, seed=1).evolve(xor(), 60, reporters=[history])
    sample = [event for event in history.events if isinstance(event, Births)]
    rows = EvolutionRows()
    for generation in range(1000):  # parents as in the sample, fitness as it comes
        like = sample[1 + generation % 59] if generation else sample[0]
        shift = (generation - like.generation) * 1000
        parents = np.where(like.parents < 0, -1, like.parents + shift)
        fitness = rng.normal(size=1000)
        rows.add(replace(like, generation=generation, first=generation * 1000, parents=parents, fitness=fitness))
        rows.add(
            Evaluated(
                generation=generation, best=float(fitness.max()), mean=0.0, stdev=1.0, worst=float(fitness.min()),
                best_genome=generation * 1000 + int(fitness.argmax()), best_hidden=1, best_connections=2,
                species={int(i): int(n) for i, n in zip(*np.unique(like.species, return_counts=True), strict=True)},
                threshold=3.0, failures=0,
            )
        )  # fmt: skip
    view = view_of_rows(rows, name="evolution", label="Evolution")
    page = scope_page(ScopeDocument(title="large", source="", views=(view,)))
    assert len(gzip.compress(page.encode())) <= 2 << 20
    assert any("of 1,000,000 genomes" in note for note in view.data["notes"])


def test_a_feed_sends_rows_and_answers_for_those_that_are_missing(tmp_path: Path):
    feed, sent = EvolutionFeed(), list[dict]()
    feed.connect(lambda message: sent.append(dict(message)))
    evolve("xor", population=30, generations=12, seed=1, reporters=[feed])
    rows = [row["generation"] for message in sent for row in message["rows"]]
    assert rows == list(range(12))
    assert sent[-1]["running"] is False
    answer = feed.act("evolution", {"do": "rows", "from": 10})
    assert [row["generation"] for row in answer["rows"]] == [10, 11]
    assert answer["rows"][0]["births"]["ids"]["$base64"]
    for action in ({}, {"do": "rows"}, {"do": "rows", "from": -1}, {"do": "rows", "from": True}):
        with pytest.raises(SpecError, match="a run answers"):
            feed.act("evolution", action)
    sent.clear()
    evolve("xor", population=30, generations=3, seed=2, reporters=[feed])  # another run: the page begins anew
    assert sent[0].get("reset")
    assert [r["generation"] for m in sent for r in m["rows"]] == [0, 1, 2]
    assert feed.view().data["rows"] == 3
    feed.close()


def test_a_run_of_another_process_is_followed_by_its_file(tmp_path: Path):
    path = tmp_path / "history.jsonl"
    population = Population(SMALL, seed=1)
    population.evolve(xor(), 3, reporters=[JsonLines(path, genealogy=True)])
    followed, sent = FollowedEvolution(tmp_path), list[dict]()
    assert followed.view().data["rows"] == 3
    assert followed.view().data["running"]
    followed.connect(lambda message: sent.append(dict(message)))
    population.evolve(xor(), 4, reporters=[JsonLines(path, genealogy=True)])
    followed.close()
    assert [row["generation"] for row in followed._rows.rows()] == list(range(7))
    assert [message["rows"][-1]["generation"] for message in sent if message["rows"]][-1] == 6
    path.write_text("{}\n")  # the file is damaged while it is followed
    failures: list[str] = []
    followed.connect(lambda message: failures.append(message.get("failure", "")))
    followed._look()
    assert any("line 1" in failure for failure in failures)
    with pytest.raises(CheckpointError):
        FollowedEvolution(tmp_path)
