"""Peak memory of `volumetric convert`, beside the model's file and its largest tensor.

    python -m benchmarks convert_memory [--gib 1.5] [--tensor-mib 32] [--limit MIB] [--dir DIRECTORY]

Writes a Llama with random bfloat16 weights, in shards with an index, of about that size, and converts it in a fresh
process for each line: unchanged and to int4:g32, to all three formats. Pages of mapped files count as long as they are
resident. The first line is a process that does the same with a model of one small layer: what it needs anyway. With
--limit, a peak more than that above the first line is an error. Needs free space of four times the size; what it writes
is deleted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from math import prod
from pathlib import Path

import ml_dtypes
import numpy as np

from benchmarks.arguments import argument_parser
from benchmarks.random_model import config
from volumetric.loaders import archs
from volumetric.loaders.hf_config import Config
from volumetric.loaders.safetensors_write import TensorOut, write_safetensors

CHILD = """
import sys
from volumetric.cli import main
from volumetric.generate.process_memory import peak_resident_bytes
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
if code:
    sys.exit(code)
print(peak_resident_bytes())
"""
CASES = [
    (form, dtype)
    for form in ("native", "hf", "gguf")
    for dtype in (None, "int4:g32")
    if (form, dtype) != ("hf", "int4:g32")
]
"""The Hugging Face layout holds floats only; from int4:g32 it is measured by reading a packed model back."""


def random_tensor(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Bfloat16 numbers of the size of weights, made in pieces."""
    rng, out = np.random.default_rng(seed), np.empty(prod(shape), ml_dtypes.bfloat16)
    for at in range(0, out.size, 1 << 22):
        out[at : at + (1 << 22)] = 0.02 * rng.standard_normal(min(1 << 22, out.size - at), np.float32)
    return out.reshape(shape)


def write_model(home: Path, layers: int, hidden: int, ffn: int, rows: int) -> tuple[int, int]:
    """Write shards and an index; return bytes of all tensors, and of the largest."""
    home.mkdir()
    values = config("1.1b", rows, 512) | {
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64,
        "num_key_value_heads": hidden // 64,
        "head_dim": 64,
    }
    (home / "config.json").write_text(json.dumps(values))
    blueprint = archs.build(Config(values, "random"))
    shapes = {key: spec.shape for key, spec in blueprint.network.param_specs().items()}
    names = {rule.source: shapes[rule.key] for rule in blueprint.rules}
    sizes = {name: 2 * prod(shape) for name, shape in names.items()}
    shards: list[dict[str, TensorOut]] = [{}]
    held = 0
    for seed, (name, shape) in enumerate(names.items()):
        if held > 400 << 20:
            shards.append({})
            held = 0
        held += sizes[name]
        read = lambda shape=shape, seed=seed: random_tensor(shape, seed)  # noqa: E731
        shards[-1][name] = TensorOut(tag="BF16", shape=shape, read=read)
    index: dict[str, str] = {}
    for number, tensors in enumerate(shards):
        file = f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        write_safetensors(home / file, tensors, {"format": "pt"})
        index |= dict.fromkeys(tensors, file)
    (home / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return sum(sizes.values()), max(sizes.values())


def peak_of(source: Path, target: Path, form: str, dtype: str | None) -> int:
    """Peak of a process that converts, in bytes."""
    flags = ["convert", str(source), str(target), "--format", form, *(["--dtype", dtype] if dtype else [])]
    done = subprocess.run([sys.executable, "-c", CHILD, *flags], check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout.split()[-1])


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--gib", type=float, default=1.5)
    parser.add_argument("--tensor-mib", type=int, default=32, help="embedding and matrices of the MLP")
    parser.add_argument("--limit", type=float)
    parser.add_argument("--dir", type=Path)
    args = parser.parse_args()
    hidden = 1024
    wide = (args.tensor_mib << 20) // (2 * hidden)
    each = 2 * (4 * hidden * hidden + 3 * hidden * wide)
    layers = max(int(args.gib * 2**30 - 4 * hidden * wide) // each, 1)
    with tempfile.TemporaryDirectory(dir=args.dir) as made:
        home = Path(made)
        write_model(home / "small", 1, 64, 128, 256)
        base = max(
            peak_of(home / "small", home / f"s{form}.gguf" if form == "gguf" else home / f"s{form}", form, None)
            for form in ("native", "hf", "gguf")
        )
        size, largest = write_model(home / "model", layers, hidden, wide, wide)
        print(f"model {size / 2**20:.0f} MiB in bfloat16, largest tensor {largest / 2**20:.0f} MiB")
        print(f"{'a model of 1 MiB':24} peak {base / 2**20:6.0f} MiB")
        worst = 0
        for form, dtype in CASES:
            target = home / ("out.gguf" if form == "gguf" else f"out-{form}-{dtype}".replace(":", "-"))
            peak = peak_of(home / "model", target, form, dtype)
            worst = max(worst, peak)
            above = (peak - base) / 2**20
            print(
                f"{form + ', ' + (dtype or 'as stored'):24} peak {peak / 2**20:6.0f} MiB, {above:5.0f} above",
                flush=True,
            )
        packed = home / "out-native-int4-g32"
        peak = peak_of(packed, home / "again", "hf", None)
        worst = max(worst, peak)
        print(f"{'hf, from int4:g32':24} peak {peak / 2**20:6.0f} MiB, {(peak - base) / 2**20:5.0f} above")
    if args.limit is not None and worst - base > args.limit * 2**20:
        sys.exit(f"a conversion took more than {args.limit} MiB beyond the base")


if __name__ == "__main__":
    main()
