"""Every operation against the interpreter, over odd shapes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu_graph.harness import graphs
from tests.graph.agreement import agree
from tests.graph.op_cases import OP_CASES, OPEN
from tests.graph.op_cases.case import OpCase, case_graph, case_outputs
from volumetric.devices.cpu.graph.cpu_program import CpuProgram
from volumetric.graph.operations import OPS


def program_of(case: OpCase, threads: int = 1) -> CpuProgram:
    graph = case_graph(case)
    device = graphs(threads)
    store = device.store()
    for tensor in graph.tensors_by_key.values():
        store.write(tensor.key or "", np.zeros(tensor.shape, np.float32))
    return device.compile(graph, store)


@pytest.mark.parametrize("name", OP_CASES)
def test_an_operation_agrees_with_the_interpreter(name: str) -> None:
    case = OP_CASES[name]
    found = program_of(case).run(case.inputs)
    expected = [value.astype(np.float32) for value in case_outputs(case, np.float64)]
    assert len(found) == len(expected)
    for i, (got, want) in enumerate(zip(found, expected, strict=True)):
        agree(got, want, f"output {i}")


@pytest.mark.thorough
@pytest.mark.parametrize("name", OP_CASES)
def test_any_number_of_threads_gives_the_same_bits(name: str) -> None:
    case = OP_CASES[name]
    program = program_of(case, 3)
    together = program.run(case.inputs)
    alone = program_of(case).run(case.inputs)
    for got, want in zip(together, alone, strict=True):
        np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32))


def test_every_operation_has_a_kernel() -> None:
    assert (
        graphs().operations - {"gemm_sum", "accumulate", "scatter_add", "cell_nodes", "update_squares"}
        == set(OPS) - OPEN
    )  # what rewriting alone makes
