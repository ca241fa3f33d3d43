"""The verb ``bench``: llama-bench style rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from cyclopts import Parameter

from volumetric import __version__
from volumetric.bench import Case, Row, cases, measure, render
from volumetric.bench import profile as profile_of
from volumetric.cli import console, exits
from volumetric.cli.bench_servers import ServerOptions
from volumetric.cli.exits import UsageError
from volumetric.cli.loading import open_for
from volumetric.cli.options import DeviceOptions, ModelSource, OutputOptions, SourceOptions
from volumetric.generate import Model
from volumetric.runtime.open import open_device

if TYPE_CHECKING:
    from volumetric.bench.layers.peer import TorchPeer
    from volumetric.runtime.device import Device


R = TypeVar("R")


def bench(
    model: ModelSource = None,
    *,
    prompt: Annotated[str, Parameter(name=["--n-prompt", "-p"])] = "512",
    generate: Annotated[str, Parameter(name=["--n-gen", "-n"])] = "128",
    pair: Annotated[tuple[str, ...], Parameter(name=["--pg", "-pg"], negative="", show_default=False)] = (),
    depth: Annotated[str, Parameter(name=["--n-depth", "-d"])] = "0",
    batch: Annotated[str, Parameter(name=["--batch", "-b"])] = "1",
    profile: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    threads: Annotated[str | None, Parameter(name=["--threads", "-t"])] = None,
    repetitions: Annotated[int, Parameter(name=["--repetitions", "-r"])] = 5,
    form: Annotated[Literal["md", "csv", "json", "jsonl"], Parameter(name=["--output", "-o"])] = "md",
    suite: Literal["model", "layers", "training", "systolic", "stacks", "fabric", "program", "serve"] = "model",
    only: Annotated[str | None, Parameter(name=["--only"])] = None,
    torch_python: Annotated[Path | None, Parameter(name=["--torch-python"])] = None,
    servers: ServerOptions = ServerOptions(),
    source: SourceOptions = SourceOptions(),
    device: DeviceOptions = DeviceOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Measure prompt processing (pp) and token generation (tg) in tokens per second; or layers, or training.

    Random token ids go straight to the device: neither tokenising nor sampling is counted, nor is a warm-up.
    Sizes are lists separated by commas. The suite "layers" needs no model: it times every layer kind, forward and
    with its gradients, beside PyTorch where that can be imported. So does "training", with six small networks of 20
    epochs, and "systolic", with cubes of dense layers that run and learn tick by tick; "stacks" times the cells and
    scaffolds of stacks, with and without resets and row by row, beside the package `cortical` where that interpreter
    has it, "fabric" sheets of cells that exchange messages, and "program" regions that each read four others, beside
    the package `canvas-engineering`. "serve" is many clients of a server that runs, or of
    several in turn, whose answers have --n-gen tokens.

    Parameters
    ----------
    model : str
        As for generate.
    prompt : str
        Prompt sizes; 0 for none.
    generate : str
        Numbers of tokens to generate; 0 for none.
    pair : tuple of str
        PROMPT,GENERATE measured as one; may be repeated.
    depth : str
        Tokens in the context beforehand.
    batch : str
        Numbers of sequences that generate together; their speed is that of all of them. In the suites "systolic",
        "fabric" and "program": streams side by side.
    profile : bool
        Also show where the time goes, step by step: of one call of the prompt, or of one token of each sequence.
    threads : str
        Numbers of CPU threads; the physical cores unless given.
    repetitions : int
        Repetitions, whose mean and standard deviation are shown.
    form : str
        Format of the rows on stdout.
    suite : {"model", "layers", "training", "systolic", "stacks", "fabric", "program", "serve"}
        What to measure.
    only : str
        Layer kinds of the suites "layers" and "stacks", networks of "training", or sides of cubes of "systolic"
        (2,4,8,16 unless given) or of sheets of "fabric" (16 unless given), or regions of "program" (10,100 unless
        given), separated by commas.
    torch_python : Path
        Python interpreter that has PyTorch, for the other suites; this one unless given, if it has it.
    """
    output.apply()
    run = _Suite(device, repetitions, form, threads, torch_python)
    names = None if only is None else only.split(",")
    if suite == "layers":
        return run.layers(names)
    if suite == "training":
        return run.training(names)
    if suite == "systolic":
        return run.systolic(_sizes("--only", only or "2,4,8,16"), _sizes("-b", batch))
    if suite == "stacks":
        return run.stacks(names)
    if suite == "serve":
        return run.serve(servers, _sizes("-n", generate)[0])
    if suite == "program":
        return run.program(_sizes("--only", only or "10,100"), _sizes("-b", batch))
    if suite == "fabric":
        return run.fabric(_sizes("--only", only or "16"), _sizes("-b", batch))
    wanted = cases(
        _sizes("-p", prompt),
        _sizes("-n", generate),
        [_pair(text) for text in pair],
        _sizes("-d", depth),
        _sizes("-b", batch),
    )
    counts = [None] if threads is None else _sizes("-t", threads)
    rows: list[Row] = []
    for count in counts:
        context = max(case.context for case in wanted)
        with open_for(model, source, device, context=context, threads=count) as opened:
            rows.extend(_rows(opened, wanted, repetitions, profiled=profile))
    if rows:
        console.note(f"one token of context takes {rows[0].state_per_token:,} bytes of keys and values")
    console.write(render(rows, form))
    return exits.OK


@dataclass(frozen=True, slots=True)
class _Suite:
    """The suites that need no model; the fields are flags of ``bench``."""

    options: DeviceOptions
    repetitions: int
    form: str
    threads: str | None
    torch_python: Path | None

    @property
    def count(self) -> int | None:
        """Threads of the device."""
        return None if self.threads is None else _sizes("-t", self.threads)[0]

    def layers(self, only: Sequence[str] | None) -> int:
        """Run the suite of layers."""
        from volumetric.bench.layers import chosen, measure_layers, render_layers

        wanted = chosen(only)
        with self._beside_torch() as (device, peer):
            measured = measure_layers(wanted, device, repetitions=self.repetitions, peer=peer)
            rows = _noted(measured, lambda n, row: f"{n} of {2 * len(wanted)}: {row.layer} {row.role}")
        console.write(render_layers(rows, self.form))
        return exits.OK

    def systolic(self, sides: Sequence[int], batches: Sequence[int]) -> int:
        """Run the suite of clocked networks."""
        from volumetric.bench.systolic import Cube, measure_systolic, render_systolic

        if min(*sides, *batches) < 1:
            raise UsageError("cubes need sides and streams of 1 or more", hint="--only 2,4,8 -b 1,16")
        wanted = [Cube(side, batch) for side in sides for batch in batches]
        with self._beside_torch() as (device, peer):
            measured = measure_systolic(wanted, device, repetitions=self.repetitions, peer=peer)
            rows = _noted(
                measured, lambda _, row: f"{row.side}³, {row.batch} streams, {row.role}: {row.ticks:,.0f} ticks/s"
            )
        console.write(render_systolic(rows, self.form))
        return exits.OK

    def stacks(self, only: Sequence[str] | None) -> int:
        """Run the suite of cells."""
        from volumetric.bench.stacks import chosen, measure_stacks, render_stacks

        wanted = chosen(only)
        with self._beside_torch("cortical") as (device, peer):
            measured = measure_stacks(wanted, device, repetitions=self.repetitions, peer=peer)
            rows = _noted(
                measured,
                lambda n, row: f"{n} of {5 * len(wanted)}: {row.cell} {row.role}: {row.tokens:,.0f} rows/s",
            )
        console.write(render_stacks(rows, self.form))
        return exits.OK

    def fabric(self, sides: Sequence[int], batches: Sequence[int]) -> int:
        """Run the suite of fabrics."""
        from volumetric.bench.fabric import Sheet, measure_fabrics, render_fabrics

        if min(sides) < 3 or min(batches) < 1:
            raise UsageError("sheets need sides of 3 or more, and streams", hint="--only 10,16,32 -b 8")
        wanted = [Sheet(side, batch) for side in sides for batch in batches]
        rows = _noted(
            measure_fabrics(wanted, self._open(), repetitions=self.repetitions),
            lambda _, row: f"{row.nodes:,} nodes, {row.batch} streams, {row.role}: {row.steps:,.0f} steps/s",
        )
        console.write(render_fabrics(rows, self.form))
        return exits.OK

    def program(self, regions: Sequence[int], batches: Sequence[int]) -> int:
        """Run the suite of programs."""
        from volumetric.bench.program import Canvas, measure_programs, render_programs

        if min(regions) < 2 or min(batches) < 1:
            raise UsageError("programs need 2 regions or more, and streams", hint="--only 10,100,1000 -b 1")
        wanted = [Canvas(count, batch) for count in regions for batch in batches]
        with self._beside_torch("canvas_engineering") as (device, peer):
            measured = measure_programs(wanted, device, repetitions=self.repetitions, peer=peer)
            rows = _noted(
                measured,
                lambda _, row: f"{row.regions:,} regions, {row.share}, {row.role}: {row.steps:,.1f} steps/s",
            )
        console.write(render_programs(rows, self.form))
        return exits.OK

    def serve(self, servers: ServerOptions, tokens: int) -> int:
        """Run the suite of servers."""
        from volumetric.bench.serve import measure_servers, render_serve

        rows = _noted(
            measure_servers(servers.targets(), servers.loads(tokens), repetitions=self.repetitions),
            lambda _, row: f"{row.url}, {row.clients} clients: {row.tokens:,.1f} tokens/s {row.error}".rstrip(),
        )
        console.write(render_serve(rows, self.form))
        return exits.OK if not any(row.failed for row in rows) else exits.FAILED

    def training(self, only: Sequence[str] | None) -> int:
        """Run the suite of training."""
        import importlib.util
        import sys

        from volumetric.bench.training import CASES, measure_training, render_training
        from volumetric.train.open import open_learner

        unknown = [name for name in only or () if name not in CASES]
        if unknown:
            raise UsageError(f"there is no network {unknown[0]!r}", hint="known: " + ", ".join(CASES))
        device = open_device(self.options.device, threads=self.count)
        python = self.torch_python or (Path(sys.executable) if importlib.util.find_spec("torch") else None)
        torch = None if python is None else (python, "cuda" if device.info.kind == "gpu" else "cpu", self.count or 0)
        wanted = [CASES[name] for name in only or CASES]
        learner, name = open_learner(device), device.info.name
        measured = measure_training(wanted, learner, name, repetitions=self.repetitions, torch=torch)
        rows = _noted(measured, lambda _, row: f"{row.name}: {row.seconds:.3f} s")
        console.write(render_training(rows, self.form))
        return exits.OK

    def _open(self) -> Device:
        """Open a device that runs graphs."""
        device = open_device(self.options.device, threads=self.count)
        if getattr(device, "graphs", None) is None:
            raise UsageError(f"device {device.info.name} runs no layers", hint="use cpu or gpu")
        return device

    @contextmanager
    def _beside_torch(self, package: str = "torch") -> Iterator[tuple[Device, TorchPeer | None]]:
        """Open a device, and PyTorch if it and a package on it are to be had, and say what they are."""
        from volumetric.bench.layers.peer import open_peer

        device = self._open()
        gpu, threads = device.info.kind == "gpu", device.info.details.get("threads")
        with open_peer(self.torch_python, gpu=gpu, threads=threads, package=package) as peer:
            console.note(f"{device.info.description}; " + (f"{package} is not here" if peer is None else peer.about))
            yield device, peer


def _noted(measured: Iterable[R], told: Callable[[int, R], str]) -> list[R]:
    """Return rows, after a note of each as soon as it is there; `told` has its number, from 1."""
    rows: list[R] = []
    for row in measured:
        rows.append(row)
        console.note(told(len(rows), row))
    return rows


def _rows(model: Model, wanted: Sequence[Case], repetitions: int, *, profiled: bool) -> Iterator[Row]:
    about, device = model.info, model.device.info
    seen: set[tuple[int, int, int]] = set()  # calls that have a profile: lengths differ in nothing else
    for case in wanted:
        with console.progress(f"{case.name} on {about.device}…"):
            samples = measure(model.executable, about.vocab_size, case, repetitions)
            call = case.prompt, case.depth, case.batch
            steps = profile_of(model.executable, about.vocab_size, case) if profiled and call not in seen else ()
            seen.add(call)
        yield Row.of(
            case,
            samples,
            model=about.name,
            size=model.footprint.nbytes,
            params=model.footprint.elements,
            device=about.device,
            description=device.description,
            dtype=about.dtype,
            threads=about.options.threads or device.details.get("threads"),
            version=__version__,
            state_per_token=model.executable.memory.state_per_token,
            steps=steps,
        )


def _sizes(flag: str, text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = [-1]
    if min(sizes) < 0:
        raise UsageError(f"{flag} must be whole numbers separated by commas, got {text!r}")
    return sizes


def _pair(text: str) -> tuple[int, int]:
    sizes = _sizes("-pg", text)
    if len(sizes) != 2:
        raise UsageError(f"-pg must be PROMPT,GENERATE, got {text!r}")
    return sizes[0], sizes[1]
