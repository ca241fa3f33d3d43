"""Drivers that end loops: kernels are cut so that none goes round too often, and what cannot be is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.devices import narrowed
from tests.gpu.modules import covering, modules
from tests.graph.agreement import agree
from tests.graph.op_cases.case import OpCase, case_graph, case_outputs, normal
from volumetric.base.errors import DeviceError, SpecError
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.graph import GpuGraphs
from volumetric.devices.gpu.kernels import attention
from volumetric.devices.gpu.kernels.attention import AttentionShape
from volumetric.devices.gpu.shaders import loop_rounds_bound
from volumetric.graph import NumpyGraphs

FEW = 768
"""Rounds after which the emulated driver ends loops."""


def kernel(body: str, before: str = "") -> str:
    return (
        f"const WG: u32 = 64u;\nconst K: u32 = 10u;\n{before}\n@compute @workgroup_size(WG)\nfn main() {{ {body} }}\n"
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("for (var i = 0u; i < 7u; i++) { a(); }", 7),
        ("for (var i = lid; i < K * 100u; i += WG) { }", 16),
        ("for (var i = 0u; i < K; i++) { for (var j = 0u; j < 3u; j++) { } }", 10 * (1 + 3)),
        ("for (var s = WG / 2u; s > 0u; s = s / 2u) { }", 6),
        ("for (var bit = K; bit > 0u; bit--) { }", 10),
        ("let end = min(unknown, K); for (var i = 0u; i < end; i++) { } for (var i = 0u; i < end; i++) { }", 20),
        ("//@rounds K / 4 + 1\nfor (; k < unknown; k += 4u) { }", 3),
        ("if (x) { f(2u, K); } f(1u, 3u);", 2 * (10 + 3)),
        ("for (var i = 0u; i < dims.size.y - dims.first; i++) { }", 50 - 20),
        ("for (var i = 0u; i < dims.more[1].z; i++) { }", 107),
    ],
)
def test_the_bound_of_a_kernel(body: str, expected: int) -> None:
    functions = (
        "struct Dims { count: u32, first: u32, size: vec4<u32>, more: array<vec4<u32>, 2> }\n"
        "fn f(a: u32, size: u32) -> u32 { for (var i = 0u; i < size; i++) { for (var j = 0u; j < 1u; j++) { } } }\n"
        "fn a() { }"
    )
    dims = [10, 20, 0, 0, 40, 50, 60, 70, *range(100, 108)]
    dims[14] = 107
    assert loop_rounds_bound(kernel(body, functions), dims) == expected


def test_a_loop_without_a_bound_is_an_error() -> None:
    with pytest.raises(SpecError, match="no bound is known for the loop `var i = 0u; i < count; i\\+\\+`") as error:
        loop_rounds_bound(kernel("for (var i = 0u; i < count; i++) { }"))
    assert "//@rounds" in (error.value.hint or "")


@pytest.mark.thorough
def test_every_kernel_has_a_bound() -> None:
    for module in covering(modules()):
        assert loop_rounds_bound(module.link().text, [1000] * 64) >= 0, module.dispatch


def _product(m: int, n: int, k: int, groups: int = 1) -> OpCase:
    draw = np.random.default_rng(1)  # whole numbers, whose sums are exact in any order
    inputs = tuple(draw.integers(-2, 3, (groups, rows, k)).astype(np.float32) for rows in (m, n))
    return OpCase(
        op="gemm", inputs=inputs, attrs={"groups": 1, "trans_a": False, "trans_b": True, "activation": "linear"}
    )


def _sequence(cell: str, length: int, size: int) -> Iterator[OpCase]:
    blocks = {"lstm": 4, "gru": 3}.get(cell, 1)
    states = [normal(2, size) for _ in range(2 if cell == "lstm" else 1)]
    weight = normal(blocks * size, size) * np.float32(0.5 / np.sqrt(size))
    keep = (np.random.default_rng(2).random((2, length)) > 0.01).astype(np.float32)
    inputs = (normal(2, length, blocks * size), weight, *states, keep)
    case = OpCase(op="recurrent", inputs=inputs, attrs={"cell": cell, "bias": False, "resets": True})
    yield case
    y, *last = case_outputs(case)[: len(states)]
    inputs = (normal(2, length, size), *last, y, *case_outputs(case)[len(states) :], weight, *states, keep)
    yield OpCase(op="recurrent_grad", inputs=inputs, attrs={"cell": cell, "resets": True, "last": len(states) > 1})


def run(graphs: GpuGraphs, case: OpCase) -> tuple[int, list[np.ndarray]]:
    """Launches, and results."""
    program = graphs.compile(case_graph(case), graphs.store())
    found = program.run(case.inputs)
    program.close()
    return len(program.calls), found


def compare(graphs: GpuGraphs, case: OpCase, launches: int) -> None:
    count, found = run(graphs, case)
    assert count == launches
    reference = NumpyGraphs(np.float64)
    expected = reference.compile(case_graph(case), reference.store()).run(case.inputs)
    for i, (got, want) in enumerate(zip(found, expected, strict=True)):
        agree(got, want.astype(np.float32), f"{case.op} {i}")


LONG = {
    "weight gradient": (_product(3, 2, 600_000), 2),
    "convolution's weight gradient": (_product(1, 3, 10, groups=30_000), 2),
    **{f"lstm {case.op}": (case, 5) for case in _sequence("lstm", 2500, 64)},
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", LONG)
def test_sums_and_sequences_beyond_the_rounds_of_a_software_gpu(name: str) -> None:
    graphs = narrowed("native").graphs()
    case, launches = LONG[name]
    if not 0 < graphs.context.caps.max_rounds <= 65535:
        launches = run(graphs, case)[0]
    compare(graphs, case, launches)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> GpuGraphs:
    """A GPU whose driver makes `FEW` rounds: the loops of every module are ended as it would end them."""
    opened = GpuDevice(narrow={"max_rounds": FEW})
    if opened.context.webgpu.dialect == "tint":
        pytest.skip("Tint refuses loops that end in the middle of uniform control flow, as drivers end them")
    webgpu = opened.context.webgpu
    create = webgpu.create_module

    def ended(device: Any, name: str, text: str) -> Any:
        head = f"var<private> rounds_made: u32 = 0u;\nconst ROUNDS_LEFT: u32 = {FEW}u;\n"
        stop = r"\g<0> if (rounds_made >= ROUNDS_LEFT) { break; } rounds_made++;"
        text = re.sub(r"\bfor \((?:[^;{]*;){2}[^{]*\{", stop, text)
        return create(device, name, head + text)

    monkeypatch.setattr(webgpu, "create_module", ended)
    return opened.graphs()


def _few_cases() -> dict[str, OpCase]:
    ids = np.random.default_rng(3).integers(0, 5, 1500).astype(np.int32)
    shares = normal(3000, 7)
    forward = OpCase(op="norm", inputs=(shares,), attrs={"kind": "layer", "eps": 1e-5, "unit_offset": False})
    stats = case_outputs(forward)[1]
    found = {
        "product": _product(3, 2, 5000),
        "groups": _product(1, 3, 10, groups=700),
        "sum": OpCase(op="reduce", inputs=(normal(400_000),), attrs={"name": "sum", "axes": (0,)}),
        "columns": OpCase(op="reduce", inputs=(normal(20_000, 5),), attrs={"name": "max", "axes": (0,)}),
        "rows by id": OpCase(op="scatter_rows", inputs=(normal(1500, 3), ids), attrs={"rows": 6}),
        "norm": OpCase(
            op="norm_param_grad", inputs=(normal(3000, 7), shares, stats), attrs={"kind": "layer", "bias": True}
        ),
    }
    for cell in ("lstm", "gru", "rnn_tanh"):
        found |= {f"{cell} {case.op}": case for case in _sequence(cell, 40, 33)}
    return found


FEW_CASES = _few_cases()


@pytest.mark.thorough
@pytest.mark.parametrize("name", FEW_CASES)
def test_what_a_driver_with_few_rounds_computes_is_right(few: GpuGraphs, name: str) -> None:
    compare(few, FEW_CASES[name], run(few, FEW_CASES[name])[0])


def test_what_cannot_be_cut_is_refused() -> None:
    few = GpuDevice(narrow={"max_rounds": FEW}).graphs()
    case = OpCase(op="keep_largest", inputs=(normal(2, 9000),), attrs={"k": 3})
    with pytest.raises(DeviceError, match=f"graph/keep_largest needs .* loop rounds; .* stops after {FEW}") as error:
        run(few, case)
    assert "device='cpu'" in (error.value.hint or "")
    shape = AttentionShape(heads=1, kv_heads=1, head_dim=8, context=65536, scale=1.0)
    with pytest.raises(DeviceError, match="attend_rows needs"):
        few.context.bind(attention.rows(shape, few.context.caps), {})
