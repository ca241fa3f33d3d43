"""Measure clocked networks: windows of ticks that run, and such that are learned from, ours and PyTorch's in turn."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from benchmarks.timing import Rates, Row, each, number_or_dash
from benchmarks.torch_peer import TorchPeer
from volumetric.base import rng
from volumetric.base._typing import Array, F32Array
from volumetric.bench.bench_tables import render_table
from volumetric.clocked import Clocked
from volumetric.layers import Dense
from volumetric.network import Network, Params, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.run.device import Device
from volumetric.train import MSE, SGD, Batch, LearnerOptions, Systolic
from volumetric.train.learner_opening import open_learner

TICKS: Final = 64
"""Ticks of a window."""
WIDTH: Final = 64
LEARNED: Final = 1 << 16
"""Layers times streams up to which windows are learned from, too: of more, gradients need many gigabytes."""

_BURST_SECONDS = 0.05
_PAUSE = 0.1
"""Seconds after the peer's work, in which its threads spin on and take our cores."""

Role: TypeAlias = Literal["run", "update"]
_THEIRS = {"run": "forward", "update": "train"}


@dataclass(frozen=True, slots=True)
class Cube:
    """``side³`` dense layers of 64 with tanh, a chain in reading order, for `batch` streams side by side."""

    side: int
    batch: int

    @property
    def network(self) -> Network:
        """The layers."""
        places = itertools.product(range(self.side), repeat=3)
        layer = Dense(in_features=WIDTH, out_features=WIDTH, activation="tanh")
        return Network(
            grid=Grid(self.side, self.side, self.side),
            layers=dict.fromkeys(itertools.starmap(Coord, places), layer),
            input_shape=(WIDTH,),
            input_dtype="float32",
        )

    @property
    def flops(self) -> int:
        """Operations of the products of a tick."""
        return 2 * self.side**3 * WIDTH * WIDTH * self.batch

    def rows(self) -> F32Array:
        """A row a tick of normal noise, ``[streams, ticks, 64]``."""
        return rng.generator(3).standard_normal((self.batch, TICKS, WIDTH), np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystolicRow(Row):
    """One cube in one role.

    Attributes
    ----------
    role : ``"run"``; ``"update"``: forward, loss, backward through all ticks, and the step of plain gradient descent
    rate : of ticks
    gflops : that the products of these ticks are, in 10⁹ a second; an update has three times those of a run
    share : of an update: of a third of the rate of runs; the median over rounds
    peer : PyTorch; of its updates forward and backward alone are timed
    """

    side: int
    batch: int
    role: Role
    gflops: float
    share: float | None = None


def measure_systolic(
    cubes: Sequence[Cube], device: Device, *, repetitions: int = 5, peer: TorchPeer | None = None
) -> Iterator[SystolicRow]:
    """Yield the rows of each cube. Bursts of runs take turns with the peer's, after a warm-up."""
    for cube in cubes:
        params = initialise(cube.network)
        runs: dict[Role, Callable[[], object]] = {"run": _running(cube, params, device)}
        if cube.side**3 * cube.batch <= LEARNED:
            runs["update"] = _learning(cube, params, device)
        rates: dict[Role, Rates] = {role: Rates.warm(each(run), TICKS, _BURST_SECONDS) for role, run in runs.items()}
        if peer is not None:
            peer.give({"kind": "clocked"}, _arrays(cube, params))
        for _ in range(repetitions):
            for role, found in rates.items():
                found.run()
                if peer is not None:
                    found.run_peer(peer, _THEIRS[role], _PAUSE)
        for role, found in rates.items():
            yield SystolicRow(
                side=cube.side,
                batch=cube.batch,
                role=role,
                **found.figures(device),
                gflops=statistics.median(found.ours) * cube.flops * (3 if role == "update" else 1) / 1e9,
                share=_share(rates) if role == "update" else None,
            )


def _share(rates: Mapping[Role, Rates]) -> float:
    pairs = zip(rates["update"].ours, rates["run"].ours, strict=True)
    return statistics.median(3 * update / run for update, run in pairs)


def _running(cube: Cube, params: Params, device: Any) -> Callable[[], object]:
    stream, rows = device.stream(Clocked(network=cube.network), params, batch=cube.batch), cube.rows()
    return lambda: stream.run(rows)


def _learning(cube: Cube, params: Params, device: Device) -> Callable[[], object]:
    network = cube.network
    options = LearnerOptions(
        mode=Systolic(window=TICKS, delay=0), clocked=Clocked(network=network), loss=MSE(), optimiser=SGD(lr=1e-3)
    )
    learner = open_learner(device)(network, params, options)
    rows = cube.rows()
    whole = Batch(rows, np.zeros_like(rows))
    return lambda: learner.step([whole], rate=1e-3)


def _arrays(cube: Cube, params: Params) -> dict[str, Array]:
    """What the peer computes with: a stack for all layers, whose matrices have the orientation that it likes best."""
    weights, biases = (
        np.stack([params[f"{coord}/{name}"].values() for coord in cube.network.layers]) for name in ("weight", "bias")
    )
    rows = np.ascontiguousarray(cube.rows().swapaxes(0, 1))
    return {"x": rows, "gy": rows, "p/weight": np.ascontiguousarray(weights.swapaxes(1, 2)), "p/bias": biases}


_HEAD = (
    "cube | streams | role | device | ticks/s (least–most) | by processor time | GFLOP/s | of runs / 3 | torch ticks/s "
    "| times torch"
)


def render_systolic(rows: Sequence[SystolicRow], form: str) -> str:
    """Write `rows`; ends with a newline. Raises `SpecError` for an unknown format."""
    cells: list[list[str]] = []
    for row in rows:
        more = map(number_or_dash, (row.share, row.peer, row.ratio), (2, 0, 2))
        about = f"{row.side}³", str(row.batch), row.role, row.device
        cells.append([*about, *row.shown(), f"{row.gflops:.1f}", *more])
    return render_table([row.values() for row in rows], _HEAD, cells, form, left=4)
