"""Cases of every operation over odd shapes: 1, primes, a little more and less than a tile, and nothing at all.

Any device is tested with them: `case.case_graph` makes a graph of one node. All draw from one generator, in the order
of these imports.
"""

from __future__ import annotations

from tests.graph.op_cases.case import OpCase
from tests.graph.op_cases.elements import BINARY_CASES, GEMM_CASES, MOVING_CASES, UNARY_CASES, UNARY_GRAD_CASES
from tests.graph.op_cases.rows import NORMS_CASES, ROWS_CASES
from tests.graph.op_cases.spatial import IMAGES_CASES, POOLS_CASES
from tests.graph.op_cases.temporal import SCANS_CASES, SEQUENCES_CASES, crossed
from tests.graph.op_cases.training import TRAINING_CASES
from tests.tiers import alike
from volumetric.graph.numeric.activations import ACTIVATIONS
from volumetric.graph.operations.elementwise import SLOPES
from volumetric.run.graph.network_graph import DIALECT, GROUPED

OPEN = DIALECT | GROUPED | {"last", "delay"}
"""Operations for open rows: whole networks hold them to the layers (`test_open_rows`), bound graphs have none."""

_KNOWN = {
    "crossed-known": crossed(2, 3, 5, 7, 2, 3, known=11),
    "crossed-known-one": crossed(1, 1, 1, 1, 1, 1, known=1),
    "crossed-known-masked": crossed(2, 2, 19, 3, 3, 16, masked=True, known=3),
    "crossed-known-many": crossed(1, 3, 67, 33, 4, 16, known=40),
}

OP_CASES: dict[str, OpCase] = {
    f"{family}-{name}" if family else name: case
    for family, cases in {
        "gemm": GEMM_CASES,
        "unary": UNARY_CASES,
        "unary-grad": UNARY_GRAD_CASES,
        "binary": BINARY_CASES,
        "move": MOVING_CASES,
        "rows": ROWS_CASES,
        "norm": NORMS_CASES,
        "": {**IMAGES_CASES, **POOLS_CASES, **SEQUENCES_CASES, **SCANS_CASES, **TRAINING_CASES, **_KNOWN},
    }.items()
    for name, case in cases.items()
}
assert {*ACTIVATIONS} - {*SLOPES} == {"linear"}


def _operation(case: OpCase) -> tuple[object, ...]:
    """The operation, and which one of its functions."""
    return case.op, *(value for value in case.attrs.values() if isinstance(value, str))


alike({name: _operation(case) for name, case in OP_CASES.items()})
