"""Memory of a sequence on the CPU: general over the declared states, grown by doubling, copied as far as it is held."""

from __future__ import annotations

import numpy as np
import pytest

from volumetric.base.errors import GenerationError
from volumetric.devices.cpu.cpu_state import CpuState, StateLayout, StateMemory
from volumetric.devices.cpu.kv_cache import KvPair, KVStorage, rows_in_blocks
from volumetric.layers import StateSpec
from volumetric.run.kv_value import QuantisedKv, as_numbers

SPECS = {
    "a/k": StateSpec(name="k", shape=(2, 5), kind="rows"),
    "a/v": StateSpec(name="v", shape=(2, 5), kind="rows"),
    "b/h": StateSpec(name="h", shape=(3,), kind="fixed"),
    "c/ring": StateSpec(name="ring", shape=(2, 2), kind="fixed", dtype="int32"),
    "d/seen": StateSpec(name="seen", shape=(4,), kind="rows"),
}


def state(storage: KVStorage = "float32") -> CpuState:
    attended = KvPair(kv_heads=2, head_dim=5, keys="a/k", values="a/v")
    shared = KvPair(kv_heads=1, head_dim=7)
    return CpuState(StateMemory(StateLayout(specs=SPECS, pairs=(attended, shared), storage=storage, limit=1000)))


def numbers(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    shapes = {key: (rows, *spec.shape) if spec.kind == "rows" else spec.shape for key, spec in SPECS.items()}
    return {key: rng.integers(-9, 9, shape).astype(SPECS[key].dtype) for key, shape in shapes.items()}


def check(of: CpuState, values: dict[str, np.ndarray]) -> None:
    for key, value in values.items():
        np.testing.assert_array_equal(of.read(key), value[: of.position] if SPECS[key].kind == "rows" else value)


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 300])
def test_what_is_filled_in_is_read_and_kept_when_it_grows_and_forks(rows: int) -> None:
    of, values = state(), numbers(rows)
    of.fill(values, rows)
    check(of, values)
    fork = of.fork()
    of.memory.reserve(rows, of.memory.free_rows(rows) + 1)
    assert of.memory.free_rows(rows) > fork.memory.free_rows(rows)
    check(of, values)
    of.fill(numbers(rows + 1), rows + 1)
    check(fork, values)
    of.reset()
    assert not of.read("b/h").any()  # pyright: ignore[reportAttributeAccessIssue]  (no codes)
    fresh = state()
    fresh.fill(values, rows)
    assert fresh.save() == fork.save()


@pytest.mark.parametrize("storage", ["float16", "int8"])
def test_keys_and_values_are_held_narrow_and_all_else_as_it_is(storage: KVStorage) -> None:
    of, values = state(storage), numbers(20)
    of.fill(values, 20)
    assert isinstance(of.read("a/k"), QuantisedKv) == (storage == "int8")
    for key in ("a/k", "a/v"):
        np.testing.assert_allclose(as_numbers(of.read(key), "float32"), values[key], rtol=0, atol=9 / 254)
    check(of, {key: values[key] for key in ("b/h", "c/ring", "d/seen")})


def test_a_fork_copies_what_is_held_alone() -> None:
    of = state()
    of.fill(numbers(300), 300)
    of.reset()
    of.advance(3)
    fork = of.fork()
    fork.advance(297)
    assert np.asarray(of.memory.read("a/v", 300))[20:].any()
    assert not np.asarray(fork.read("a/v"))[16:].any()


def test_a_fork_of_a_beginning_holds_it_and_no_more() -> None:
    attended = KvPair(kv_heads=2, head_dim=5, keys="a/k", values="a/v")
    specs = {key: spec for key, spec in SPECS.items() if spec.kind == "rows"}
    of = CpuState(StateMemory(StateLayout(specs=specs, pairs=(attended,), storage="float32", limit=1000)))
    values = {key: value for key, value in numbers(40).items() if key in specs}
    of.fill(values, 40)
    for position in (0, 1, 17, 40):
        fork = of.fork(position)
        assert fork.position == position
        check(fork, values)
    check(of, values)
    with pytest.raises(GenerationError, match="40 tokens to 41"):
        of.fork(41)
    full = state()
    full.fill(numbers(5), 5)
    with pytest.raises(GenerationError, match="has only the value"):
        full.fork(3)
    assert not full.fork(0).read("b/h").any()  # pyright: ignore[reportAttributeAccessIssue]  (no codes)
    check(full, numbers(5))


@pytest.mark.parametrize("storage", ["float32", "int8"])
@pytest.mark.parametrize("rows", [1, 16, 33, 300, 1000])
def test_what_is_kept_for_later_takes_what_is_held_alone(rows: int, storage: KVStorage) -> None:
    of, fresh = state(storage), state(storage)
    fresh.fill(numbers(rows), rows)
    of.memory.reserve(0, 1)
    of.memory.reserve(1, min(rows + 200, 1000) - 1)  # as of a sequence that was longer
    of.fill(numbers(rows), rows)
    before = of.save()
    of.shrink_to_fit()
    held = next(value for key, value in of.memory.plain.items() if key == "d/seen")
    assert len(held) == rows
    assert all(cache.capacity in (0, rows_in_blocks(rows)) for cache in of.memory.caches)
    assert of.save() == before == fresh.save()
    table = of.memory.table
    of.shrink_to_fit()
    assert of.memory.table == table  # there is nothing left to do
    fork = of.fork()
    if rows < 1000:
        fork.memory.reserve(rows, 1)
        fork.advance(1)
        fork.trim(0)
        of.memory.reserve(rows, 1)
    assert of.save() == before


def test_a_copy_of_a_beginning_does_not_take_the_memory_of_the_whole() -> None:
    attended = KvPair(kv_heads=2, head_dim=5, keys="a/k", values="a/v")
    specs = {key: spec for key, spec in SPECS.items() if key.startswith("a/")}
    of = CpuState(StateMemory(StateLayout(specs=specs, pairs=(attended,), storage="float32", limit=1000)))
    of.fill({key: value for key, value in numbers(900).items() if key in specs}, 900)
    assert of.fork(20).memory.nbytes <= of.memory.nbytes / 10
    assert of.fork(20).memory.free_rows(20) > 0  # it goes on
    assert of.fork().memory.nbytes == of.memory.nbytes


def test_layers_that_grow_together_have_one_block() -> None:
    names = "abc"
    specs = {f"{at}/{what}": SPECS["a/k"] for at in names for what in "kv"}
    pairs = tuple(KvPair(kv_heads=2, head_dim=5, keys=f"{at}/k", values=f"{at}/v") for at in names)
    of = CpuState(StateMemory(StateLayout(specs=specs, pairs=pairs, storage="float32", limit=1000)))
    for rows in (1, 40, 900):
        of.memory.reserve(0, rows)
        [starts, *_] = zip(*(cache.words for cache in of.memory.caches), strict=True)
        size = of.memory.nbytes // len(names)
        assert [start - starts[0] for start in starts] == [0, size, 2 * size]
