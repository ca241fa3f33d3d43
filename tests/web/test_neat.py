"""Populations that evolve in a browser, against `volumetric.evolution`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.web.engine_page import EnginePage
from volumetric.base.errors import SpecError
from volumetric.evolution import EvolutionConfig, Genome, Pool, Population
from volumetric.evolution.evolution_config import GenomeConfig, MutationConfig, SpeciesConfig
from volumetric.web.export_network import export_network
from volumetric.web.neat_population import NeatPopulation

_ROWS = np.array([[0, 0], [1, 0], [0, 1], [1, 1]], np.float64)
_BREED = """
const {default: Population} = await import(engineUrl + "neat/population.js");
const p = new Population(null, {problem: {inputs: 2, outputs: 2, goal: 99}, seed, config, genomes: first});
const seen = [];
for (const [generation, scores] of fitness.entries()) {
  if (generation) p.breed();
  seen.push({genomes: p.genomes, member: p.species.member, ids: p.species.list.map(one => one.id),
    threshold: p.species.threshold});
  p.tell(scores);
}
return {seen, champion: p.champion.fitness, json: p.championJson()};
"""


def _genes(pool: Pool) -> list[dict[str, Any]]:
    """Return the genomes of a pool as the page has them."""
    genomes = []
    for row in range(len(pool)):
        one = pool.genome(row)
        parts = {"nodes": one.nodes, "connections": one.connections}
        genomes.append({
            name: [dict(zip(genes.dtype.names or (), gene, strict=True)) for gene in genes.tolist()]
            for name, genes in parts.items()
        })  # fmt: skip
    return genomes


def _shape_and_numbers(genomes: list[dict[str, Any]]) -> tuple[list[Any], list[float]]:
    """Return what must be equal, and the weights and biases."""
    shape, numbers = [], []
    for genome in genomes:
        numbers += [node["bias"] for node in genome["nodes"]] + [gene["weight"] for gene in genome["connections"]]
        shape.append([
            [(node["id"], node["activation"], node["aggregation"]) for node in genome["nodes"]],
            [(gene["innovation"], gene["source"], gene["target"], gene["enabled"]) for gene in genome["connections"]],
        ])  # fmt: skip
    return shape, numbers


@pytest.mark.parametrize("recurrent", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_generations_are_bred_as_in_python(engine: EnginePage, recurrent: bool) -> None:
    """Same first genomes, seed and fitness: same structures, innovation numbers, species and parents."""
    config = EvolutionConfig(
        population=24,
        genome=GenomeConfig(inputs=2, outputs=2, activation="tanh", recurrent=recurrent, steps=2),
        mutation=MutationConfig(
            add_node=0.3, add_connection=0.4, delete_node=0.05, delete_connection=0.05, enabled_rate=0.05,
            activation_rate=0.1, aggregation_rate=0.1, aggregations=("sum", "mean", "max"),
        ),
        species=SpeciesConfig(max_stagnation=3, refocus_after=6, target=6, threshold=1.5),
    )  # fmt: skip
    run, rng = Population(config, seed=7), np.random.default_rng(3)
    first, expected, fitness = _genes(run.pool), list[dict[str, Any]](), list[list[float]]()
    for generation in range(10):
        run.ask()
        expected.append({
            "genomes": _genes(run.pool), "member": run.species.member.tolist(), "ids": run.species.ids.tolist(),
            "threshold": run.species.threshold,
        })  # fmt: skip
        scores = np.round(2 * rng.standard_normal(24) - 0.1 * generation)  # whole: parents are often equally fit
        fitness.append(scores.tolist())
        run.tell(scores)
    got = engine.run(
        f"const engineUrl = {engine.server.url + '/engine/'!r}; {_BREED}",
        first=first, fitness=fitness, seed=7, config=config.to_dict(),
    )  # fmt: skip
    for mine, theirs in zip(got["seen"], expected, strict=True):
        (shape, numbers), (their_shape, their_numbers) = map(_shape_and_numbers, (mine["genomes"], theirs["genomes"]))
        assert [[list(map(tuple, genes)) for genes in one] for one in shape] == their_shape
        np.testing.assert_allclose(numbers, their_numbers, rtol=0, atol=1e-12)
        assert (mine["member"], mine["ids"]) == (theirs["member"], theirs["ids"])
        assert mine["threshold"] == pytest.approx(theirs["threshold"])
        for genome in mine["genomes"]:
            links = [(gene["source"], gene["target"]) for gene in genome["connections"]]
            innovations = [gene["innovation"] for gene in genome["connections"]]
            assert len(set(links)) == len(links)
            assert innovations == sorted(set(innovations))
    assert run.champion is not None
    assert got["champion"] == run.champion.fitness
    assert max(len(one["nodes"]) for one in got["seen"][-1]["genomes"]) > 4
    champion = Genome.from_json(got["json"])
    x = rng.standard_normal((5, 2))
    np.testing.assert_allclose(champion.activate(x), run.champion.genome.activate(x), rtol=1e-9)


def test_xor_is_solved_in_the_page(engine: EnginePage) -> None:
    export_network(NeatPopulation(), engine.folder / "neat")
    got = engine.run(
        """
        const m = await engine.load(net + "neat/"), p = await m.population({problem: "xor", seed: 3});
        const bests = [];
        let last;
        do bests.push((last = await p.step()).best); while (!p.solved && p.generation < 100);
        const {GpuGenomes} = await import(engineUrl + "neat/gpu_genomes.js");
        const gpu = new GpuGenomes(m, p.interface);
        gpu.upload([p.champion.genome]);
        const y = await gpu.activate(Float32Array.of(0, 1, 0, 1, 0, 0, 1, 1), 4, true);
        const again = await m.population({problem: "xor", seed: 3});
        const repeated = [];
        for (let i = 0; i < 3; i++) repeated.push((await again.step()).best);
        await m.close();
        const {champion, solved} = p;
        return {bests, repeated, species: last.species, solved, json: p.championJson(), y, fitness: champion.fitness};
        """.replace("engineUrl", repr(engine.server.url + "/engine/"))
    )
    assert got["solved"]
    assert got["repeated"] == got["bests"][:3]
    assert sum(one["size"] for one in got["species"]) == 150
    champion = Genome.from_json(got["json"])
    y = champion.activate(_ROWS)[:, 0]
    np.testing.assert_allclose(got["y"], y, rtol=0, atol=1e-5)
    assert 4 - ((y - [0, 1, 1, 0]) ** 2).sum() == pytest.approx(got["fitness"], abs=1e-5)


def test_recurrent_genomes_go_on_from_their_values(engine: EnginePage) -> None:
    """On the GPU and in the page's own activation, two activations of a generation equal those of Python."""
    config = EvolutionConfig(
        population=20,
        genome=GenomeConfig(activation="tanh", recurrent=True, steps=3),
        mutation=MutationConfig(
            add_node=0.6, add_connection=0.8, aggregation_rate=0.2, aggregations=("sum", "product", "max")
        ),
    )  # fmt: skip
    export_network(NeatPopulation(config), engine.folder / "neat")
    x = np.random.default_rng(2).standard_normal((2, 20, 2, 3)).astype(np.float32)
    got = engine.run(
        """
        const m = await engine.load(net + "neat/"), p = await m.population({seed: 5});
        for (let i = 0; i < 6; i++) await p.step();
        const [{GpuGenomes}, {activator}, {genomeJson}] = await Promise.all(
          ["gpu_genomes.js", "activate.js", "genome.js"].map(name => import(engineUrl + "neat/" + name)));
        const gpu = new GpuGenomes(m, p.interface), half = x.length / 2;
        gpu.upload(p.genomes);
        const run = (part, goesOn) => gpu.activate(x.subarray(part * half, (part + 1) * half), 3, false, goesOn);
        const y = [await run(0, false), await run(1, true)];
        const again = await run(0, false), one = activator(p.genomes[0], p.interface);
        const by = [0, 1].map(t => one.act([x[t * half], x[t * half + 3]])[0]);
        await m.close();
        return {y, again, by, genomes: p.genomes.map(genome => genomeJson(genome, p.interface))};
        """.replace("engineUrl", repr(engine.server.url + "/engine/")),
        x=x,
    )
    links = Pool.of(genomes := [Genome.from_json(text) for text in got["genomes"]]).links
    assert max(len(genome.nodes) for genome in genomes) > 3
    assert all(genome.interface.recurrent for genome in genomes)
    state = links.new_state(3)
    for t in range(2):
        expected = links.activate(x[t].swapaxes(1, 2), state)
        np.testing.assert_allclose(got["y"][t].reshape(20, 3), expected[:, :, 0], rtol=0, atol=1e-5)
        assert got["by"][t] == pytest.approx(expected[0, 0, 0], abs=1e-9)
    assert (got["again"] == got["y"][0]).all()


@pytest.mark.thorough
def test_cart_pole_is_solved_and_the_champion_balances_in_python(engine: EnginePage) -> None:
    export_network(NeatPopulation(problem="cartpole"), engine.folder / "neat")
    got = engine.run(
        """
        const m = await engine.load(net + "neat/"), p = await m.population({problem: "cartpole", seed: 3});
        do await p.step(); while (!p.solved && p.generation < 10);
        await m.close();
        return {solved: p.solved, fitness: p.champion.fitness, json: p.championJson()};
        """
    )
    assert got["solved"]
    assert got["fitness"] >= 475
    champion = Genome.from_json(got["json"])
    starts = np.random.default_rng(1).uniform(-0.05, 0.05, (20, 4))
    steps = Pool.of([champion] * 20).links.play_cartpole(starts, 500)
    assert steps.mean() >= 450


def test_an_export_of_genomes_says_what_it_has_no_room_for(engine: EnginePage) -> None:
    small = NeatPopulation(EvolutionConfig(population=8), nodes=2, connections=8)
    export_network(small, engine.folder / "neat")
    begin = "const m = await engine.load(net + 'neat/');"
    failure = engine.failure(f"{begin} const p = await m.population({{config: {{population: 9}}}}); await p.step();")
    assert (failure.name, "room for 8" in failure.message) == ("InputError", True)
    assert (
        "no problem"
        in engine.failure("const m = await engine.load(net + 'neat/'); await m.population({problem: 'go'});").message
    )
    failure = engine.failure(
        f"{begin} await (await m.population({{config: {{population: 8, genome: {{recurrent: true}}}}}})).step();"
    )
    assert "updates of recurrent nodes; this export has room for 0" in failure.message
    with pytest.raises(SpecError, match="no problem"):
        NeatPopulation(problem="go")


def test_a_problem_of_ones_own_is_solved_as_the_document_shows(engine: EnginePage) -> None:
    page = (Path(__file__).parents[2] / "docs" / "web_learning.md").read_text(encoding="utf-8")
    [code] = [text for text in re.findall(r"```js\n(.*?)```", page, re.DOTALL) if "population(" in text]
    export_network(NeatPopulation(EvolutionConfig(population=60)), engine.folder / "neat")
    got = engine.run(
        f"const m = await engine.load(net + 'neat/'); {code}; await m.close();"
        "return {json: p.championJson(), generation: p.generation};"
    )
    y = Genome.from_json(got["json"]).activate(_ROWS)[:, 0]
    assert 4 - ((y - [0, 0, 0, 1]) ** 2).sum() >= 3.9 - 1e-5
    assert got["generation"] < 60
