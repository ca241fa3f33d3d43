"""What a row of attention sees: its window counts both ways where rows see each other, on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cpu.networks import random_params
from tests.devices import FAST, device
from tests.layers.graphed import graphed
from tests.parity.run import agree_one
from tests.train.problems import chain
from volumetric.layers import MultiHeadAttention, Rope
from volumetric.network import Network
from volumetric.run import RunOptions, lower

WINDOWS = (1, 5, 17)

FORMS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "cpu float32": ("cpu", "float32", {}),
    "cpu float16 cache": ("cpu", "float32", {"kv_dtype": "float16"}),
    "cpu int8 cache": ("cpu", "float32", {"kv_dtype": "int8"}),
    "cpu int8": ("cpu", "int8:g32", {}),  # prompts multiply in bfloat16 where the processor can
    "cpu bfloat16": ("cpu", "bfloat16", {"compute": "bfloat16"}),
    "gpu float32": ("gpu", "float32", {}),
    "gpu float16 cache": ("gpu", "int8:g32", {}),
}


def attention(window: int, *, causal: bool, batched: bool = False, rows: int = 0) -> Network:
    spec = MultiHeadAttention(
        embed_dim=12, num_heads=4, num_kv_heads=2, head_dim=10, rope=Rope(dim=10), causal=causal, window=window
    )
    network = chain(spec, inputs=12)
    return Network(
        grid=network.grid, layers=network.layers, input_shape=(rows, 12) if batched else (12,), input_dtype="float32"
    )


def outputs(form: str, network: Network, *inputs: np.ndarray) -> list[np.ndarray]:
    """Output of all rows of each input, each in a call of its own."""
    name, scheme, options = FORMS[form]
    plan = lower(network)
    executable = device(name).compile(
        plan, random_params(plan, np.random.default_rng(0), scheme), RunOptions(context=64, **options)
    )
    return [executable.forward(executable.new_state(), x, last_only=False) for x in inputs]


@pytest.mark.thorough
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both ways"])
@pytest.mark.parametrize("form", FORMS)
def test_a_row_has_influence_on_its_window_alone(form: str, causal: bool) -> None:
    """Rows in sight of a changed row change; all others keep every bit."""
    for rows, changed in ((3, 1), (39, 20)):
        x = np.random.default_rng(rows).standard_normal((rows, 12)).astype(np.float32)
        other = x.copy()
        other[changed] += 1
        distance = np.arange(rows) - changed
        for window in WINDOWS:
            network = attention(window, causal=causal)
            before, after = outputs(form, network, x, other)
            moved = (before != after).any(axis=1)
            sees = (np.abs(distance) < window) & ((distance >= 0) | (not causal))
            np.testing.assert_array_equal(moved, sees, err_msg=f"{rows} rows, window {window}")


@pytest.mark.thorough
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both ways"])
@pytest.mark.parametrize("name", FAST)
def test_windows_are_those_of_the_layer_itself(name: str, causal: bool) -> None:
    """As rows of a sequence, through the fused plan, and as one of a batch, through graphs."""
    for rows in (1, 7, 33):
        x = np.random.default_rng(rows).standard_normal((rows, 12)).astype(np.float32)
        for window in WINDOWS:
            network = attention(window, causal=causal)
            params = random_params(lower(network), np.random.default_rng(0))
            spec = next(iter(network.layers.values()))
            own = {key.partition("/")[2]: store.values().astype(np.float64) for key, store in params.items()}
            want = graphed(spec).forward(own, x.astype(np.float64))[0]
            agree_one(outputs(f"{name} float32", network, x)[0], want, f"window {window} of {rows} rows")
            if rows == 7:
                sample = attention(window, causal=causal, batched=True, rows=rows)
                agree_one(outputs(f"{name} float32", sample, x[None])[0][0], want, f"window {window} of a batch")
