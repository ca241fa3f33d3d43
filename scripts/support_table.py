"""Write docs/support.md from the registries: which numeric types and which layers run where.

python scripts/support_table.py            write the file
python scripts/support_table.py --check    exit with 1 if the file is not current
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from volumetric.dtypes import DTYPES, Scheme
from volumetric.errors import UnsupportedError
from volumetric.grid import Coord, Grid
from volumetric.layers import (
    LAYERS,
    MLP,
    Dense,
    Embedding,
    LayerNorm,
    LayerSpec,
    MultiHeadAttention,
    Parallel,
    PositionEmbedding,
    Residual,
    RMSNorm,
    Sequential,
    Softcap,
    Softmax,
    SwiGLU,
)
from volumetric.network import Network
from volumetric.runtime.cpu import CpuDevice
from volumetric.runtime.fuse import fuse
from volumetric.runtime.gpu import GpuDevice
from volumetric.runtime.lower import lower

TARGET = Path(__file__).parents[1] / "docs" / "support.md"
DEVICES = {"cpu": CpuDevice, "gpu": GpuDevice}

TEMPLATE = """\
# What runs where

<!-- written by scripts/support_table.py (`make docs`); do not edit -->

## Numeric types of weights

*native*: kernels read this form from memory. *decoded*: the weights become float32 when the device takes them, which
costs memory and speed. The reference device decodes everything. Activations are float32 throughout,
except where integer weights meet int8 activations (`compute="int8"`). Bits per weight include scales and offsets, for
rows of 4096.

| type | short | default scheme | bits per weight | cpu | gpu |
| --- | --- | --- | --- | --- | --- |
{schemes}

Other schemes of these types (another group size, another type of scales) are decoded.

## Layers

The cpu and gpu devices run inference; gradients come from the reference device.

| kind | class | reference | cpu | gpu |
| --- | --- | --- | --- | --- |
{layers}
"""

SMALLEST: tuple[LayerSpec, ...] = (
    Dense(in_features=4, out_features=4),
    Embedding(num_embeddings=4, embedding_dim=4),
    LayerNorm(num_features=4),
    MLP(in_features=4, hidden_features=4),
    MultiHeadAttention(embed_dim=4, num_heads=1),
    Parallel(branches=(Dense(in_features=4, out_features=4),)),
    PositionEmbedding(num_embeddings=4, embedding_dim=4),
    Residual(source="input"),
    RMSNorm(num_features=4),
    Sequential(layers=(Dense(in_features=4, out_features=4),)),
    Softcap(cap=1.0),
    Softmax(),
    SwiGLU(in_features=4, hidden_features=4),
)
"""One layer of each kind, as small as it gets."""


def examples() -> dict[str, LayerSpec]:
    """Kind → smallest layer of that kind, for every registered kind."""
    known = {spec.kind: spec for spec in SMALLEST}
    unknown = sorted(LAYERS.keys() ^ known.keys())
    if unknown:
        raise SystemExit(f"error: layer kinds without an example here, or the reverse: {', '.join(unknown)}")
    return {kind: known[kind] for kind in sorted(LAYERS)}


def runs_fused(spec: LayerSpec) -> bool:
    """Whether a network of this one layer has a form that the CPU and GPU devices implement."""
    ids = spec.kind == "embedding"
    shape, dtype = ((), "int32") if ids else ((4,), "float32")
    network = Network(grid=Grid(1), layers={Coord(0): spec}, input_shape=shape, input_dtype=dtype)
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


def layer_rows() -> list[str]:
    """One line for each layer kind."""
    lines = []
    for kind, spec in examples().items():
        vjp = type(spec).vjp is not LayerSpec.vjp
        fused = "yes" if runs_fused(spec) else "no"
        lines.append(f"| `{kind}` | {type(spec).__name__} | forward{', VJP' if vjp else ''} | {fused} | {fused} |")
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
