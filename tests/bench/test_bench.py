"""Benchmark cases, rows and formats; the measuring itself runs a real network on the reference device."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import numpy as np
import pytest

from volumetric.base.errors import SpecError
from volumetric.bench import Case, Row, cases, measure, render
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.layers import LSTM, Embedding, MultiHeadAttention
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.run.device import RunOptions
from volumetric.run.lower import lower
from volumetric.run.step_times import StepTime

ABOUT = {
    "model": "tiny, 2 layers",
    "size": 3 * 2**20,
    "params": 1_500_000,
    "device": "reference",
    "description": "NumPy",
    "dtype": "float32",
    "threads": None,
    "version": "0",
}
ROWS = [
    Row.of(Case(prompt=512), [100.0, 110.0, 120.0], **ABOUT),
    Row.of(Case(generate=8, depth=64), [5.0], **(ABOUT | {"threads": 2})),
]


def test_names_are_those_of_llama_bench():
    found = [case.name for case in cases([512], [128], [(16, 4)], [0, 4096])]
    assert found == ["pp512", "tg128", "pp16+tg4", "pp512 @ d4096", "tg128 @ d4096", "pp16+tg4 @ d4096"]


def test_batches_are_of_generation_alone():
    found = [case.name for case in cases([8], [4], [(2, 1)], [0, 16], [1, 16])]
    assert found == ["pp8", "tg4", "tg4 x16", "pp2+tg1", "pp8 @ d16", "tg4 @ d16", "tg4 x16 @ d16", "pp2+tg1 @ d16"]


def test_zero_leaves_a_test_out():
    assert [case.name for case in cases([0, 32], [0])] == ["pp32"]
    with pytest.raises(SpecError, match="nothing to measure"):
        cases([0], [0])


@pytest.mark.parametrize(
    "bad",
    [{}, {"prompt": -1}, {"generate": 4, "depth": -2}, {"generate": 4, "batch": 0}, {"prompt": 4, "batch": 2}],
)
def test_impossible_cases_are_refused(bad):
    with pytest.raises(SpecError):
        Case(**bad)


def test_rows_hold_mean_and_sample_deviation():
    assert (ROWS[0].tps, ROWS[0].tps_std) == (110.0, 10.0)
    assert (ROWS[1].tps, ROWS[1].tps_std) == (5.0, 0.0)


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_json_has_every_field(form):
    text = render(ROWS, form)
    rows = json.loads(text) if form == "json" else [json.loads(line) for line in text.splitlines()]
    assert [row["test"] for row in rows] == ["pp512", "tg8 @ d64"]
    assert {"model", "device", "dtype", "threads", "test", "tps", "tps_std", "samples"} <= set(rows[0])


def test_csv_reads_back():
    rows = list(csv.DictReader(io.StringIO(render(ROWS, "csv"))))
    assert rows[0]["model"] == "tiny, 2 layers"
    assert float(rows[0]["tps"]) == 110.0


def test_markdown_lines_up():
    lines = render(ROWS, "md").splitlines()
    assert len({len(line) for line in lines}) == 1
    assert "110.00 ± 10.00" in lines[2]
    assert "3.00 MiB" in lines[2]
    assert "1.50 M" in lines[2]


STEPS = (
    StepTime(label="vector_product 96x64 int4", count=30, seconds=0.0015),
    StepTime(label="all", count=91, seconds=0.002),
)


def test_profiles_follow_the_rows():
    rows = [ROWS[0], dataclasses.replace(ROWS[1], steps=STEPS)]
    speeds, steps = render(rows, "md").split("\n\n")
    assert len({len(line) for line in steps.splitlines()}) == 1
    assert "| tg8 @ d64 | vector_product 96x64 int4 |    30 | 1500.0 |       75.0% |" in steps
    assert speeds.count("tg8") == 1
    _, steps = render(rows, "csv").split("\n\n")
    assert [row["count"] for row in csv.DictReader(io.StringIO(steps))] == ["30", "91"]
    assert json.loads(render(rows, "json"))[1]["steps"][1] == {"label": "all", "count": 91, "seconds": 0.002}


def test_unknown_format_is_refused():
    with pytest.raises(SpecError, match="xml"):
        render(ROWS, "xml")


@pytest.fixture
def executable():
    layers = {
        Coord(0): Embedding(num_embeddings=32, embedding_dim=32),
        Coord(1): MultiHeadAttention(embed_dim=32, num_heads=2),
    }
    network = Network(grid=Grid(2), layers=layers)
    return ReferenceDevice().compile(lower(network), initialise(network), RunOptions(context=40))


@pytest.mark.parametrize(
    "case",
    [
        Case(prompt=20),
        Case(generate=5),
        Case(prompt=7, generate=3, depth=30),
        Case(generate=4, batch=3),
        Case(generate=4, batch=2, depth=36),
    ],
)
def test_measuring_gives_a_speed_for_each_repetition(executable, case):
    speeds = measure(executable, 32, case, repetitions=3)
    assert len(speeds) == 3
    assert np.isfinite(speeds).all()
    assert min(speeds) > 0


@pytest.mark.parametrize("case", [Case(generate=2, depth=5), Case(generate=2, batch=2, depth=5)])
def test_a_state_that_cannot_be_cut_back_is_copied(case, monkeypatch):
    layers = (Embedding(num_embeddings=32, embedding_dim=4), LSTM(input_size=4, hidden_size=32))
    network = Network(grid=Grid(2), layers={Coord(z): layer for z, layer in enumerate(layers)})
    executable = ReferenceDevice().compile(lower(network), initialise(network), RunOptions(context=40))
    made = []
    run = executable.run
    monkeypatch.setattr(executable, "run", lambda pieces: made.extend(found := run(pieces)) or found)
    measure(executable, 32, case, repetitions=2)
    rounds = np.concatenate(made[1:]).reshape(3, -1)  # after the prompt: a warm-up and two repetitions
    assert np.array_equal(rounds[0], rounds[1])
    assert np.array_equal(rounds[0], rounds[2])


def test_a_batch_feeds_every_sequence_at_its_depth(executable, monkeypatch):
    seen = []
    greedy = executable.greedy

    def watched(states, tokens):
        for found in greedy(states, tokens):
            seen.append([state.position - 1 for state in states])
            yield found

    monkeypatch.setattr(executable, "greedy", watched)
    measure(executable, 32, Case(generate=2, batch=3, depth=7), repetitions=1)
    assert seen == [[7] * 3, [8] * 3] * 2


def test_a_case_beyond_the_context_is_refused(executable):
    with pytest.raises(SpecError, match="needs a context of 41"):
        measure(executable, 32, Case(prompt=20, generate=1, depth=20))
    with pytest.raises(SpecError, match="repetitions"):
        measure(executable, 32, Case(prompt=1), repetitions=0)
