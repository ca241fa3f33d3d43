"""WeightStore: forms of a tensor, the master, laziness, morphing."""

from __future__ import annotations

import numpy as np
import pytest

from volumetric import initialise, predict, sequential
from volumetric.base.errors import ArgumentError, CheckpointError, ImmutableError, ShapeError
from volumetric.dtypes import DTYPES, DType, Packed, Scheme, decode, encode
from volumetric.network.weight_difference import MorphReport
from volumetric.network.weight_store import Params, WeightStore
from volumetric.train import train

F32 = Scheme.parse("float32")
INT4 = Scheme.parse("int4:g32")


@pytest.fixture
def values(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((7, 40)).astype(np.float32)


def test_a_lazy_source_is_asked_each_time_and_not_retained(values: np.ndarray) -> None:
    calls = []

    def produce() -> Packed:
        calls.append(1)
        return Packed.from_array(values)

    released = []
    store = WeightStore(values.shape, F32, produce, release=lambda: released.append(1))
    assert np.array_equal(store.values(), values)
    assert np.array_equal(store.values(), values)
    assert len(calls) == 2
    store.release()
    assert released == [1]
    assert store.master() is store.master()
    assert len(calls) == 3


def test_pieces_are_the_stored_rows_in_order(values: np.ndarray) -> None:
    released = []
    whole = WeightStore.from_array(values)
    by_rows = WeightStore(
        values.shape,
        F32,
        lambda: pytest.fail("the whole tensor was read"),
        rows=lambda start, stop: Packed.from_array(values[start:stop]),
        release=lambda: released.append(1),
    )
    for store in (whole, by_rows):
        pieces = list(store.row_blocks(3))
        assert [piece.rows for piece in pieces] == [3, 3, 1]
        assert np.array_equal(np.concatenate([piece.payload for piece in pieces]), whole.packed().payload)
    assert released == [1, 1, 1]
    by_rows.assign(values + 1)
    assert np.array_equal(next(by_rows.row_blocks(7)).payload.view(np.float32), values + 1)


def test_a_source_of_another_shape_is_an_error(values: np.ndarray) -> None:
    store = WeightStore((3, 3), F32, Packed.from_array(values))
    with pytest.raises(ShapeError, match=r"\(3, 3\).*\(7, 40\)"):
        store.packed()


def test_what_is_assigned_is_what_is_stored_and_converted(values: np.ndarray) -> None:
    store = WeightStore.from_array(values)
    before = store.copy()
    store.assign(values * 2)
    assert np.array_equal(decode(store.convert(INT4)[0], np.float32), decode(encode(values * 2, INT4), np.float32))
    assert np.array_equal(store.values(), values * 2)
    assert np.array_equal(before.values(), values)


def test_assign_copies_checks_and_the_master_is_read_only(values: np.ndarray) -> None:
    store = WeightStore.from_array(values)
    mine = values.copy()
    store.assign(mine)
    mine[:] = 0
    assert np.array_equal(store.master(), values)
    with pytest.raises(ValueError, match="read-only"):
        store.master()[0, 0] = 1
    with pytest.raises(ShapeError, match="assign"):
        store.assign(values[:3])


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_morphing_back_restores_the_bits_while_the_master_is_kept(dtype: DType, values: np.ndarray) -> None:
    store = WeightStore.from_array(values)
    store.master()
    report = store.morph(Scheme.default(dtype))
    assert store.scheme.dtype is dtype
    assert report.cosine > 0.75
    assert report.nmse < 0.5
    back = store.morph(F32)
    assert (back.nmse, back.max_abs) == (0.0, 0.0)
    assert np.array_equal(store.values(), values)


def test_without_a_master_a_morph_is_final(values: np.ndarray) -> None:
    store = WeightStore.from_array(values)
    store.morph(INT4)
    store.morph(F32)
    assert np.array_equal(store.values(), decode(encode(values, INT4), np.float32))


def test_dropping_the_master_keeps_an_assigned_value(values: np.ndarray) -> None:
    store = WeightStore.from_array(values)
    store.assign(values + 1)
    store.drop_master()
    assert not store.has_master
    assert np.array_equal(store.values(), values + 1)


def test_reports_of_zero_tensors_are_defined() -> None:
    zero, one = np.zeros(3, np.float32), np.ones(3, np.float32)
    assert MorphReport.between(zero, zero) == MorphReport(nmse=0.0, cosine=1.0, max_abs=0.0)
    assert MorphReport.between(zero, one).nmse == 1.0
    assert MorphReport.between(one, zero).cosine == 0.0


def test_params_count_elements_by_scheme(values: np.ndarray) -> None:
    stores = {"a": WeightStore.from_array(values), "b": WeightStore.from_packed(encode(values[:2], INT4))}
    assert Params(stores).schemes() == {F32: 280, INT4: 80}


def test_arrays_may_stand_in_for_weights_but_not_in_place(values: np.ndarray) -> None:
    network = sequential(2, 3, 1)
    params = initialise(network, seed=1)
    other = {**params, "0.0.0.0/weight": np.zeros((3, 2), np.float64), "0.0.0.0/bias": [0, 0, 0]}
    x = np.ones((2, 2), np.float32)
    np.testing.assert_allclose(predict(network, other, x, device="reference"), [[float(params["1.0.0.0/bias"][0])]] * 2)
    assert train(network, x, x[:, :1], params=other, epochs=1, device="reference").steps == 1
    with pytest.raises(ImmutableError, match="in place"):
        params["0.0.0.0/weight"] = values
    for wrong in ("text", [[1], [1, 2]]):
        with pytest.raises(ArgumentError, match="no array of numbers"):
            Params({**params, "0.0.0.0/weight": wrong})
    with pytest.raises(CheckpointError, match=r"has shape \(4, 2\)"):
        predict(network, {**params, "0.0.0.0/weight": np.zeros((4, 2))}, x, device="reference")
    with pytest.raises(ArgumentError, match="expected weights, got NoneType"):
        predict(network, None, x, device="reference")  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_a_weight_has_the_members_of_arrays_that_read() -> None:
    weight = initialise(sequential(2, 3), seed=1)["0.0.0.0/weight"]
    values = weight.numpy()
    assert weight.mean() == values.mean()
    assert weight.T.shape == weight.reshape(2, 3).shape == (2, 3)
    assert weight.tolist() == values.tolist()
    with pytest.raises(AttributeError, match="numpy"):
        weight.fill(0)
