"""Exports replayed from their files alone, on this machine's GPU, against the reference device."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.clocked.machines import machine
from tests.devices import narrowed
from tests.evolution.genomes import genome
from tests.networks import tiny_llama
from tests.web.networks import NETWORKS, rows_for
from volumetric.clocked import Clocked
from volumetric.clocked.clocked_stream import ClockedStream
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.evolution.genome import Genome
from volumetric.generate import SamplingParams
from volumetric.generate.encoder import pool
from volumetric.generate.sampler import Sampler
from volumetric.layers import Dense
from volumetric.loaders.loaded_model import open_model
from volumetric.network import OUTPUT, Network, Params, initialise
from volumetric.network.grid import Coord, Grid, Port
from volumetric.run import RunOptions, lower
from volumetric.run.call_batch import greedy_ids
from volumetric.web import export_network
from volumetric.web.export_network import write_folder
from volumetric.web.replayed_network import ReplayedNetwork
from volumetric.web.sources import recorded_kind
from volumetric.web.variants import VARIANTS, WebVariant

FIXTURES = Path(__file__).parents[1] / "fixtures"
CONTEXT = 64


def replayed(folder: Path) -> ReplayedNetwork:
    return ReplayedNetwork(folder, narrowed("native").context)


def reference(network: Network, params: Params, context: int = CONTEXT) -> Any:
    return ReferenceDevice().compile(lower(network, context), params, RunOptions(context=context))


def near(values: np.ndarray, expected: np.ndarray) -> None:
    assert np.abs(expected).max() > 1e-3, "there is something to compare"
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-5 * float(np.abs(expected).max()))


@pytest.mark.parametrize("name", ["mlp", "lstm", "program"])
def test_rows_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    check_rows(name, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(NETWORKS.keys() - {"mlp", "lstm", "program"}))
def test_rows_of_other_layers_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    check_rows(name, tmp_path)


def check_rows(name: str, tmp_path: Path) -> None:
    """Several rows in one call, and one row after the other where they are a sequence."""
    network = NETWORKS[name]()
    params = initialise(network, 4)
    report = export_network(network, tmp_path / "x", params=params, rows=(1, 4), context=16)
    exported, x = replayed(tmp_path / "x"), rows_for(network, 4)
    executable = reference(network, params, 16)
    expected = executable.forward(executable.new_state(), x, last_only=False)
    near(exported.call({"input": x})[OUTPUT], expected)
    exported.reset()
    if report.kind == "stream":
        near(np.concatenate([exported.call({"input": row[None]})[OUTPUT] for row in x]), expected)
    exported.close()


def test_ticks_are_those_of_the_reference(tmp_path: Path) -> None:
    check_ticks(machine(3), 3, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [2, 8, 10])  # their outputs move within seven ticks
def test_ticks_of_larger_machines_are_those_of_the_reference(seed: int, tmp_path: Path) -> None:
    check_ticks(machine(seed), seed, tmp_path)


def test_each_of_four_inputs_arrives_on_its_own(tmp_path: Path) -> None:
    coords = [Coord(0, 0, i) for i in range(4)]
    network = Network(
        grid=Grid(1, 1, 4),
        layers=dict.fromkeys(coords, Dense(in_features=3, out_features=3, activation="tanh")),
        input_shape=(3,),
        inputs={f"port_{i}": Port(coord=coord, shape=(3,), combine="add") for i, coord in enumerate(coords[1:])},
    )
    clocked = Clocked(network=network, clocks={coords[1]: "every(3, 1)"}, hold={"port_2": "zero"})
    check_ticks(clocked, 5, tmp_path)
    manifest = json.loads((tmp_path / "x" / "network.json").read_text())
    assert len(manifest["ticks"]["programs"]) == 16
    described = {name: (port.get("every"), port.get("hold")) for name, port in manifest["inputs"].items()}
    assert described == {
        "input": (None, None), "port_0": ([3, 1], None), "port_1": (None, None), "port_2": (None, "zero"),
    }  # fmt: skip


def check_ticks(clocked: Clocked, seed: int, tmp_path: Path) -> None:
    """Ticks with and without rows of some inputs, and again after a reset."""
    rng, network = np.random.default_rng(seed), clocked.network
    params = initialise(network, seed)
    assert export_network(clocked, tmp_path / "x", params=params).kind == "ticks"
    exported, stream = replayed(tmp_path / "x"), ClockedStream(ReferenceDevice(), clocked, params)
    seen = 0.0
    for _ in range(2):
        for _ in range(7):
            ports = {name: port for name, port in network.ports.items() if rng.random() < 0.7}
            rows = {name: rng.standard_normal(port.shape).astype(np.float32) for name, port in ports.items()}
            got = exported.tick(rows)
            series = stream.run({n: v[None, None] for n, v in rows.items()}) if rows else stream.run(ticks=1)
            expected = series if isinstance(series, dict) else {OUTPUT: series}
            for name, value in got.items():
                np.testing.assert_allclose(value, expected[name][0, 0], rtol=1e-5, atol=1e-5)
                seen = max(seen, float(np.abs(value).max()))
        exported.reset()
        stream.reset()
    assert seen > 0.1, "something has happened"
    exported.close()


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", ["mlp", pytest.param("language", marks=pytest.mark.thorough)])
def test_a_variant_with_subgroups_gives_the_same(name: str, parts: int, tmp_path: Path) -> None:
    """That of the size that this GPU has, and of half of it: subgroups may be larger than a variant needs.

    GPUs of browsers mostly have 32 lanes or more, and software adapters 4 or 8.
    """
    context = narrowed("native").context
    size = context.caps.subgroup_size
    if size < 2 * parts:
        pytest.skip("this GPU has no subgroups of one size")
    here = WebVariant(label="subgroups here", subgroup_size=size // parts, software=True)
    network = tiny_llama() if name == "language" else NETWORKS[name]()
    params = initialise(network, 6)
    kind = recorded_kind(network, params=params, rows=(1, 4), context=CONTEXT)
    write_folder(kind, tmp_path / "x", [here, VARIANTS["plain"]])
    exported = ReplayedNetwork(tmp_path / "x", context, (size, size))
    assert exported.replay.variant["label"] == "subgroups here"
    executable = reference(network, params)
    if name == "language":
        ids = np.arange(20, dtype=np.int32)
        exported.feed(ids[:-1])
        near(exported.logits(int(ids[-1])), executable.forward(executable.new_state(), ids)[0])
    else:
        x = rows_for(network, 3)
        near(exported.call({"input": x})[OUTPUT], executable.forward(executable.new_state(), x, last_only=False))
    exported.close()
    assert replayed(tmp_path / "x").replay.variant["label"] == "no subgroups"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Any:
    network, folder = tiny_llama(), tmp_path_factory.mktemp("llama") / "x"
    params = initialise(network, 2)
    assert export_network(network, folder, params=params, context=CONTEXT).kind == "language"
    exported = replayed(folder)
    yield exported, network, params
    exported.close()


@pytest.mark.thorough
@pytest.mark.parametrize("length", [1, 2, 9, 17, 40])
def test_logits_and_greedy_tokens_are_those_of_the_reference(llama: Any, length: int) -> None:
    exported, network, params = llama
    executable = reference(network, params)
    state, ids = executable.new_state(), np.random.default_rng(length).integers(0, 97, length).astype(np.int32)
    exported.reset()
    exported.feed(ids[:-1])
    near(exported.logits(int(ids[-1])), executable.forward(state, ids)[0])
    assert list(islice(exported.picked(5), 12)) == list(islice(greedy_ids(executable, state, 5), 12))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.9, seed=3),
        SamplingParams(temperature=1.3, seed=4, top_p=0.8),
        SamplingParams(temperature=1.1, seed=5, top_k=7),
        SamplingParams(temperature=1.0, seed=6, top_k=9, top_p=0.9, min_p=0.02),
    ],
)
def test_drawn_tokens_are_those_of_the_reference(llama: Any, params: SamplingParams) -> None:
    exported, network, weights = llama
    executable = reference(network, weights)
    state, sampler, token = executable.new_state(), Sampler(params), 5
    expected = []
    for _ in range(50):
        token = sampler.draw(executable.forward(state, np.array([token], np.int32))[0]).token
        expected.append(token)
    exported.reset()
    assert list(islice(exported.draws(5, Sampler(params).chooser), 50)) == expected
    assert len(set(expected)) > 5


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["gpt_oss_mxfp4", "gemma3", "mamba2", "qwen3_moe", "lfm2"])
def test_families_give_the_logits_of_the_reference(family: str, tmp_path: Path) -> None:
    model = open_model(FIXTURES / "hf_tiny" / family)
    assert export_network(model, tmp_path / "x", context=CONTEXT).kind == "language"
    exported, executable = replayed(tmp_path / "x"), reference(model.network, model.params)
    ids = np.random.default_rng(1).integers(0, exported.manifest["language"]["vocabulary"], 21).astype(np.int32)
    state = executable.new_state()
    exported.feed(ids[:-1])
    expected = executable.forward(state, ids)[0]
    assert np.abs(exported.logits(int(ids[-1])) - expected).max() < 2e-3 * max(1.0, float(np.abs(expected).max()))
    assert list(islice(exported.picked(5), 5)) == list(islice(greedy_ids(executable, state, 5), 5))
    exported.close()


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["sentences_dense", "bert_judge"])
def test_encoders_give_the_embeddings_of_the_engine(name: str, tmp_path: Path) -> None:
    import volumetric

    folder, text = FIXTURES / "hf_encoders" / name, "the cat sat on the mat"
    export_network(folder, tmp_path / "x", context=24, rows=(8,))
    exported, model = replayed(tmp_path / "x"), volumetric.load(folder, device="reference", context=24)
    encoder = exported.manifest["encoder"]
    assert model.tokenizer is not None
    ids = np.array(model.tokenizer.encode(text), np.int32)
    rows = {"tokens": ids, "token_type_ids": np.zeros(len(ids), np.int32)}
    hidden = exported.call(rows)["hidden"]
    several = [{key: value[:count] for key, value in rows.items()} for count in (len(ids), 1, 3, len(ids) - 1)]
    for part, outputs in zip(several, exported.call_together(several), strict=True):
        near(outputs["hidden"], exported.call(part)["hidden"])
    [head] = encoder["heads"].values()
    pooling = encoder["pooling"] if "dense" in encoder["heads"] else [head["pooling"]]
    exported.manifest |= {"inputs": {"x": head["input"]}, "outputs": {"y": head["output"]}}
    exported.manifest["calls"] = {
        "programs": [{"program": head["program"], "rows": 1, "exact": False}],
        "control": head["control"], "positions": None, "independent": True, "whole": False,
    }  # fmt: skip
    vector = exported.call({"x": pool(hidden, pooling)[None]})["y"][0]
    if "dense" in encoder["heads"]:
        vector = vector / np.linalg.norm(vector) if encoder["normalise"] else vector
        near(vector, model.embed([text])[0])
    else:
        near(vector, model.text_encoder.head_outputs([text], 24)[0])
        assert head["output"]["names"] == list(model.loaded.classes)
    exported.close()


def test_a_champion_is_a_network_and_others_a_population(tmp_path: Path) -> None:
    genomes = [
        genome([(0, 0, 3, w, True), (1, 1, 3, 0.7, True), (2, 3, 2, -w, True)], hidden=(3,)) for w in (0.5, -1.5)
    ]
    assert export_network(genomes[0], tmp_path / "one", rows=(1,)).kind == "rows"
    assert Genome.load(tmp_path / "one" / "genome.json") == genomes[0]
    export_network(genomes, tmp_path / "all", samples=5)
    x = np.random.default_rng(0).standard_normal((5, genomes[0].interface.inputs)).astype(np.float32)
    champion, population = replayed(tmp_path / "one"), replayed(tmp_path / "all")
    expected = np.array([one.activate(x) for one in genomes], np.float32)
    near(champion.call({"input": x})[OUTPUT], expected[0])
    about = population.manifest["population"]
    population.replay.write(about["buffers"]["x"], np.ascontiguousarray(x.T))
    population.replay.submit([about["program"]])
    y = population.replay.read(about["buffers"]["y"], expected.nbytes).view(np.float32)
    near(y.reshape(2, -1, 5).swapaxes(1, 2), expected)
    for one in (champion, population):
        one.close()
