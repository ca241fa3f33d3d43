"""Running one layer: on a device, forward and backward in one graph, and with its own float64 reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.devices import graphs
from tests.examples.entry import Example
from tests.oracles import oracle
from tests.parity.table import TOLERANCE, Role
from volumetric.base._typing import Array
from volumetric.dtypes import Scheme, decode, encode
from volumetric.graph import Graph, GraphBuilder, differentiate
from volumetric.layers import Embedding
from volumetric.layers.emit_scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Parameters, input, and the gradient of the output."""

    params: dict[str, Array]
    x: Array
    gy: Array


def data(example: Example, seed: int) -> Data:
    """Random numbers for an example, float32; no parameter is zero."""
    spec, shape = example
    rng = np.random.default_rng(seed)
    params = {
        s.name: (rng.standard_normal(s.shape) * 0.5 + (0.6 if s.init == "ones" else 0.0)).astype(np.float32)
        for s in spec.params()
    }
    params |= {
        s.name: (np.abs(rng.standard_normal(s.shape)) + (s.init == "ones")).astype(np.float32) for s in spec.buffers()
    }
    if isinstance(spec, Embedding):
        x = rng.integers(0, spec.num_embeddings, shape).astype(np.int32)
    else:
        x = rng.standard_normal(shape).astype(np.float32)
    gy = rng.standard_normal(spec.output_shape(shape)).astype(np.float32)
    return Data(params=params, x=x, gy=gy)


def expected(example: Example, of: Data, scheme: Scheme | None = None) -> dict[str, Array]:
    """Output and gradients of its NumPy code in float64, with the weights that `scheme` can hold."""
    spec, _ = example
    rounded = set() if scheme is None else {s.name for s in spec.params()}
    held = {k: decode(encode(w, scheme)) if scheme and k in rounded else w for k, w in of.params.items()}
    p = {key: w.astype(np.float64) for key, w in held.items()}
    x = of.x if of.x.dtype == np.int32 else of.x.astype(np.float64)
    numpy = oracle(spec)
    y, saved = numpy.forward(p, x)
    grads = numpy.vjp(p, saved, of.gy.astype(np.float64))
    found = {"forward": y, **{f"vjp {key}": g for key, g in grads.params.items()}}
    if grads.inputs[0] is not None:
        found["vjp input"] = grads.inputs[0]
    return found


def on_device(name: str, example: Example, of: Data, scheme: Scheme | None = None) -> dict[str, Array]:
    """The same in one run of a graph; with a scheme, forward goes through it and gradients straight to the master."""
    graph, outputs = graph_of(example, scheme)
    store = graphs(name).store()
    for key, w in of.params.items():
        store.write(key, w)
    return dict(zip(outputs, graphs(name).compile(graph, store).run([of.x, of.gy]), strict=True))


def graph_of(example: Example, scheme: Scheme | None = None, role: Role = "vjp") -> tuple[Graph, list[str]]:
    """What a device runs for a layer: inputs are x and, backward, the gradient of y; and what its outputs are."""
    spec, shape = example
    ids = isinstance(spec, Embedding)
    work = GraphBuilder()
    x = work.input("x", shape, "int32" if ids else "float32")
    used = stored = {s.name: work.stored_tensor(s.name, s.shape) for s in spec.tensors()}
    masters = {s.name: stored[s.name] for s in spec.params()}
    if scheme is not None:
        used = stored | {k: work.fake_quant(i, str(scheme)) for k, i in masters.items()}
    y = Scope(work=work, param=lambda path, _: used[path], path="layer").emit(spec, x)
    if role == "forward":
        return work.finish([y]), ["forward"]
    wanted = {f"vjp {key}": i for key, i in masters.items()} | ({} if ids else {"vjp input": x})
    grads = differentiate(work, {y: work.input("gy", work.shape(y))}, wanted.values())
    outputs = {"forward": y, **{what: grads[i] for what, i in wanted.items() if i in grads}}
    return work.finish(list(outputs.values())), list(outputs)


def agree(got: dict[str, Array], want: dict[str, Array], where: str) -> None:
    """Compare output and gradients; odd numbers must be equal."""
    missing = want.keys() - got.keys()  # a gradient of which nothing depends is 0
    assert not got.keys() - want.keys()
    assert not any(want[what].any() for what in missing)
    for what, value in want.items():
        if what in missing:
            continue
        # Terms of a gradient may cancel to nothing: it is as exact as its sum, which is of the size of the others.
        floor = 0.1 * max(0.1, *(_largest(other) for name, other in want.items() if name.startswith("vjp")))
        agree_one(got[what], value, f"{what} of {where}", 0.1 if what == "forward" else max(floor, 0.1))


def agree_one(got: Array, want: Array, what: str, floor: float = 0.1) -> None:
    """Compare; a failure names the worst place and its error, which is measured by the largest value, or `floor`."""
    assert got.shape == want.shape, what
    odd = ~np.isfinite(want)
    np.testing.assert_array_equal(got[odd], want[odd], err_msg=what)
    off = np.abs(np.where(odd, 0.0, got.astype(np.float64)) - np.where(odd, 0.0, want))
    scale = max(_largest(want), floor)
    if not off.max(initial=0.0) <= TOLERANCE * scale:  # NaN is not
        at = np.unravel_index(int(off.argmax()), off.shape)
        raise AssertionError(
            f"{what}: at {tuple(map(int, at))} {got[at]!r}, expected {want[at]!r}: off by {off.max():.3g}, "
            f"{off.max() / scale:.3g} of the largest value {scale:.3g}"
        )


def _largest(x: Array) -> float:
    return float(np.abs(x[np.isfinite(x)]).max(initial=0.0))
