"""Write docs/support.md from the registries: which numeric types and which layers run where.

python scripts/support_table.py            write the file
python scripts/support_table.py --check    exit with 1 if the file is not current
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the examples of every layer kind, which the tests keep

from scripts.pages import write_or_check  # noqa: E402 (the line above must come first)
from tests.examples import CASES, EXAMPLES  # noqa: E402
from tests.parity.run import graph_of  # noqa: E402
from tests.parity.table import ROLES, Role, cells, covered, training, weighted  # noqa: E402
from volumetric.devices.cpu import CpuDevice  # noqa: E402
from volumetric.devices.cpu.graph.graphs import CpuGraphs  # noqa: E402
from volumetric.devices.gpu import GpuDevice  # noqa: E402
from volumetric.devices.gpu.kernels.graph.kernel_table import LOWERERS  # noqa: E402
from volumetric.dtypes import BLOCK_FORMATS, DTYPES, OWN_FORMATS, DType, Scheme, parse_dtype  # noqa: E402
from volumetric.dtypes.scaled_rows import narrower_scheme  # noqa: E402
from volumetric.graph.operations import OPS  # noqa: E402
from volumetric.layers import LAYERS, Embedding, LayerSpec, Sequential  # noqa: E402
from volumetric.network import Network  # noqa: E402
from volumetric.network.grid import Coord, Grid  # noqa: E402
from volumetric.run.graph.partition import row_wise  # noqa: E402
from volumetric.run.lower import lower  # noqa: E402

TARGET = ROOT / "docs" / "support.md"
DEVICES = {"cpu": CpuDevice, "gpu": GpuDevice}
WRITTEN_OUT = {name for name, op in OPS.items() if op.written_out is not None}
OPERATIONS = {"cpu": CpuGraphs(1).operations, "gpu": frozenset(LOWERERS) | {"reshape", "scan"} | WRITTEN_OUT}
FLOAT32 = parse_dtype("float32")

TEMPLATE = """\
# What runs where

This page shows which numeric types and which layers run on the CPU and on GPUs, and how.

<!-- written by scripts/support_table.py (`make docs`); do not edit -->

`tests/parity` runs each layer kind forward and backward on each device, and each numeric type in each way in which
weights are read. It compares them with float64 code in NumPy (`tests/oracles`), which `tests/layers` checks against
finite differences.

## Numeric types of weights

The *inference* columns are for operations on the rows of a call, as in language models; layers that run as programs,
see below, decode all types:

- *native*: kernels read this form from memory.
- *decoded*: the weights become float32 when the device loads them, which costs memory and speed.
- *none*: refused with `UnsupportedError`, because GPUs have no 64-bit numbers here.

The *training* columns are for quantisation-aware training. The forward pass rounds the float32 master to the type, and
gradients go straight through:

- *native*: a kernel of the device rounds.
- *codec*: the host encodes and decodes between two parts of the run, which is slower.

The reference device decodes everything. The devices declare these properties themselves (`native_schemes`, `rounds`),
and tests check them.

Activations are float32 throughout, with two exceptions. Beside integer weights they are rounded to int8 in blocks of
32: on the CPU unless `compute="float32"` is set, on the GPU only if `compute="int8"` is set. Beside bfloat16 weights in
prompts they are rounded to bfloat16 on the CPU if `compute="bfloat16"` is set. Bits per weight include scales and
offsets, for rows of 4096.

| type | short | default scheme | bits per weight | inference: cpu | gpu | training: cpu | gpu |
| --- | --- | --- | --- | --- | --- | --- | --- |
{schemes}

Other schemes of these types are decoded for inference, except for wider groups. Groups of 64, 128 or any multiple of
32, and whole rows, run natively for float8 and for integer types with a native default. Their scales are repeated for
each 32; those of float8 become float32 (9 bits a weight). The same holds for int4 and int8 with float32 scales on the
CPU.

## Block formats

Besides the 21 numeric types there are block formats: tensors that keep the blocks of a GGUF file byte for byte, so
loading one changes neither numbers nor size. Q8_0, Q4_0 and Q4_1 are not among them, because `int8:g32`, `int4:g32` and
`uint4:g32` hold the same numbers. `q3_nl` is our own format, for native checkpoints: 3 bits for rows that fill no
blocks of 256. GGUF has no such type. On GPUs the base-3 digits of TQ1_0 take two bits each, as those of TQ2_0 do: 2.062
bits.

| format | numbers in a block | numbers for each scale | bits per weight | inference: cpu | gpu |
| --- | --- | --- | --- | --- | --- |
{blocks}

## Layers

The table covers forward and backward of every layer kind, for all rows, sequences, batches and images that its shape
rule allows. *native*: kernels of the device compute it in float32. The inference column says how a layer runs inside a
network:

- *rows*: as operations on the rows of a call, on packed weights.
- *programs*: in float32, by programs of fixed shape between those operations.

The two mix freely in one network; training always uses programs. The reference device interprets the same graph in
NumPy.

| kind | class | inference | cpu: forward | backward | gpu: forward | backward |
| --- | --- | --- | --- | --- | --- | --- |
{layers}

The tests have {cells} cells of layer kind × role × numeric type × device; {none} of them are *none*.
"""


def runs_on_rows(spec: LayerSpec, shape: tuple[int, ...]) -> bool:
    """Whether a network of this one layer consists of operations on rows."""
    network = Network(
        grid=Grid(1),
        layers={Coord(0): Sequential(layers=(spec,))},
        input_shape=shape[1:],
        input_dtype="int32" if isinstance(spec, Embedding) else "float32",
    )
    return row_wise(lower(network), CpuDevice.native_operations)


def runs(scheme: Scheme, native: tuple[str, ...]) -> bool:
    """Whether a device with these native schemes keeps a scheme's codes."""
    return str(scheme) in native or narrower_scheme(scheme, native) is not None


def scheme_rows() -> list[str]:
    """One line for each numeric type in its default scheme."""
    lines = []
    for dtype in DTYPES:
        scheme = Scheme.default(dtype)
        inference = [
            way(dtype, "forward", name, "native" if runs(scheme, device.native_schemes) else "decoded")
            for name, device in DEVICES.items()
        ]
        ways_to_train = [way(dtype, "vjp", name, training(dtype, name)) for name in DEVICES]
        bits = f"{scheme.bits_per_weight((1, 4096)):.4g}"
        ways = " | ".join([*inference, *ways_to_train])
        lines.append(f"| {dtype.name} | {dtype.short} | `{scheme}` | {bits} | {ways} |")
    return lines


def block_rows() -> list[str]:
    """One line for each block format."""
    lines = []
    for name, each in {**BLOCK_FORMATS, **OWN_FORMATS}.items():
        ways = " | ".join("native" if name in device.native_schemes else "decoded" for device in DEVICES.values())
        bits = f"{Scheme.parse(name).bits_per_weight((1, 4096)):.4g}"
        lines.append(f"| `{name}` | {each.size} | {each.group} | {bits} | {ways} |")
    return lines


def way(dtype: DType, role: Role, device: str, covered_how: str) -> str:
    """One answer for a type on a device, which all kinds of layers with weights must share."""
    answers = {covered(kind, role, dtype, device) for kind in EXAMPLES if weighted(kind)}
    if len(answers) > 1:
        raise SystemExit(f"error: {dtype} on {device} runs for some layers only")
    return covered_how if answers == {True} else "none"


def runs_as_graph(kind: str, role: Role, device: str) -> str:
    """Whether the device has kernels for all operations that a layer becomes."""
    graph, _ = graph_of(EXAMPLES[kind].sized(17, 7, 33), role=role)
    missing = {node.op for node in graph.nodes} - OPERATIONS[device]
    return "none" if missing or not covered(kind, role, FLOAT32, device) else "native"


def layer_rows() -> list[str]:
    """One line for each layer kind."""
    lines = []
    for kind, cls in sorted(LAYERS.items()):
        outcomes = {runs_on_rows(*EXAMPLES[kind].sized(17, 7, 33))}
        outcomes |= {runs_on_rows(spec, shape) for spec, shape in CASES.values() if spec.kind == kind}
        path = "rows or programs" if len(outcomes) > 1 else "rows" if outcomes == {True} else "programs"
        cells = [runs_as_graph(kind, role, device) for device in DEVICES for role in ROLES]
        lines.append(f"| `{kind}` | {cls.__name__} | {path} | {' | '.join(cells)} |")
    return lines


def document() -> str:
    """Text of docs/support.md."""
    table = [covered(kind, role, dtype, name) for kind, dtype in cells() for role in ROLES for name in DEVICES]
    return TEMPLATE.format(
        schemes="\n".join(scheme_rows()),
        blocks="\n".join(block_rows()),
        layers="\n".join(layer_rows()),
        cells=len(table),
        none=table.count(False),
    )


if __name__ == "__main__":
    sys.exit(write_or_check(__doc__, {TARGET: document()}))
