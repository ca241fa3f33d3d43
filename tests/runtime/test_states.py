"""The laws of states, on every device: cut, go back, copy, save and restore, and go on as if nothing had been."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.devices import DEVICES, device
from tests.networks import tiny_llama
from tests.runtime.test_graph_executable import mixed
from volumetric.base.errors import CheckpointError, GenerationError, VolumetricError
from volumetric.network import Network, initialise
from volumetric.run import RunOptions, lower
from volumetric.run.checked_blob import BlobFormat
from volumetric.run.kv_value import QuantisedKv, as_codes, as_numbers
from volumetric.run.state_file import SEAL, _StateHeader

ROWS = 21
"""More than the 16 that keys keep side by side on the CPU."""
NETWORKS = {"rows": tiny_llama, "fixed": mixed}
PLACES = [(which, name) for which in NETWORKS for name in ("reference", "cpu")]
"""Where any cut is tried; a GPU compiles programs for each number of rows."""


@cache
def network(which: str) -> Network:
    return NETWORKS[which]()


@cache
def compiled(which: str, name: str, **options: Any) -> Any:
    of = network(which)
    return device(name).compile(lower(of), initialise(of, 3), RunOptions(context=64, **options))


@cache
def inputs(which: str) -> np.ndarray:
    rng = np.random.default_rng(5)
    of = network(which)
    if of.input_dtype == "int32":
        return rng.integers(0, 7, ROWS).astype(np.int32)
    return rng.standard_normal((ROWS, *of.input_shape)).astype(np.float32)


@cache
def whole(which: str, name: str) -> np.ndarray:
    executable = compiled(which, name)
    return executable.forward(executable.new_state(), inputs(which), last_only=False)


def close(got: np.ndarray, want: np.ndarray, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=atol * max(1.0, float(np.abs(want).max())))


def held(which: str, name: str, rows: int, **options: Any) -> Any:
    """A state that holds the first rows."""
    executable = compiled(which, name, **options)
    state = executable.new_state()
    if rows:
        executable.forward(state, inputs(which)[:rows])
    return state


def goes_on(which: str, name: str, state: Any, atol: float = 1e-5) -> None:
    """The state continues as the whole sequence does."""
    at = state.position
    close(compiled(which, name).forward(state, inputs(which)[at:], last_only=False), whole(which, name)[at:], atol)


@pytest.mark.parametrize(("which", "name"), PLACES)
@settings(max_examples=5, deadline=None)
@given(cut=st.integers(1, ROWS - 1), back=st.integers(0, ROWS - 1))
def test_a_sequence_may_be_cut_left_and_gone_back_to(which: str, name: str, cut: int, back: int) -> None:
    leave_and_come_back(which, name, cut, back)


@pytest.mark.thorough
@pytest.mark.parametrize(("which", "cut", "back"), [("rows", 17, 5), ("rows", 3, 20), ("fixed", 17, 4)])
def test_a_sequence_may_be_cut_left_and_gone_back_to_on_a_gpu(which: str, cut: int, back: int) -> None:
    leave_and_come_back(which, "gpu", cut, back)


def leave_and_come_back(which: str, name: str, cut: int, back: int) -> None:
    executable, x = compiled(which, name), inputs(which)
    state = held(which, name, cut)
    fork = state.fork()
    goes_on(which, name, state)
    assert (fork.position, state.position) == (cut, ROWS)
    goes_on(which, name, fork)
    fixed = which == "fixed"
    if fixed and back > 0:
        with pytest.raises(GenerationError, match="has only the value") as caught:
            state.trim(back)
        assert "fork" in str(caught.value.hint)
        assert state.position == ROWS
    else:
        state.trim(back)
        goes_on(which, name, state)
    state.reset()
    assert np.array_equal(executable.forward(state, x[:cut]), executable.forward(executable.new_state(), x[:cut]))


@pytest.mark.parametrize(("which", "name"), PLACES)
@settings(max_examples=4, deadline=None)
@given(cut=st.integers(0, ROWS - 1))
def test_a_restored_state_goes_on_with_the_same_bits(which: str, name: str, cut: int) -> None:
    save_and_restore(which, name, cut)


@pytest.mark.thorough
@pytest.mark.parametrize("which", NETWORKS)
def test_a_restored_state_goes_on_with_the_same_bits_on_a_gpu(which: str) -> None:
    save_and_restore(which, "gpu", 17)


def save_and_restore(which: str, name: str, cut: int) -> None:
    executable, rest = compiled(which, name), inputs(which)[cut:]
    state = held(which, name, cut)
    data = state.save()
    again = executable.restore(data)
    assert again.position == cut
    assert again.save() == data
    assert np.array_equal(executable.forward(again, rest), executable.forward(state, rest))


@pytest.mark.thorough
@pytest.mark.parametrize("which", NETWORKS)
@pytest.mark.parametrize("source", DEVICES)
@pytest.mark.parametrize("target", DEVICES)
def test_a_state_goes_on_on_another_device(which: str, source: str, target: str) -> None:
    data = held(which, source, 18).save()
    goes_on(which, target, compiled(which, target).restore(data), atol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("storage", ["float16", "int8"])
def test_narrow_keys_and_values_are_saved_as_they_are_held(storage: Any) -> None:
    executable = compiled("rows", "cpu", kv_dtype=storage)
    state = held("rows", "cpu", 18, kv_dtype=storage)
    data = state.save()
    assert len(data) < 0.7 * len(held("rows", "cpu", 18).save())
    again = executable.restore(data)
    rest = inputs("rows")[18:]
    wide = compiled("rows", "reference").restore(data)
    want = executable.forward(state, rest, last_only=False)
    assert np.array_equal(executable.forward(again, rest, last_only=False), want)
    # The others hold what the codes stand for.
    close(compiled("rows", "reference").forward(wide, rest, last_only=False), want, 2e-2)
    narrowed = executable.restore(held("rows", "reference", 18).save())
    close(executable.forward(narrowed, rest, last_only=False), want, 2e-2)


def test_halves_of_a_gpu_go_on_there_and_elsewhere() -> None:
    state = held("rows", "gpu", 18, kv_dtype="float16")
    data, executable = state.save(), compiled("rows", "gpu", kv_dtype="float16")
    assert state.read("1.0.0.1/k").dtype == np.float16
    assert executable.restore(data).save() == data
    rest = inputs("rows")[18:]
    want = executable.forward(state, rest, last_only=False)
    assert np.array_equal(executable.forward(executable.restore(data), rest, last_only=False), want)
    other = compiled("rows", "cpu", kv_dtype="float16")
    close(other.forward(other.restore(data), rest, last_only=False), want, 1e-2)


def test_codes_of_restored_numbers_are_those_of_the_kernel() -> None:
    """The same rows, rounded by attention as it goes and here: a scale may differ in its last bit."""
    made = held("rows", "cpu", 18, kv_dtype="int8")
    key = "1.0.0.1/v"  # of the first block: what comes in is not rounded yet
    exact = held("rows", "cpu", 18).read(key)
    coded, want = as_codes(exact), made.read(key)
    np.testing.assert_allclose(coded.scales, want.scales, rtol=2e-7)
    assert np.array_equal(coded.codes, want.codes)


def test_numbers_that_are_not_finite_stay_so() -> None:
    rows = np.array([[[1.0, np.nan], [np.inf, 2.0]]], np.float32)
    coded = as_codes(rows)
    assert np.isnan(coded.scales).all()
    assert np.isnan(QuantisedKv(coded.codes, coded.scales).values()).all()
    assert np.array_equal(as_numbers(np.array([1e6]), "float16"), [np.inf])


@pytest.mark.parametrize("name", DEVICES)
def test_bytes_that_do_not_fit_are_refused(name: str) -> None:
    executable = compiled("rows", name)
    data = held("rows", name, 3).save()
    for bad in (b"", b"VOLSTATE", data[:-1], data[:40], data + b"x", data[:60] + b"\0" + data[61:], "text", None):
        with pytest.raises(CheckpointError):
            executable.restore(bad)
    with pytest.raises(CheckpointError, match=r"of another network: 1\.0\.0\.0/k is missing"):
        compiled("fixed", name).restore(data)
    other = held("rows", name, 3)
    short = device(name).compile(lower(tiny_llama()), initialise(tiny_llama(), 3), RunOptions(context=2))
    with pytest.raises(GenerationError, match="do not fit its 2"):
        short.restore(data)
    goes_on("rows", name, other)


def test_what_a_header_says_is_checked_against_what_is_there() -> None:
    executable = compiled("rows", "reference")
    data = held("rows", "reference", 3).save()
    header, body = SEAL.unpack(data, _StateHeader)
    sealed = bytes(body)
    later = BlobFormat(magic=SEAL.magic, version=2, what="a saved state").pack(header, [sealed])
    with pytest.raises(CheckpointError, match="version 2, expected version 1"):
        executable.restore(later)
    for position in (-1, 0, 2, 4, 2**62):
        header.position = position
        with pytest.raises(VolumetricError) as caught:
            executable.restore(SEAL.pack(header, [sealed]))
        assert caught.value.hint
    header.position = 3
    for change in ({"dtype": "object"}, {"dtype": "int8"}, {"shape": (2**40, 2**40)}, {"shape": (0,)}, {"shape": ()}):
        wrong, _ = SEAL.unpack(data, _StateHeader)
        for field, value in change.items():
            setattr(wrong.states[0], field, value)
        with pytest.raises(CheckpointError):
            executable.restore(SEAL.pack(wrong, [sealed]))
    header.states = [header.states[0], *header.states[:-1]]
    with pytest.raises(CheckpointError):
        executable.restore(SEAL.pack(header, [sealed]))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_damage_gets_through(data: st.DataObject) -> None:
    saved = bytearray(held("rows", "reference", 2).save())
    at = data.draw(st.integers(0, len(saved) - 1))
    saved[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CheckpointError):
        compiled("rows", "reference").restore(bytes(saved))
