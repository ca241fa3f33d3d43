"""Every operation against plain formulas, and its gradient against central differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graph.formulas import FORMULAS
from tests.graph.formulas.elements import A
from tests.graph.op_cases import OP_CASES, OPEN
from tests.graph.op_cases.case import OpCase, case_graph, case_outputs
from tests.layers.test_vjp import MOST, differences
from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.graph import GraphBuilder, differentiate, interpret
from volumetric.graph.operations import OPS

WITHOUT_GRADIENT = {
    "unary_grad",
    "softmax_grad",
    "entmax_grad",
    "norm_grad",
    "norm_param_grad",
    "pool_max_grad",
    "recurrent_grad",
    "cell_grad",
    "depthwise_conv_grad",
    "edge_attend_grad",
    "assign",
    "update",
}
"""Operations that only appear in gradients, or after them."""


def in_float64(case: OpCase) -> list[A]:
    return [x if np.issubdtype(x.dtype, np.integer) else x.astype(np.float64) for x in case.inputs]


@pytest.mark.thorough
@pytest.mark.parametrize("name", OP_CASES)
def test_an_operation_computes_its_formula(name: str) -> None:
    case = OP_CASES[name]
    with np.errstate(all="ignore"):
        want = FORMULAS[case.op](in_float64(case), case.attrs)
    for dtype, tolerance in ((np.float64, 1e-7), (np.float32, 2e-5)):
        got = case_outputs(case, dtype)
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert g.dtype == dtype
            assert g.shape == w.shape
            finite = w[np.isfinite(w)]
            scale = max(1.0, float(np.abs(finite).max(initial=0)))
            np.testing.assert_allclose(g / scale, w / scale, rtol=tolerance, atol=tolerance)


def test_every_operation_has_cases_and_a_formula() -> None:
    assert {case.op for case in OP_CASES.values()} == set(OPS) - OPEN == set(FORMULAS)


def test_every_operation_has_a_gradient_unless_it_ends_differentiation() -> None:
    without = {name for name, op in OPS.items() if op.vjp is None and op.vjp_of_all is None}
    assert without == WITHOUT_GRADIENT | OPEN - {"last"}


SMOOTH = [
    name
    for name, case in OP_CASES.items()
    if OPS[case.op].vjp is not None
    and all(np.isfinite(x).all() for x in case.inputs)
    and sum(x.size for x in case.inputs) < 700
    and case.op not in ("fake_quant", "keep_largest", "scan")  # a scan has all of its outputs differentiated elsewhere
    and case.attrs.get("name") not in ("mask", "mul_nonzero")
    and "large" not in name
    and "equal" not in name
]


def with_seeds(case: OpCase) -> tuple[Any, list[int]]:
    """Graph of ``Σ seed · output`` and of its gradients; which inputs have one."""
    work = GraphBuilder()
    inputs = [work.input("x", x.shape, "int32" if x.dtype == np.int32 else "float32") for x in case.inputs]
    outputs = work.emit(case.op, inputs, **case.attrs)[:1]
    seeds = {i: work.input("seed", work.shape(i)) for i in outputs}
    wanted = [i for i, x in zip(inputs, case.inputs, strict=True) if x.dtype != np.int32]
    grads = differentiate(work, seeds, wanted)
    return work.finish([*outputs, *grads.values()]), list(grads)


@pytest.mark.thorough
@pytest.mark.parametrize("name", SMOOTH)
def test_a_gradient_equals_central_differences(name: str) -> None:
    case = OP_CASES[name]
    graph, with_gradient = with_seeds(case)
    xs = in_float64(case)
    rng = np.random.default_rng(3)
    seed = rng.standard_normal(graph.tensors[graph.outputs[0]].shape)
    _, *grads = interpret(graph, [*xs, seed], {}, np.float64)
    assert with_gradient or case.attrs.get("name") in ("sign", "floor", "greater")
    for i, grad in zip(with_gradient, grads, strict=True):

        def total() -> float:
            return float((interpret(graph, [*xs, seed], {}, np.float64)[0] * seed).sum())

        want = differences(total, xs[i], MOST)
        looked_at = np.isfinite(want)
        assert looked_at.sum() == min(MOST, want.size)
        grad, want = grad[looked_at], want[looked_at]
        scale = max(np.abs(want).max(initial=0), 1e-3)
        np.testing.assert_allclose(grad / scale, want / scale, rtol=0, atol=2e-6, err_msg=f"input {i}")


def test_rounding_passes_gradients_straight_through() -> None:
    case = OP_CASES["fake-int4:g32"]
    graph, _ = with_seeds(case)
    seed = np.random.default_rng(1).standard_normal(case.inputs[0].shape)
    np.testing.assert_array_equal(interpret(graph, [*in_float64(case), seed], {}, np.float64)[1], seed)


@pytest.mark.parametrize("name", ["binary-mask", "binary-mul_nonzero", "rows-keep-plain"])
def test_what_is_switched_off_has_no_gradient(name: str) -> None:
    case = OP_CASES[name]
    graph, with_gradient = with_seeds(case)
    xs = in_float64(case)
    off = np.isneginf(FORMULAS[case.op](xs, case.attrs)[0]) if case.op == "keep_largest" else xs[1] == 0
    assert 0 < off.sum() < off.size
    seed = np.where(off, np.nan, 2.0)
    _, *grads = interpret(graph, [*xs, seed], {}, np.float64)
    if case.attrs.get("name") != "mul_nonzero":
        assert with_gradient == [0]
        np.testing.assert_array_equal(grads[0], np.where(off, 0, 2))
        return
    np.testing.assert_array_equal(grads[0], seed * xs[1])
    np.testing.assert_array_equal(grads[1], np.where(off, 0, 2 * xs[0]))


def test_gradients_of_gradients_are_refused() -> None:
    work = GraphBuilder()
    x = work.input("x", (2, 3))
    y = work.softmax(x)
    seed = work.input("seed", (2, 3))
    g = differentiate(work, {y: seed}, [x])[x]
    with pytest.raises(UnsupportedError, match="softmax_grad"):
        differentiate(work, {g: seed}, [x])


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "message"),
    [
        (
            "gemm",
            [(1, 2, 3), (1, 2, 3)],
            {"trans_a": False, "trans_b": False, "groups": 1, "activation": "linear"},
            "cannot multiply",
        ),
        (
            "gemm",
            [(4, 2, 3), (3, 3, 2)],
            {"trans_a": False, "trans_b": False, "groups": 4, "activation": "linear"},
            "cannot give",
        ),
        ("binary", [(2, 3), (2, 4)], {"name": "add"}, "do not broadcast"),
        ("binary", [(2, 3), (2, 3)], {"name": "pow"}, "unknown name"),
        ("reduce", [(2, 3)], {"name": "sum", "axes": (1, 0)}, "must be ascending axes"),
        ("reduce", [(2, 0)], {"name": "max", "axes": (1,)}, "got an empty axis"),
        ("slice", [(2, 3)], {"starts": (0, 0), "stops": (2, 4)}, "out of bounds"),
        ("reshape", [(2, 3)], {"shape": (5,)}, "cannot reshape"),
        ("keep_largest", [(2, 3)], {"k": 4}, r"k must be 1 … 3"),
        ("update", [(3,), (3,), (5,)], {"name": "adamw", "in_place": True}, "needs 2 slots"),
        ("twist", [(3,)], {}, "no operation"),
    ],
)
def test_what_does_not_fit_is_refused(
    op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], message: str
) -> None:
    work = GraphBuilder()
    with pytest.raises((ShapeError, SpecError), match=message):
        work.emit(op, [work.input("x", shape) for shape in shapes], **attrs)


def test_only_the_first_output_has_a_gradient() -> None:
    work = GraphBuilder()
    x = work.input("x", (2, 3))
    stats = work.emit("norm", (x,), kind="rms", eps=1e-5, unit_offset=False)[1]
    with pytest.raises(UnsupportedError, match="only the first output of norm"):
        differentiate(work, {stats: work.input("seed", (2, 3))}, [x])


def test_a_case_graph_is_one_node() -> None:
    assert [node.op for node in case_graph(OP_CASES["gemm-plain"]).nodes] == ["gemm"]
