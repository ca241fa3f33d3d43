"""What the parity suite covers: layer kind × role × numeric type × device, and the shapes of the sweep.

`covered` is the table itself, from which `docs/support.md` is generated; `met` says which of its cells tests run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from tests.examples import CASES, EXAMPLES
from tests.examples.entry import Example
from volumetric.devices.cpu.graph.graphs import CpuGraphs
from volumetric.devices.gpu.graph import GpuGraphs
from volumetric.dtypes import DTYPES, DType, Scheme

GRAPHS: Final = {"cpu": CpuGraphs, "gpu": GpuGraphs}
"""What compiles graphs on each fast device."""

Role = Literal["forward", "vjp"]
ROLES: Final[tuple[Role, ...]] = ("forward", "vjp")

TOLERANCE: Final = 1e-5
"""Largest difference from the float64 reference over the largest value. Weights of every type are the same float32
numbers on all devices, so one figure serves all types; what differs is the order of float32 sums."""

READERS: Final = ("dense", "embedding", "rms_norm", "conv2d")
"""Kinds that meet every type: matrices in a product, rows that are gathered, vectors, and filters. All others have one
type each: their weights are read in these ways, and networks of attention meet the schemes in the tests of devices."""
SIZES: Final = ((1, 1, 1), (17, 7, 13), (31, 16, 15), (33, 17, 31), (1, 63, 65), (65, 33, 64))
"""Rows and two widths: 1, primes, one less and more than the sides of tiles; batches of 1, 17, 31, 33."""


def wide(dtype: DType) -> bool:
    """Whether GPUs, which have no 64-bit numbers, refuse a type."""
    return dtype.bits > 32


def covered(kind: str, role: Role, dtype: DType, device: str) -> bool:
    """Whether a cell of the table runs. What does not is refused, and that is tested too."""
    return not (device == "gpu" and wide(dtype) and weighted(kind))


def training(dtype: DType, device: str) -> str:
    """How a device gives the forward pass of quantisation-aware training its weights, as the device itself says."""
    return GRAPHS[device].rounding_of(Scheme.default(dtype)) or "none"


def weighted(kind: str) -> bool:
    """Whether layers of a kind have weights of their own, so that their numeric type matters."""
    return bool(EXAMPLES[kind].sized(3, 4, 5)[0].params())


def cells() -> Iterator[tuple[str, DType]]:
    """Every layer kind with every type of its weights; kinds without weights once, in float32."""
    for kind in EXAMPLES:
        for dtype in DTYPES:
            if weighted(kind) or dtype.name == "float32":
                yield kind, dtype


def met(kind: str, dtype: DType) -> bool:
    """Whether a test runs a kind in a type: `READERS` in all, the others in one each."""
    if kind in READERS or not weighted(kind):
        return True
    return list(DTYPES).index(dtype) == list(EXAMPLES).index(kind) % len(DTYPES)


def swept() -> list[tuple[str, str]]:
    """Name in `sweep` and device: sized examples on both, and the cases of a kind on one device after the other.

    The operations that a case becomes have cases of their own on both (`tests.graph.op_cases`), and the interpreter
    runs every case in `tests/graph/test_layers.py`.
    """
    devices = tuple(GRAPHS)
    pairs = [(name, device) for name in sweep() if not name.startswith("case ") for device in devices]
    for entry in EXAMPLES.values():
        pairs += [(f"case {name}", devices[i % len(devices)]) for i, name in enumerate(entry.cases)]
    return pairs


def sweep() -> dict[str, Example]:
    """Every example in two sizes, which with those of its neighbours are all, and all cases of `tests.examples`."""
    found = {
        f"{kind}-{r}x{a}x{b}": entry.sized(r, a, b)
        for n, (kind, entry) in enumerate(EXAMPLES.items())
        for i, (r, a, b) in enumerate(SIZES)
        if (i + n) % 3 == 0
    }
    return {**found, **{f"case {name}": example for name, example in CASES.items()}}
