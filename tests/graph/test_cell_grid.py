"""Windows of every cell, as the layer's own code has them: lengths around a chunk, few streams and many, any resets.

What the laws of sequences hold at one size (`test_sequence_laws`) is held here to the definition at several.
"""

from __future__ import annotations

import itertools
import os
from functools import cache

import numpy as np
import pytest

from tests.devices import graphs
from tests.graph.test_layers import close
from tests.layers.test_vjp import arrays
from tests.oracles import oracle
from tests.oracles.memory import Memory
from volumetric.graph import GraphBuilder, differentiate
from volumetric.layers import LSTM, MLSTM, SLSTM, AGaLiTe, Axon, AxonLinear, CausalConv1d, LayerSpec, XLAttention
from volumetric.layers.emit_scope import Scope

WIDTH, CHUNK = 6, 4
CELLS: dict[str, LayerSpec] = {
    "lstm": LSTM(input_size=WIDTH, hidden_size=WIDTH),
    "causal_conv1d": CausalConv1d(channels=WIDTH, kernel_size=CHUNK),
    "slstm": SLSTM(embed_dim=WIDTH, num_heads=2, kernel_size=CHUNK),
    "mlstm": MLSTM(embed_dim=WIDTH, num_heads=2, kernel_size=2, chunk_size=CHUNK),
    "xl_attention": XLAttention(embed_dim=WIDTH, num_heads=2, memory=CHUNK),
    "agalite": AGaLiTe(embed_dim=WIDTH, num_heads=2, eta=2),
    "axon": Axon(in_features=WIDTH, out_features=WIDTH, activation="silu"),
    "axon_linear": AxonLinear(in_features=WIDTH, out_features=WIDTH, mix="none"),
}
WHOLE = os.environ.get("VOLUMETRIC_WHOLE_GRID") == "1"
"""Every combination for every cell on both devices, which takes minutes, instead of some that cover all pairs."""
LENGTHS = (1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3, 8 * CHUNK + 3)
SHAPES = [
    (2, 8 * CHUNK + 3, "random"),  # more than a block of rows that attention takes together
    (1, 1, "none"),
    (17, 1, "every"),
    (1, 2, "first"),
    (17, CHUNK - 1, "random"),
    (1, CHUNK, "every"),
    (17, CHUNK, "none"),
    (1, CHUNK + 1, "random"),
    (17, 2 * CHUNK + 3, "random"),
    (1, 2 * CHUNK + 3, "first"),
]
"""Streams, rows, resets: each length, each number of streams and each kind of resets with every other kind of thing."""
PLACES = [(cell, "cpu") for cell in CELLS] + [("mlstm", "gpu"), ("slstm", "gpu")]
if WHOLE:
    SHAPES = list(itertools.product((1, 17), LENGTHS, ("none", "random", "every", "first")))
    PLACES = list(itertools.product(CELLS, ("cpu", "gpu")))


def resets_of(kind: str, batch: int, rows: int) -> np.ndarray:
    found = np.zeros((batch, rows), np.float32)
    if kind == "random":
        found[np.random.default_rng(batch + rows).random((batch, rows)) < 0.3] = 1
    found[:, : {"first": 1, "every": rows}.get(kind, 0)] = 1
    return found


@cache
def own(cell: str, batch: int, rows: int, kind: str) -> tuple[dict[str, np.ndarray], ...]:
    """Parameters, what goes in, and what the layer's own code makes of it in float64; states begin as something."""
    spec, rng = CELLS[cell], np.random.default_rng(rows)
    p, x = arrays(spec, (batch, rows, WIDTH), seed=11)
    begun = {s.name: np.abs(rng.standard_normal((batch, *s.shape))) for s in spec.states()}
    if "age" in begun:  # a number of rows that there were
        begun["age"] = np.full((batch, 1), float(CHUNK))
    if "tick" in begun:
        begun["tick"] = np.ones((batch, 1))
    resets, gy = resets_of(kind, batch, rows), rng.standard_normal((batch, rows, WIDTH))
    memory = Memory(1, dict(begun), streams=batch, resets=resets)
    y, saved = oracle(spec).forward(p, x.astype(np.float64), memory=memory)
    gx = oracle(spec).vjp(p, saved, gy).inputs[0]
    assert gx is not None
    given = {"x": x, "resets": resets, "gy": gy, **{f"state/{name}": v for name, v in begun.items()}}
    return dict(p), given, {"output": y, "gx": gx, **{f"state {name}": memory.values[name] for name in begun}}


@pytest.mark.thorough
@pytest.mark.parametrize(("cell", "where"), PLACES)
def test_a_window_is_what_the_layer_makes_of_it(cell: str, where: str) -> None:
    spec = CELLS[cell]
    for batch, rows, kind in SHAPES if where == "cpu" or WHOLE else SHAPES[-4:-1]:
        p, given, want = own(cell, batch, rows, kind)
        work = GraphBuilder()
        x, gy = (work.input(n, (batch * rows, WIDTH)) for n in ("x", "gy"))
        resets = work.input("resets", (batch, rows)) if kind != "none" else None
        states = {n.removeprefix("state/"): v for n, v in given.items() if n.startswith("state/")}
        held = {f"cell/{name}": work.input(name, v.shape) for name, v in states.items()}
        scope = Scope(
            work=work, param=work.stored_tensor, path="cell", sequences=batch, resumes=True, resets=resets, states=held
        )
        y = scope.emit(spec, x)
        grads = differentiate(work, {y: gy}, [x])
        device = graphs(where)
        store = device.store()
        for name, value in p.items():
            store.write(name, value.astype(np.float32))
        graph = work.finish([y, grads[x], *held.values()])
        flat = [given[n].reshape(batch * rows, WIDTH) for n in ("x", "gy")]
        feeds = [*flat, *([] if resets is None else [given["resets"]]), *states.values()]
        found = device.compile(graph, store).run([v.astype(np.float32) for v in feeds])
        what = f"{batch} streams of {rows} rows, {kind} resets"
        for (name, right), got in zip(want.items(), found, strict=True):
            close(got.reshape(right.shape), right.astype(np.float32), 2e-5 if name != "gx" else 2e-4, f"{name}: {what}")
