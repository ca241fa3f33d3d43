"""Every operation against the interpreter, over odd shapes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import narrowed_graphs
from tests.graph.agreement import agree
from tests.graph.op_cases import OP_CASES
from tests.graph.op_cases.case import OpCase, case_graph, case_outputs


def outputs_on(name: str, case: OpCase) -> list[np.ndarray]:
    graphs = narrowed_graphs(name)
    store = graphs.store()
    graph = case_graph(case)
    for tensor in graph.tensors_by_key.values():
        store.write(tensor.key or "", np.zeros(tensor.shape, np.float32))
    program = graphs.compile(graph, store)
    found = program.run(case.inputs)
    program.close()
    store.close()
    return found


@pytest.mark.parametrize("name", OP_CASES)
def test_an_operation_agrees_with_the_interpreter(name: str) -> None:
    case = OP_CASES[name]
    found = outputs_on("native", case)
    expected = [value.astype(np.float32) for value in case_outputs(case, np.float64)]
    assert len(found) == len(expected)
    for i, (got, want) in enumerate(zip(found, expected, strict=True)):
        agree(got, want, f"output {i}")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "caps"),
    # Both operations on each set of capabilities; masks and wide edges are read in the same cuts as plain ones.
    [
        ("crossed-many", "large"),
        ("crossed-wide", "least"),
        ("crossed-masked", "no subgroups, no immediates"),
        *(("weighed-many", caps) for caps in ("large", "least", "no subgroups, no immediates")),
    ],
)
def test_edges_of_programs_are_cut_for_other_gpus(name: str, caps: str) -> None:
    case = OP_CASES[name]
    [want] = case_outputs(case, np.float64)
    [got] = outputs_on(caps, case)
    agree(got, want.astype(np.float32), name)
