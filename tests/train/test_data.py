"""Data: order by seed and epoch, batches, splits, files, generators."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.arrays import array
from volumetric.base.errors import CheckpointError, ShapeError, SpecError
from volumetric.train import ArrayData, Batch, StreamData, as_data, load_npz, token_windows


def numbers(n: int = 10, **options) -> ArrayData:
    return ArrayData(inputs=np.arange(n), targets=np.arange(n) * 10, mask=np.arange(n) + 100, **options)


def epoch(data, number: int, start: int = 0) -> list[list[int]]:
    return [batch.features.tolist() for batch in data.batches(number, start)]


def test_an_epoch_has_every_sample_once_and_keeps_them_together() -> None:
    data = numbers(batch_size=4, seed=5)
    for batch in data.batches(3):
        assert array(batch.targets).tolist() == (batch.features * 10).tolist()
        assert batch.mask is not None
        assert array(batch.mask).tolist() == (batch.features + 100).tolist()
    assert [len(b) for b in epoch(data, 3)] == [4, 4, 2]
    assert sorted(itertools.chain(*epoch(data, 3))) == list(range(10))


def test_order_depends_on_seed_and_epoch_alone() -> None:
    data = numbers(batch_size=4, seed=5)
    second = epoch(data, 1)
    assert epoch(numbers(batch_size=4, seed=5), 1) == second  # no earlier epoch was drawn here
    assert epoch(data, 0) != second
    assert epoch(numbers(batch_size=4, seed=6), 1) != second
    assert epoch(data, 1, start=2) == second[2:]
    assert epoch(data, 1, start=3) == []


def test_unshuffled_and_dropped() -> None:
    assert epoch(numbers(batch_size=4, shuffle=False), 7) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [len(b) for b in epoch(numbers(batch_size=4, drop_last=True), 0)] == [4, 4]
    with pytest.raises(SpecError, match="do not fill a batch"):
        numbers(3, batch_size=4, drop_last=True)


def test_split_is_disjoint_and_repeatable() -> None:
    data = numbers(batch_size=4)
    train, validation = data.split(0.3)
    assert (len(train), len(validation)) == (7, 3)
    assert sorted([*train.inputs, *validation.features]) == list(range(10))
    assert validation.features.tolist() == data.split(0.3)[1].features.tolist()
    assert not validation.shuffle
    assert train.shuffle
    for fraction in (0.0, 0.01, 1.0, -0.5):
        with pytest.raises(SpecError, match="validation split"):
            data.split(fraction)


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, x=np.arange(4), targets=np.arange(4) * 2)
    data = load_npz(path, inputs="x", batch_size=2)
    assert (array(data.targets).tolist(), data.mask, data.batch_size) == ([0, 2, 4, 6], None, 2)
    with pytest.raises(CheckpointError, match="no array 'inputs'") as caught:
        as_data(path)
    assert caught.value.hint == "did you mean 'x'? it has x, targets: set inputs = \"x\""
    np.savez(path, inputs=np.arange(3), targets=np.arange(3), mask=np.ones(3))
    assert as_data(str(path)).mask.tolist() == [1, 1, 1]  # pyright: ignore[reportAttributeAccessIssue]
    x = np.arange(3)
    more: dict[str, Any] = {"inputs.side": np.ones(3), "targets.value": np.zeros(3), "mask.value": np.ones(3)}
    np.savez(path, inputs=x, **more, other=np.array([{}], object))
    several = load_npz(path)
    assert several.arrays.keys() == {"inputs", *more}
    assert several.targets.keys() == {"value"}  # pyright: ignore[reportAttributeAccessIssue]  (by name)
    assert load_npz(path, inputs={"input": "inputs"}, targets={"a": "targets.value"}, mask={}).mask is None
    with pytest.raises(CheckpointError, match=r"no array 'value', which targets\.a names"):
        load_npz(path, targets={"a": "value"})
    np.savez(path, inputs=x, targets=x, **cast("dict[str, Any]", {"targets.output": x}))
    with pytest.raises(CheckpointError, match=r"two arrays for 'output': 'targets' and 'targets\.output'"):
        load_npz(path)
    np.savez(path, **cast("dict[str, Any]", {"inputs.input": x, "targets.output": x}))
    assert load_npz(path).arrays.keys() == {"inputs", "targets"}
    np.savez(path, inputs=np.array([{}], object), targets=np.arange(1))
    with pytest.raises(CheckpointError, match="cannot read"):
        load_npz(path)
    for content in (b"", b"PK\x03\x04 and no more", b"text"):
        path.write_bytes(content)
        with pytest.raises(CheckpointError):
            load_npz(path)
    with pytest.raises(CheckpointError, match="cannot read"):
        load_npz(tmp_path / "none.npz")


def test_generators_start_anywhere() -> None:
    def make(number: int):
        for i in range(3):
            yield np.array([number, i]), np.zeros(2)

    data = as_data(make)
    assert isinstance(data, StreamData)
    assert epoch(data, 4) == [[4, 0], [4, 1], [4, 2]]
    assert epoch(data, 4, start=2) == [[4, 2]]
    assert epoch(data, 4, start=3) == []
    with pytest.raises(SpecError, match="no batch"):
        epoch(StreamData(lambda _: iter(())), 0)


def test_what_is_no_data_is_refused() -> None:
    with pytest.raises(SpecError, match="cannot train on generator"):
        as_data(i for i in range(3))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ShapeError, match="the same number of samples"):
        as_data((np.zeros(3), np.zeros(4)))
    with pytest.raises(ShapeError, match="there are no samples"):
        Batch(np.zeros(0), np.zeros(0))
    with pytest.raises(SpecError, match="batch_size"):
        numbers(batch_size=0)


def test_token_windows() -> None:
    inputs, targets = token_windows(np.arange(8), 3)
    assert inputs.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert targets.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert inputs.dtype == np.int32
    assert token_windows(np.arange(8), 3, stride=2)[0][:, 0].tolist() == [0, 2, 4]
    assert len(token_windows(np.arange(4), 3)[0]) == 1
    with pytest.raises(ShapeError, match="at least 4"):
        token_windows(np.arange(3), 3)


def test_description_tells_content_and_order_apart() -> None:
    base = numbers().describe()
    assert numbers().describe() == base
    assert numbers(seed=1).describe() != base
    assert ArrayData(inputs=np.arange(10), targets=np.arange(10) * 10, mask=np.arange(10) + 99).describe() != base
