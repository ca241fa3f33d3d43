"""Memory tasks: solvers are right on all of them, what has no memory is at chance, and splits share no sample."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import device
from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.layers import Column
from volumetric.train import memory
from volumetric.train.losses import IGNORED
from volumetric.train.memory.memory_baselines import ROWS, baseline, baselines_of, score
from volumetric.train.memory.memory_task import MemoryTask, part_of
from volumetric.train.memory.trial import FABRIC, network_for
from volumetric.train.problems import Problem

NAMES = list(memory.TASKS)
SMALL = {"n_back": 100}  # of which every row is scored


def answers_of(task: MemoryTask, inputs: Array, **options: int) -> Array:
    """Return the answers of a task's solver, which all tasks of this package have."""
    assert task.solve is not None
    return task.solve(inputs, **options)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("times", [0, 1, 4])
def test_the_solver_is_right_at_all_lengths(name: str, times: int) -> None:
    task = memory.TASKS[name]
    length = times * task.length or task.shortest
    problem = task.make(3, 40, length, split="test")
    assert problem.inputs.shape[:2] == problem.targets.shape[:2] == (40, length)
    assert problem.resets is not None
    assert problem.resets[:, 0].all()
    assert not problem.resets[:, 1:].any()
    assert problem.mask is not None
    assert (problem.mask.sum(1) > 0).all()
    answers = answers_of(task, problem.inputs)
    if task.regression:
        assert score(problem, answers) < 1e-6
        assert (np.isfinite(answers[..., 0]) == (problem.mask > 0)).all()
    else:
        assert (answers == problem.targets).all()
        assert ((problem.targets != IGNORED) == (problem.mask > 0)).all()
        assert problem.inputs.max() < problem.vocabulary
        assert problem.targets.max() < problem.outputs == len(problem.classes)
        assert score(problem, answers) == 1.0


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_without_memory_there_is_chance(name: str) -> None:
    task = memory.TASKS[name]
    known = task.make(1, SMALL.get(name, 800))
    judged = task.make(1, SMALL.get(name, 1500), split="test")
    for of in baselines_of(known):
        found = baseline(of, known, judged, device=device("cpu"))
        if task.regression:
            assert found >= 2 * score(judged, answers_of(task, judged.inputs)) + 0.05
        elif of in task.controls:
            assert found > 0.97
        else:
            assert found <= task.chance + 0.03


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_samples_depend_on_seed_and_number_and_splits_share_none(name: str) -> None:
    task = memory.TASKS[name]
    length = task.shortest
    few, many = (task.make(5, count, length, split="validation") for count in (3, 300))
    np.testing.assert_array_equal(few.inputs, many.inputs[:3])
    np.testing.assert_array_equal(few.targets, many.targets[:3])
    other = task.make(6, 300, length, split="validation").inputs
    later = task.make(5, 300, length, split="validation", epoch=1).inputs
    assert not np.array_equal(many.inputs, other)
    assert not np.array_equal(many.inputs, later)
    found = {
        split: {row.tobytes() for seed in (5, 6) for row in task.make(seed, 300, length, split=split).inputs}
        for split in ("train", "validation", "test")
    }
    assert not found["train"] & found["validation"]
    assert not found["train"] & found["test"]
    assert not found["validation"] & found["test"]


def test_parts_of_samples_do_not_depend_on_what_is_asked() -> None:
    bits = (np.arange(2**14)[:, None] >> np.arange(14)) & 1
    part = part_of(bits)
    assert abs(np.bincount(part) / len(bits) - 0.25).max() < 0.02
    for odd in (0, 1):
        assert abs(np.bincount(part[bits.sum(1) % 2 == odd]) / (len(bits) // 2) - 0.25).max() < 0.03


def test_what_makes_tasks_hard_is_there() -> None:
    word = memory.dyck2(0, 200)
    x, right = word.inputs, word.targets[:, -1]
    for kind in range(4):  # on average; each wrong one has the counts of a right one
        assert abs((x == kind).sum(1)[right == 0].mean() - (x == kind).sum(1)[right == 1].mean()) < 2
    assert ((x < 2).cumsum(1) >= ((x == 2) | (x == 3)).cumsum(1)).all()
    back = memory.n_back(0, 200)
    same = back.targets[back.targets >= 0]
    assert abs(same.mean() - 0.5) < 0.02
    lures = (back.inputs[:, 4:] == back.inputs[:, 2:-2]) & (back.targets[:, 4:] == 0)
    assert lures.sum() / (same == 0).sum() > 0.2
    kept = memory.flip_flop(0, 200)
    for row, t in zip(*np.nonzero(kept.targets >= 0), strict=True):
        assert not (kept.inputs[row, max(0, t - ROWS) : t] == 1).any()
    margins = memory.majority(0, 500).inputs
    assert set(np.abs((margins == 2).sum(1) - (margins == 1).sum(1))) == set(range(1, 10))


@pytest.mark.parametrize(
    "call",
    [
        lambda: memory.copy(0, 0),
        lambda: memory.copy(0, 8, 40),
        lambda: memory.copy(-1, 8),
        lambda: memory.n_back(0, 8, n=16),
        lambda: memory.assoc_recall(0, 8, pairs=25),
        lambda: memory.sines(0, 8, split="others"),  # pyright: ignore[reportArgumentType]  (that is the mistake)
        lambda: baseline("last16", memory.sines(0, 8), memory.sines(1, 8)),
    ],
)
def test_impossible_tasks_are_refused(call) -> None:
    with pytest.raises(SpecError):
        call()


def test_longer_samples_and_more_pairs_are_the_same_task() -> None:
    problem = memory.assoc_recall(2, 64, 256, pairs=24)
    assert (answers_of(memory.TASKS["assoc_recall"], problem.inputs) == problem.targets).all()
    assert isinstance(problem, Problem)
    far = memory.n_back(2, 64, n=7)
    assert (answers_of(memory.TASKS["n_back"], far.inputs, n=7) == far.targets).all()


@pytest.mark.parametrize("name", [name for name, task in memory.TASKS.items() if task.dense])
def test_dense_answers_are_those_of_shorter_samples(name: str) -> None:
    task = memory.TASKS[name]
    few, more = (task.make(4, 60, **dense) for dense in ({}, {"dense": True}))
    asked = few.targets >= 0
    if name != "dyck2":  # which shows other mistakes
        np.testing.assert_array_equal(few.inputs, more.inputs)
        np.testing.assert_array_equal(few.targets[asked], more.targets[asked])
    assert (more.targets >= 0).sum() > 1.5 * asked.sum()
    if name in ("majority", "parity"):  # the answer so far is what a query there would give
        for t in range(task.length // 2, task.length - 1, 20):
            cut = more.inputs[:, : t + 2].copy()
            cut[:, -1] = few.inputs[0, -1]
            now = more.targets[:, t] >= 0
            np.testing.assert_array_equal(answers_of(task, cut)[now, -1], more.targets[now, t])


def test_networks_are_named_by_their_cells() -> None:
    ids, values = memory.copy(0, 2), memory.sines(0, 2)
    two, column = (network_for(ids, name, 16) for name in ("M/S", "AX"))
    kinds = [spec.kind for spec in two.layers.values()]
    assert kinds == ["embedding", "pre_up_gated", "post_up_gated", "layer_norm", "dense"]
    assert any(isinstance(spec, Column) for spec in column.layers.values())
    for problem, made in ((ids, 8), (values, 1)):
        for name in ("L", FABRIC):
            network = network_for(problem, name, 8)
            assert network.shapes[network.taps["output"]][-1] == made
    [body] = [spec for spec in network_for(ids, FABRIC, 8).layers.values() if isinstance(spec, Fabric)]
    assert body.facts.outputs == 4
    for name in ("Q", "", "M/", "fabrics"):
        with pytest.raises(SpecError):
            network_for(ids, name, 16)
    with pytest.raises(SpecError):
        network_for(ids, FABRIC, 0)


def test_each_bracket_is_judged_where_networks_learn() -> None:
    made = memory.dyck2(3, 60, 64, dense=True)
    for word, answers in zip(made.inputs.tolist(), made.targets.tolist(), strict=True):
        stack = list[int]()
        told = [1]
        for token, answer in zip(word, answers, strict=True):
            if token < 2:
                stack.append(token)
                assert answer == IGNORED
            elif token < 4:
                told.append(int(stack.pop() == token - 2))
                assert answer == told[-1]
        assert answers[-1] == min(told)
