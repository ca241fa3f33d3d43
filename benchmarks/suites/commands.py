"""Suites as commands, with the flags that ``volumetric bench`` has."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from cyclopts import Parameter

from benchmarks.torch_peer import TorchPeer, open_peer
from volumetric.cli import console, exits
from volumetric.cli.bench import sizes
from volumetric.cli.exits import UsageError
from volumetric.cli.options import DeviceOptions, OutputOptions
from volumetric.devices.named_devices import open_device
from volumetric.run.device import Device

R = TypeVar("R")
Only = Annotated[str | None, Parameter(name=["--only"])]
Sizes = Annotated[str, Parameter(name=["--only"])]
Batch = Annotated[str, Parameter(name=["--batch", "-b"])]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SuiteOptions:
    """What all suites take.

    Parameters
    ----------
    threads : str
        CPU threads; the physical cores unless given.
    repetitions : int
        Rounds; rows give their median and extremes.
    form : str
        Format of the rows on stdout.
    torch_python : Path
        Python interpreter that has PyTorch, and the package that a suite compares with; this one unless given, if it
        has them.
    """

    threads: Annotated[str | None, Parameter(name=["--threads", "-t"])] = None
    repetitions: Annotated[int, Parameter(name=["--repetitions", "-r"])] = 5
    form: Annotated[Literal["md", "csv", "json", "jsonl"], Parameter(name=["--output", "-o"])] = "md"
    torch_python: Annotated[Path | None, Parameter(name=["--torch-python"])] = None
    device: DeviceOptions = field(default_factory=DeviceOptions)
    output: OutputOptions = field(default_factory=OutputOptions)

    @property
    def count(self) -> int | None:
        """Threads of the device."""
        return None if self.threads is None else sizes("-t", self.threads)[0]

    def open(self) -> Device:
        """Open a device that runs graphs."""
        device = open_device(self.device.device, threads=self.count)
        if getattr(device, "graphs", None) is None:
            raise UsageError(f"device {device.info.name} runs no layers", hint="use cpu or gpu")
        return device

    @contextmanager
    def beside(self, package: str) -> Iterator[tuple[Device, TorchPeer | None]]:
        """Open a device, and PyTorch if it and a package on it are to be had, and say what they are."""
        device = self.open()
        gpu, threads = device.info.kind == "gpu", device.info.details.get("threads")
        with open_peer(self.torch_python, gpu=gpu, threads=threads, package=package) as peer:
            console.note(f"{device.info.description}; " + (f"{package} is not here" if peer is None else peer.about))
            yield device, peer

    def measured(
        self,
        measure: Callable[..., Iterable[R]],
        wanted: Sequence[Any],
        render: Callable[[list[R], str], str],
        text: Callable[[int, R], str],
        package: str = "torch",
    ) -> int:
        """Measure what is wanted beside a package, and write the rows."""
        self.output.apply()
        with self.beside(package) as (device, peer):
            rows = noted(measure(wanted, device, repetitions=self.repetitions, peer=peer), text)
        console.write(render(rows, self.form))
        return exits.OK


def noted(measured: Iterable[R], text: Callable[[int, R], str]) -> list[R]:
    """Return rows, after a note of each as soon as it is there; `text` takes its number, from 1, and the row."""
    rows: list[R] = []
    for row in measured:
        rows.append(row)
        console.note(text(len(rows), row))
    return rows


def _names(only: str | None) -> list[str] | None:
    return None if only is None else only.split(",")


def _sides(only: str, batch: str, least: int, needed: str, hint: str) -> Iterator[tuple[int, int]]:
    """Return each size with each number of streams."""
    wanted, batches = sizes("--only", only), sizes("-b", batch)
    if min(wanted) < least or min(batches) < 1:
        raise UsageError(needed, hint=hint)
    return product(wanted, batches)


def layers(*, only: Only = None, suite: SuiteOptions = SuiteOptions()) -> int:
    """Time every layer kind, forward and with its gradients, beside PyTorch.

    Parameters
    ----------
    only : str
        Layer kinds, separated by commas.
    """
    from benchmarks.suites.layers import chosen, measure_layers, render_layers

    wanted = chosen(_names(only))
    return suite.measured(
        measure_layers, wanted, render_layers, lambda n, row: f"{n} of {2 * len(wanted)}: {row.layer} {row.role}"
    )


def training(
    *, only: Only = None, compute: Literal["float32", "float16"] = "float32", suite: SuiteOptions = SuiteOptions()
) -> int:
    """Train six small networks for 20 epochs, beside PyTorch.

    Parameters
    ----------
    only : str
        Names of networks, separated by commas.
    compute : str
        Type of products, as of `volumetric train`; PyTorch trains in float32.
    """
    from benchmarks.suites.training import CASES, measure_training, render_training
    from volumetric.train.learner_opening import open_learner

    suite.output.apply()
    names = _names(only) or list(CASES)
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise UsageError(f"there is no network {unknown[0]!r}", hint="known: " + ", ".join(CASES))
    opened = open_device(suite.device.device, threads=suite.count)
    python = suite.torch_python or (Path(sys.executable) if importlib.util.find_spec("torch") else None)
    torch = None if python is None else (python, "cuda" if opened.info.kind == "gpu" else "cpu", suite.count or 0)
    wanted = [CASES[name] for name in names]
    measured = measure_training(
        wanted, open_learner(opened), opened.info.name, repetitions=suite.repetitions, torch=torch, compute=compute
    )
    rows = noted(measured, lambda _, row: f"{row.name}: {row.seconds:.3f} s")
    console.write(render_training(rows, suite.form))
    return exits.OK


def systolic(*, only: Sizes = "2,4,8,16", batch: Batch = "1", suite: SuiteOptions = SuiteOptions()) -> int:
    """Run cubes of dense layers tick by tick, and learn from their windows, beside PyTorch.

    Parameters
    ----------
    only : str
        Sides of the cubes, separated by commas.
    batch : str
        Streams side by side.
    """
    from benchmarks.suites.systolic import Cube, measure_systolic, render_systolic

    sides = _sides(only, batch, 1, "cubes need sides and streams of 1 or more", "--only 2,4,8 -b 1,16")
    return suite.measured(
        measure_systolic,
        [Cube(*side) for side in sides],
        render_systolic,
        lambda _, row: f"{row.side}³, {row.batch} streams, {row.role}: {row.rate:,.0f} ticks/s",
    )


def stacks(*, only: Only = None, suite: SuiteOptions = SuiteOptions()) -> int:
    """Time the cells and scaffolds of stacks, with and without resets and row by row, beside the package `cortical`.

    Parameters
    ----------
    only : str
        Kinds of cells, separated by commas.
    """
    from benchmarks.suites.stacks import chosen, measure_stacks, render_stacks

    wanted = chosen(_names(only))
    return suite.measured(
        measure_stacks,
        wanted,
        render_stacks,
        lambda n, row: f"{n} of {5 * len(wanted)}: {row.cell} {row.role}: {row.rate:,.0f} rows/s",
        "cortical",
    )


def fabric(*, only: Sizes = "16", batch: Batch = "1", suite: SuiteOptions = SuiteOptions()) -> int:
    """Run sheets of cells that exchange messages, and learn from their windows.

    Parameters
    ----------
    only : str
        Sides of the sheets, separated by commas.
    batch : str
        Streams side by side.
    """
    from benchmarks.suites.fabric import Sheet, measure_fabrics, render_fabrics

    suite.output.apply()
    sides = _sides(only, batch, 3, "sheets need sides of 3 or more, and streams", "--only 10,16,32 -b 8")
    rows = noted(
        measure_fabrics([Sheet(*side) for side in sides], suite.open(), repetitions=suite.repetitions),
        lambda _, row: f"{row.nodes:,} nodes, {row.batch} streams, {row.role}: {row.rate:,.0f} steps/s",
    )
    console.write(render_fabrics(rows, suite.form))
    return exits.OK


def program(*, only: Sizes = "10,100", batch: Batch = "1", suite: SuiteOptions = SuiteOptions()) -> int:
    """Run programs whose regions each read four others, beside the package `canvas-engineering`.

    Parameters
    ----------
    only : str
        Numbers of regions, separated by commas.
    batch : str
        Streams side by side.
    """
    from benchmarks.suites.program import Canvas, measure_programs, render_programs

    sides = _sides(only, batch, 2, "programs need 2 regions or more, and streams", "--only 10,100,1000 -b 1")
    return suite.measured(
        measure_programs,
        [Canvas(*side) for side in sides],
        render_programs,
        lambda _, row: f"{row.regions:,} regions, {row.share}, {row.role}: {row.rate:,.1f} steps/s",
        "canvas_engineering",
    )
