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


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [
        *(
            f"{way}{cell}"
            for cell in ("lstm-17-3-33", "slstm-6-4-64-resets", "rnn_relu-17-3-33")
            for way in ("", "grad-")
        ),
        *("rows-softmax-odd", "rows-softmax-long", "rows-softmax-grad-long", "pool-max-odd-many", "pool-sum-1d-whole"),
        *(name for name in OP_CASES if name in ("norm-layer-3-33x65", "norm-grad-layer-3-33x65")),
    ],
)
def test_values_in_registers_are_those_of_their_rows(name: str) -> None:
    """Large GPUs hold rows and weights there, and share windows among many invocations."""
    case = OP_CASES[name]
    for i, (got, want) in enumerate(zip(outputs_on("large", case), case_outputs(case, np.float64), strict=True)):
        agree(got, want.astype(np.float32), f"output {i}")
