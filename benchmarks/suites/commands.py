"""Suites as commands, with the flags that ``volumetric bench`` has."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from cyclopts import Parameter

from benchmarks.torch_peer import TorchPeer, open_peer
from volumetric.cli import console, exits
from volumetric.cli.bench import sizes
from volumetric.cli.exits import UsageError
from volumetric.cli.options import DeviceOptions, OutputOptions
from volumetric.runtime.device import Device
from volumetric.runtime.open import open_device

R = TypeVar("R")
Only = Annotated[str | None, Parameter(name=["--only"])]
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

    @property
    def count(self) -> int | None:
        """Threads of the device."""
        return None if self.threads is None else sizes("-t", self.threads)[0]


@dataclass(frozen=True, slots=True)
class _Setting:
    """Where a suite runs, and how."""

    suite: SuiteOptions
    device: DeviceOptions

    def open(self) -> Device:
        """Open a device that runs graphs."""
        device = open_device(self.device.device, threads=self.suite.count)
        if getattr(device, "graphs", None) is None:
            raise UsageError(f"device {device.info.name} runs no layers", hint="use cpu or gpu")
        return device

    @contextmanager
    def beside(self, package: str = "torch") -> Iterator[tuple[Device, TorchPeer | None]]:
        """Open a device, and PyTorch if it and a package on it are to be had, and say what they are."""
        device = self.open()
        gpu, threads = device.info.kind == "gpu", device.info.details.get("threads")
        with open_peer(self.suite.torch_python, gpu=gpu, threads=threads, package=package) as peer:
            console.note(f"{device.info.description}; " + (f"{package} is not here" if peer is None else peer.about))
            yield device, peer


def layers(
    *,
    only: Only = None,
    suite: SuiteOptions = SuiteOptions(),
    device: DeviceOptions = DeviceOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Time every layer kind, forward and with its gradients, beside PyTorch.

    Parameters
    ----------
    only : str
        Layer kinds, separated by commas.
    """
    from benchmarks.suites.layers import chosen, measure_layers, render_layers

    output.apply()
    wanted = chosen(_names(only))
    with _Setting(suite, device).beside() as (opened, peer):
        measured = measure_layers(wanted, opened, repetitions=suite.repetitions, peer=peer)
        rows = _noted(measured, lambda n, row: f"{n} of {2 * len(wanted)}: {row.layer} {row.role}")
    console.write(render_layers(rows, suite.form))
    return exits.OK


def training(
    *,
    only: Only = None,
    suite: SuiteOptions = SuiteOptions(),
    device: DeviceOptions = DeviceOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Train six small networks for 20 epochs, beside PyTorch.

    Parameters
    ----------
    only : str
        Names of networks, separated by commas.
    """
    from benchmarks.suites.training import CASES, measure_training, render_training
    from volumetric.train.open import open_learner

    output.apply()
    names = _names(only) or list(CASES)
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise UsageError(f"there is no network {unknown[0]!r}", hint="known: " + ", ".join(CASES))
    opened = open_device(device.device, threads=suite.count)
    python = suite.torch_python or (Path(sys.executable) if importlib.util.find_spec("torch") else None)
    torch = None if python is None else (python, "cuda" if opened.info.kind == "gpu" else "cpu", suite.count or 0)
    wanted = [CASES[name] for name in names]
    measured = measure_training(
        wanted, open_learner(opened), opened.info.name, repetitions=suite.repetitions, torch=torch
    )
    rows = _noted(measured, lambda _, row: f"{row.name}: {row.seconds:.3f} s")
    console.write(render_training(rows, suite.form))
    return exits.OK


def systolic(
    *,
    only: Annotated[str, Parameter(name=["--only"])] = "2,4,8,16",
    batch: Batch = "1",
    suite: SuiteOptions = SuiteOptions(),
    device: DeviceOptions = DeviceOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Run cubes of dense layers tick by tick, and learn from their windows, beside PyTorch.

    Parameters
    ----------
    only : str
        Sides of the cubes, separated by commas.
    batch : str
        Streams side by side.
    """
    from benchmarks.suites.systolic import Cube, measure_systolic, render_systolic

    output.apply()
    sides, batches = sizes("--only", only), sizes("-b", batch)
    if min(*sides, *batches) < 1:
        raise UsageError("cubes need sides and streams of 1 or more", hint="--only 2,4,8 -b 1,16")
    wanted = [Cube(side, count) for side in sides for count in batches]
    with _Setting(suite, device).beside() as (opened, peer):
        measured = measure_systolic(wanted, opened, repetitions=suite.repetitions, peer=peer)
        rows = _noted(
            measured, lambda _, row: f"{row.side}³, {row.batch} streams, {row.role}: {row.ticks:,.0f} ticks/s"
        )
    console.write(render_systolic(rows, suite.form))
    return exits.OK


def stacks(
    *,
    only: Only = None,
    suite: SuiteOptions = SuiteOptions(),
    device: DeviceOptions = DeviceOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Time the cells and scaffolds of stacks, with and without resets and row by row, beside the package `cortical`.

    Parameters
    ----------
    only : str
        Kinds of cells, separated by commas.
    """
    from benchmarks.suites.stacks import chosen, measure_stacks, render_stacks

    output.apply()
    wanted = chosen(_names(only))
    with _Setting(suite, device).beside("cortical") as (opened, peer):
        measured = measure_stacks(wanted, opened, repetitions=suite.repetitions, peer=peer)
        rows = _noted(
            measured,
            lambda n, row: f"{n} of {5 * len(wanted)}: {row.cell} {row.role}: {row.tokens:,.0f} rows/s",
        )
    console.write(render_stacks(rows, suite.form))
    return exits.OK


def fabric(
    *,
    only: Annotated[str, Parameter(name=["--only"])] = "16",
    batch: Batch = "1",
    suite: SuiteOptions = SuiteOptions(),
    device: DeviceOptions = DeviceOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Run sheets of cells that exchange messages, and learn from their windows.

    Parameters
    ----------
    only : str
        Sides of the sheets, separated by commas.
    batch : str
        Streams side by side.
    """
    from benchmarks.suites.fabric import Sheet, measure_fabrics, render_fabrics

    output.apply()
    sides, batches = sizes("--only", only), sizes("-b", batch)
    if min(sides) < 3 or min(batches) < 1:
        raise UsageError("sheets need sides of 3 or more, and streams", hint="--only 10,16,32 -b 8")
    wanted = [Sheet(side, count) for side in sides for count in batches]
    rows = _noted(
        measure_fabrics(wanted, _Setting(suite, device).open(), repetitions=suite.repetitions),
        lambda _, row: f"{row.nodes:,} nodes, {row.batch} streams, {row.role}: {row.steps:,.0f} steps/s",
    )
    console.write(render_fabrics(rows, suite.form))
    return exits.OK


def program(
    *,
    only: Annotated[str, Parameter(name=["--only"])] = "10,100",
    batch: Batch = "1",
    suite: SuiteOptions = SuiteOptions(),
    device: DeviceOptions = DeviceOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Run programs whose regions each read four others, beside the package `canvas-engineering`.

    Parameters
    ----------
    only : str
        Numbers of regions, separated by commas.
    batch : str
        Streams side by side.
    """
    from benchmarks.suites.program import Canvas, measure_programs, render_programs

    output.apply()
    regions, batches = sizes("--only", only), sizes("-b", batch)
    if min(regions) < 2 or min(batches) < 1:
        raise UsageError("programs need 2 regions or more, and streams", hint="--only 10,100,1000 -b 1")
    wanted = [Canvas(number, count) for number in regions for count in batches]
    with _Setting(suite, device).beside("canvas_engineering") as (opened, peer):
        measured = measure_programs(wanted, opened, repetitions=suite.repetitions, peer=peer)
        rows = _noted(
            measured,
            lambda _, row: f"{row.regions:,} regions, {row.share}, {row.role}: {row.steps:,.1f} steps/s",
        )
    console.write(render_programs(rows, suite.form))
    return exits.OK


def _names(only: str | None) -> list[str] | None:
    return None if only is None else only.split(",")


def _noted(measured: Iterable[R], text: Callable[[int, R], str]) -> list[R]:
    """Return rows, after a note of each as soon as it is there; `text` takes its number, from 1, and the row."""
    rows: list[R] = []
    for row in measured:
        rows.append(row)
        console.note(text(len(rows), row))
    return rows
