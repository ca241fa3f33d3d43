"""Keys and values of constants, which are computed once instead of in each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.devices import device
from tests.layers.test_vjp import arrays
from tests.oracles import oracle
from tests.oracles.memory import Memory
from volumetric.network.weight_store import Params, WeightStore
from volumetric.program import Canvas, Edge, In, Out, Program, Region, Tile
from volumetric.program.layer.attention import BY_HEADS
from volumetric.program.layer.dispatch_plan import plan_of
from volumetric.program.layer.program_layer import Program as Layer

WIDE = 32
"""A constant of 16 rows of which is worth while."""
FACTS = {
    "told": Region(((0, 4), (0, 4)), carrier="constant"),
    "held": Region(((4, 5), (0, 1)), carrier="constant", slots=16),
    "few": Region(((4, 5), (1, 2)), carrier="constant"),
    "eye": Region(((4, 6), (2, 4)), clock="every(2)"),
    "act": Region(((6, 10), (0, 4))),
}


def reading(rule: str, share: Any = "edge", **options: Any) -> Layer:
    """Two regions that read all constants, a region that is none, and rows of one of before."""
    edges = [
        Edge("eye", "act"),
        *(Edge(reads, "act", rule=rule, **options) for reads in ("told", "few")),
        Edge("held", "act", rule=rule),
        Edge("told", "eye", rule=rule),
        Edge("told", "act", rule=rule, lag=2),
        Edge("act", "act", rule=rule, **options),
    ]
    ports = {"seen": In("eye", 3), "motor": Out("act", 2)}
    return Layer(program=Program(Canvas(1, (10, 4), WIDE, FACTS), edges, ports, heads=2, share=share))


def parameters(spec: Layer) -> dict[str, np.ndarray]:
    """Draw float32 parameters that keep the variance of rows: matrices of standard deviation ``1/√columns``.

    Six rows are a long way: with ``1/2``, as `arrays` draws, scores grow to 1e7, every weight is 0 or 1, and rounding
    the parameters once to float32 moves the result in float64 by 5e-5 where one score is near 0. Then the order of sums
    in a BLAS decides a comparison at 2e-5. Drawn like this, the same rounding moves it by at most 4e-7.
    """
    p, _ = arrays(spec, (2, 6, 3), 1)
    matrices = {key for key, of in p.items() if of.ndim == 2 and key.endswith(".weight")}
    return {
        key: (2 * of / of.shape[1] ** 0.5 if key in matrices else of).astype(np.float32)  # `arrays` draws them at 1/2
        for key, of in p.items()
    }


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.parametrize(
    "spec",
    [
        *(reading(rule) for rule in sorted(BY_HEADS)),
        reading("cross", share="rule"),
        reading("linear", share="rule"),
        reading("cross", mask=Tile((10, 2))),
        reading("cosine", mask=Tile((10, 2))),
    ],
    ids=lambda spec: f"{spec.program.edges[1].rule}-{spec.program.share}",
)
def test_known_keys_and_values_give_the_same(spec: Layer, name: str) -> None:
    """As NumPy computes all of it in each row, in two calls with resets and row by row."""
    rng = np.random.default_rng(3)
    x, resets = rng.standard_normal((2, 6, 3)).astype(np.float32), np.zeros((2, 6))
    resets[0, 2] = resets[1, 4] = 1
    p = parameters(spec)
    params = Params({f"0.0.0.0/{key}": WeightStore.from_array(of) for key, of in p.items()})
    p = {key: of.astype(np.float64) for key, of in p.items()}
    want = oracle(spec).forward(p, x.astype(np.float64), memory=Memory(streams=2, resets=resets))[0]
    stream = device(name).stream(spec.program.network(), params, batch=2)
    calls = (slice(0, 2), slice(2, 3), slice(3, 6))
    got = [stream.run({"seen": x[:, at]}, resets=resets[:, at])["motor"] for at in calls]
    np.testing.assert_allclose(np.concatenate(got, 1), want, rtol=0, atol=1e-5 * max(1, np.abs(want).max()))


def test_only_what_is_worth_while_is_apart() -> None:
    """Of constants, as they are now, and of some size; all else stays side by side."""
    facts = reading("cross").facts
    known = {
        task.wire.name: group.constant_rows for group in plan_of(facts, folded=True).groups for task in group.tasks
    }
    assert {name for name, rows in known.items() if rows == 16} == {"act<told#0", "act<held#0", "eye<told#0"}
    assert sum(known.values()) == 48
    assert not any(group.constant_rows for group in plan_of(facts).groups)
    pooled = reading("pooling").facts
    assert not any(group.constant_rows for group in plan_of(pooled, folded=True).groups)
