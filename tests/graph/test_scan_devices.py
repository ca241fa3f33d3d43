"""Scans on devices, forward and backward, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import FAST, graphs
from tests.graph.agreement import agree
from tests.graph.scans import SCANS, emit
from tests.graph.test_scan import with_gradients
from volumetric.base.errors import ShapeError
from volumetric.graph import NumpyGraphs


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("case", SCANS)
def test_a_scan_and_its_gradients_agree_with_the_interpreter(case: str, name: str) -> None:
    graph, _, _ = with_gradients(SCANS[case])
    rng = np.random.default_rng(1)
    seeds = [graph.tensors[i].shape for i in graph.inputs[len(SCANS[case].arrays) :]]
    inputs = [*SCANS[case].arrays, *(rng.standard_normal(shape).astype(np.float32) for shape in seeds)]
    found, want = (one.compile(graph, one.store()).run(inputs) for one in (graphs(name), NumpyGraphs(np.float64)))
    for i, (got, right) in enumerate(zip(found, want, strict=True)):
        agree(got, right.astype(np.float32), f"output {i}")


@pytest.mark.parametrize("name", FAST)
def test_an_id_of_any_step_is_checked(name: str) -> None:
    case = SCANS["ids"]
    work, _, outputs = emit(case)
    program = graphs(name).compile(work.finish(outputs), graphs(name).store())
    for wrong in (-1, 7):
        ids = case.xs[0].copy()
        ids[3, 1] = wrong
        with pytest.raises(ShapeError, match="0 … 6"):
            program.run([ids, *case.arrays[1:]])
