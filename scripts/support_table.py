"""Write docs/support.md from the registries: which numeric types and which layers run where.

python scripts/support_table.py            write the file
python scripts/support_table.py --check    exit with 1 if the file is not current
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the examples of every layer kind, which the tests keep

from tests.layers.cases import CASES  # noqa: E402 (the line above must come first)
from volumetric.dtypes import DTYPES, Scheme  # noqa: E402
from volumetric.errors import UnsupportedError  # noqa: E402
from volumetric.grid import Coord, Grid  # noqa: E402
from volumetric.layers import LAYERS, Embedding, LayerSpec, Sequential  # noqa: E402
from volumetric.network import Network  # noqa: E402
from volumetric.runtime.cpu import CpuDevice  # noqa: E402
from volumetric.runtime.fuse import fuse  # noqa: E402
from volumetric.runtime.gpu import GpuDevice  # noqa: E402
from volumetric.runtime.lower import lower  # noqa: E402

TARGET = ROOT / "docs" / "support.md"
DEVICES = {"cpu": CpuDevice, "gpu": GpuDevice}

TEMPLATE = """\
# What runs where

<!-- written by scripts/support_table.py (`make docs`); do not edit -->

## Numeric types of weights

*native*: kernels read this form from memory. *decoded*: the weights become float32 when the device takes them, which
costs memory and speed. The reference device decodes everything. Activations are float32 throughout, with one exception:
those that meet integer weights are rounded to int8 in blocks of 32, on the CPU unless `compute="float32"` asks it not
to, on the GPU only if `compute="int8"` asks for it. Bits per weight include scales and offsets, for rows of 4096.

| type | short | default scheme | bits per weight | cpu | gpu |
| --- | --- | --- | --- | --- | --- |
{schemes}

Other schemes of these types (another group size, another type of scales) are decoded.

## Layers

The cpu and gpu devices run inference on rows of features; gradients, and arrays of more than two axes, are the
reference device's. *native*: all variants run. *in part*: some variants run, the others are refused. *none*: refused
with an error; the reference device runs it.

| kind | class | reference | cpu | gpu |
| --- | --- | --- | --- | --- |
{layers}
"""


def runs_fused(spec: LayerSpec, shape: tuple[int, ...]) -> bool:
    """Whether a network of this one layer has a form that the CPU and GPU devices implement."""
    network = Network(
        grid=Grid(1),
        layers={Coord(0): Sequential(layers=(spec,))},
        input_shape=shape[1:],
        input_dtype="int32" if isinstance(spec, Embedding) else "float32",
    )
    try:
        fuse(lower(network))
    except UnsupportedError:
        return False
    return True


def scheme_rows() -> list[str]:
    """One line for each numeric type in its default scheme."""
    lines = []
    for dtype in DTYPES:
        scheme = Scheme.default(dtype)
        ways = ["native" if str(scheme) in device.native_schemes else "decoded" for device in DEVICES.values()]
        bits = f"{scheme.bits_per_weight((1, 4096)):.4g}"
        lines.append(f"| {dtype.name} | {dtype.short} | `{scheme}` | {bits} | {' | '.join(ways)} |")
    return lines


def children(spec: LayerSpec) -> tuple[LayerSpec, ...]:
    """Layers directly inside a container."""
    return getattr(spec, spec.children_field) if spec.children_field else ()


def layer_rows() -> list[str]:
    """One line for each layer kind; the fast devices' answer is that of all its examples."""
    lines = []
    for kind, cls in sorted(LAYERS.items()):
        examples = [case for case in CASES.values() if case[0].kind == kind] or [
            case for case in CASES.values() if any(child.kind == kind for child in children(case[0]))
        ]
        if not examples:
            raise SystemExit(f"error: tests/layers/cases.py has no example of {kind}")
        plain = [case for case in examples if len(case[1]) <= 2] or examples
        outcomes = {runs_fused(spec, shape) for spec, shape in plain}
        vjp = ", VJP" if cls.vjp is not LayerSpec.vjp else ""
        fused = "in part" if len(outcomes) > 1 else "native" if outcomes == {True} else "none"
        lines.append(f"| `{kind}` | {cls.__name__} | forward{vjp} | {fused} | {fused} |")
    return lines


def document() -> str:
    """Text of docs/support.md."""
    return TEMPLATE.format(schemes="\n".join(scheme_rows()), layers="\n".join(layer_rows()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    text = document()
    if not parser.parse_args().check:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    print("docs/support.md is not current; run: make docs", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
