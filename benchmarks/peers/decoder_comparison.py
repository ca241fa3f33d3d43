"""Decoders of known shapes in float16, in this engine and in PyTorch's CUDA graphs on the same GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from benchmarks.known_shapes import MODELS, network, params
from benchmarks.peers.comparison import Comparison, Measure, compare
from benchmarks.workers import Worker
from volumetric.base.errors import DeviceError, SpecError
from volumetric.bench import Case, measure
from volumetric.dtypes import Scheme
from volumetric.run.device import Device, RunOptions
from volumetric.run.lower import lower

DEPTH = 256
"""Tokens before those that are decoded."""
FORMS = ("sdpa", "fused sums")
FEW = 4
"""Sequences up to which both forms of attention are tried."""


class TorchDecoder(Worker):
    """A PyTorch process with a decoder's weights."""

    def __init__(self, python: Path, device: str, sizes: dict[str, Any]) -> None:
        missing = "pip install torch, or leave --peer-python out"
        super().__init__(python, "peers/torch_decoder_worker.py", device, name="PyTorch", missing=missing)
        try:
            self.about: str = self.answer()["about"]
            self.ask({"do": "open", **sizes})
        except DeviceError:
            self.close()
            raise

    def prepare(self, *, sequences: int, rows: int, position: int, tokens: int, attention: str) -> Measure:
        """Return what times a step; it is valid until the next one is prepared."""
        self.ask(
            {"do": "prepare", "sequences": sequences, "rows": rows, "position": position, "tokens": tokens,
             "attention": attention}
        )  # fmt: skip
        return lambda: float(self.ask({"do": "rate"})["rate"])


def measure_decoder(
    name: str, device: Device, python: Path | None, *, batches: Sequence[int], prompt: int, tokens: int, rounds: int,
    compute: Literal["auto", "float32", "int8", "bfloat16"] = "auto", dtype: str = "float16",
) -> Iterator[Comparison]:  # fmt: skip
    """Yield the prompt and each number of sequences of a shape; both have their weights on the GPU throughout.

    Where both forms of the peer's attention are tried, the first rounds choose the faster one.

    Raises
    ------
    SpecError : an unknown shape
    DeviceError : the peer does not run
    """
    if name not in MODELS:
        raise SpecError(f"there is no shape {name!r}", hint="known: " + ", ".join(MODELS))
    model = MODELS[name]
    with ExitStack() as stack:
        peer = None
        if python is not None:
            kind = "cuda" if device.info.kind == "gpu" else "cpu"
            peer = stack.enter_context(TorchDecoder(python, kind, asdict(model)))
            print(f"{name}: {peer.about}", flush=True)
        plan = lower(network(model))
        options = RunOptions(context=max(prompt, DEPTH + tokens) + 8, compute=compute)
        executable = device.compile(plan, params(dict(plan.params), Scheme.parse(dtype)), options)
        stack.callback(executable.close)
        cases = [Case(prompt=prompt), *(Case(generate=tokens, depth=DEPTH, batch=count) for count in batches)]
        for case in cases:
            forms = {} if peer is None else _best_form(peer, case)
            what = f"{name} {dtype} " + (f"prompt {prompt}" if case.prompt else f"decode × {case.batch}")
            yield compare(
                what, "tok/s", lambda case=case: measure(executable, model.vocabulary, case, 1)[0], forms, rounds
            )


def _best_form(peer: TorchDecoder, case: Case) -> dict[str, Measure]:
    """Prepare the peer's faster form of a case: it holds the caches of one at a time."""
    sizes = {"sequences": case.batch, "rows": case.prompt or 1, "position": case.depth, "tokens": case.generate or 1}
    forms = FORMS if not case.prompt and case.batch <= FEW else FORMS[:1]
    rates: dict[str, float] = {}
    for form in forms:
        timed = peer.prepare(**sizes, attention=form)
        rates[form] = timed()
    best = max(rates, key=lambda form: rates[form])
    if best != forms[-1]:
        timed = peer.prepare(**sizes, attention=best)
    return {"" if case.prompt else best: timed}  # pyright: ignore[reportPossiblyUnboundVariable]  (there is a form)
