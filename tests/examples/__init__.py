"""The examples of every kind of layer: one entry for each kind, from which all take theirs that walk the kinds.

These are `tests/layers`, `tests/parity`, `tests/learning`, docs/layers, docs/support.md and the benchmark of layers.
"""

from __future__ import annotations

from tests.examples.attention import ATTENTION
from tests.examples.cells import CELLS
from tests.examples.containers import CONTAINERS
from tests.examples.convolutions import CONVOLUTIONS
from tests.examples.curves import CURVES
from tests.examples.entry import Example, Examples
from tests.examples.fabrics import FABRICS
from tests.examples.norms import NORMS
from tests.examples.onnx_graphs import ONNX_GRAPHS
from tests.examples.pools import POOLS
from tests.examples.programs import PROGRAMS
from tests.examples.scaffolds import SCAFFOLDS
from tests.examples.softmaxes import SOFTMAXES

FAMILIES = (
    *(ATTENTION, CONVOLUTIONS, POOLS, NORMS, CELLS, SCAFFOLDS, FABRICS),
    *(PROGRAMS, CONTAINERS, CURVES, SOFTMAXES, ONNX_GRAPHS),
)
EXAMPLES: dict[str, Examples] = {kind: entry for family in FAMILIES for kind, entry in family.items()}
"""Kind of layer → its examples."""
CASES: dict[str, Example] = {name: case for entry in EXAMPLES.values() for name, case in entry.cases.items()}
"""Name → a small example, of all kinds."""
