"""Random Llamas as GGUF files, in this engine and in llama.cpp through Vulkan on the same GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.peers.comparison import Comparison, Measure, compare
from benchmarks.peers.llama_server import GPU, HOST, LIBRARY, LlamaLibrary, LlamaServer, random_prompts
from benchmarks.random_model import SYNTHETIC, VOCABULARY
from benchmarks.workers import run_once
from volumetric.bench import Case, measure
from volumetric.loaders import open_model
from volumetric.run.device import Device, Executable, RunOptions
from volumetric.run.lower import lower

SHORT = 16
"""Tokens before those that are decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaSizes:
    """What is measured of each file.

    Attributes
    ----------
    prompt, tokens : tokens of the long prompt, and of an answer
    clients : numbers of sequences that decode side by side, besides a single one
    """

    prompt: int = 512
    tokens: int = 128
    clients: Sequence[int] = (16, 64)

    @property
    def room(self) -> int:
        """Tokens that a sequence has at most."""
        return max(self.prompt, SHORT + self.tokens)

    @property
    def context(self) -> int:
        """The same for engines that add a token to a prompt."""
        return self.room + 64


def write_models(directory: Path, models: Sequence[str]) -> list[Path]:
    """Write the files of models ``SHAPE.DTYPE`` that are not there yet, side by side, by `random_model`."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{model.replace(':', '-')}.gguf" for model in models]

    def write(model: str, path: Path) -> None:
        if not path.exists():
            shape, _, dtype = model.rpartition(".")
            flags = ("--shape", shape, "--dtype", dtype, "--bits", "--tokenizer", SYNTHETIC)
            run_once(sys.executable, "random_model.py", str(path), *flags)

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, models, paths))
    return paths


def measure_llama(
    path: Path, device: Device, sizes: LlamaSizes, *, server: Path | None, rounds: int, options: RunOptions,
) -> Iterator[Comparison]:  # fmt: skip
    """Yield the prompt, a single sequence and each number of clients of a file, which both engines keep open."""
    with ExitStack() as stack:
        peer = library = None
        if server is not None:
            slots = max([1, *sizes.clients])
            peer = stack.enter_context(LlamaServer(server, path, slots=slots, context=sizes.context))
            library = stack.enter_context(LlamaLibrary(server, path, slots=slots, context=sizes.room))
            print(f"{path.name}: {peer.about}", flush=True)
        loaded = open_model(path)
        executable = device.compile(lower(loaded.network), loaded.params, options)
        stack.callback(executable.close)
        long = random_prompts(VOCABULARY, 1, sizes.prompt)[0]
        forms: dict[str, Measure] = {}
        if peer is not None and library is not None:
            forms = {LIBRARY: lambda: library.prompt_rate(long), "server": lambda: peer.prompt_rate(long)}
        case = Case(prompt=sizes.prompt)
        yield compare(f"{path.stem} prompt {sizes.prompt}", "tok/s", _rate(executable, case), forms, rounds)
        for count in (1, *sizes.clients):
            prompts = random_prompts(VOCABULARY, count, SHORT)
            if peer is not None and library is not None:
                forms = {form: partial(peer.decode_rate, prompts, sizes.tokens, form) for form in (GPU, HOST)}
                forms[LIBRARY] = partial(library.decode_rate, prompts, sizes.tokens)
            case = Case(generate=sizes.tokens, depth=SHORT, batch=count)
            yield compare(f"{path.stem} decode × {count}", "tok/s", _rate(executable, case), forms, rounds)


def _rate(executable: Executable, case: Case) -> Measure:
    return lambda: measure(executable, VOCABULARY, case, 1)[0]
