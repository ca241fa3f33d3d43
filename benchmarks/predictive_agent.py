"""Pursuit by programs: one that computes all at each row, and one that looks where it is surprised.

    python -m benchmarks predictive_agent [--seeds 3] [--log outcomes.jsonl] [--quick] [--table] [--update]

For each seed the always-on program learns `WARM` updates. From there the triggered one goes on for `MORE`, with the
threshold above which the meter of the first was in `SHARE` of the rows that it learned from, and the first one goes on
for as many; an LSTM learns `WARM + MORE`. All are judged on samples that none has learned from. Work is counted exactly
for each stream, row by row (`observe.work_of`), and measured beside: processor time of one stream, in turn. Each
outcome is a line of `--log`, and is not run again. `--quick` is one seed with a third of the updates. `--table` runs
nothing; `--update` writes table and picture into docs/.
"""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from benchmarks.arguments import argument_parser, write_between
from volumetric import initialise, open_device
from volumetric.base._typing import Array
from volumetric.builders import auto_stack
from volumetric.network import Network, Params
from volumetric.observe import fired, work_of
from volumetric.observe.firing import Firing
from volumetric.program import Program
from volumetric.run.streams import RowStream, open_stream
from volumetric.train import Adam, Constant, Cosine, CrossEntropy, StepEvent, TrainConfig, WarmUp, train
from volumetric.train.data import Batch, StreamData
from volumetric.train.pursuit import BASELINES, always_on, at_home, exact, pursuit, triggered
from volumetric.train.pursuit.agent import METER
from volumetric.viz import draw_firing
from volumetric.viz.figure import save_figure

DOCUMENT = Path(__file__).parents[1] / "docs" / "programs.md"
PICTURE = DOCUMENT.with_name("pursuit.svg")
BEGIN, END = "<!-- pursuit: begin -->\n", "<!-- pursuit: end -->"
WIDTH, HIDDEN = 48, 96
WARM, MORE, BATCH, ROWS, RATE = 450, 550, 16, 48, 3e-3
SHARE = 0.12
JUDGED, LENGTH, CALL = 256, 96, 8
FIGURES = {
    "right": (100, "{:.1f} ± {:.1f} %", True),
    "way": (100, "{:.1f} %", False),
    "home": (100, "{:.1f} %", False),
    "flops": (1e-3, "{:.0f}", True),
    "seconds": (1e6, "{:.0f}", True),
}
COLUMNS = (
    "right",
    "of always on",
    "on its way",
    "at home",
    "kFLOP a frame",
    "of always on",
    "µs a frame",
    "of always on",
)
NAMES = ("last seen", "straight on", "LSTM", "always on", "triggered", "exact")
DEVICE = open_device("cpu")


def learn(network: Network, params: Params, seed: int, first: int, updates: int, *, cool: bool) -> Params:
    """Return what is learned in so many updates of new samples; those before `first` are taken for known."""
    each, losses, began = 16, list[float](), time.perf_counter()

    def batches(epoch: int) -> Iterator[Batch]:
        made = pursuit(seed, each * BATCH, ROWS, epoch=first + epoch)
        for at in range(0, each * BATCH, BATCH):
            yield Batch(made.inputs[at : at + BATCH], made.targets[at : at + BATCH])

    def note(event: object) -> None:
        if isinstance(event, StepEvent):
            losses.append(event.loss)
            if len(losses) % 100 == 0:
                print(f"  {len(losses)}: {mean(losses[-100:]):.3f}, {time.perf_counter() - began:.0f} s", flush=True)

    rest = Cosine(steps=max(1, updates - 50)) if cool else Constant()
    config = TrainConfig(
        loss=CrossEntropy(),
        optimiser=Adam(lr=RATE),
        schedule=WarmUp(steps=50, then=rest),
        clip=1.0,
        epochs=-(-updates // each),
        max_steps=updates,
        seed=seed,
    )
    return train(network, params, StreamData(batches), config, reporters=[note], device=DEVICE).params


def stream_of(network: Network, params: Params, batch: int) -> RowStream:
    """Open streams of a network side by side."""
    stream = open_stream(DEVICE, network, params, batch=batch)
    assert isinstance(stream, RowStream)
    return stream


def run_rows(network: Network, params: Params, rows: Array) -> Array:
    """Return what a network makes of rows, ``[B, T, 64]``."""
    with closing(stream_of(network, params, len(rows))) as stream:
        return np.concatenate([np.asarray(stream.run(rows[:, t : t + CALL])) for t in range(0, rows.shape[1], CALL)], 1)


def watched(program: Program, params: Params, rows: Array) -> list[Firing]:
    """Return what fires in calls of a few rows, and what comes out."""
    with closing(stream_of(program.network(), params, len(rows))) as stream:
        return [fired(stream, rows[:, t : t + CALL]) for t in range(0, rows.shape[1], CALL)]


def right(named: Array, rows: Array, targets: Array) -> dict[str, Any]:
    """Return the share of rows whose next cell is named: of all, on the ball's way, and while it is at home."""
    there, home = named == targets, at_home(rows)
    return {"right": float(there.mean()), "way": float(there[~home].mean()), "home": float(there[home].mean())}


def told(program: Program, params: Params, rows: Array, targets: Array) -> dict[str, Any]:
    """Judge a program: what it gets right, what that costs, and how often its edges compute."""
    seen, work = watched(program, params, rows), work_of(program)
    made = np.concatenate([np.asarray(of.outputs) for of in seen], 1)
    edges = np.concatenate([of.edges for of in seen], 1)
    return {
        **right(made.argmax(-1), rows, targets),
        "flops": float(np.concatenate([work.cost_of(of) for of in seen], 1).mean()),
        "edges": {edge.name: float((edges[..., n] > 0).mean()) for n, edge in enumerate(program.edges)},
    }


def timed(networks: dict[str, tuple[Network, Params]], rows: Array) -> dict[str, float]:
    """Return processor seconds of a frame of one stream: medians of calls in turn, sample after sample."""
    spent: dict[str, list[float]] = {name: [] for name in networks}
    streams = {name: stream_of(*of, 1) for name, of in networks.items()}
    for sample in rows:
        totals = dict.fromkeys(networks, 0.0)
        for stream in streams.values():
            stream.reset()
        for t in range(0, len(sample), CALL):
            for name, stream in streams.items():
                began = time.thread_time()
                stream.run(sample[None, t : t + CALL])
                totals[name] += time.thread_time() - began
        for name, total in totals.items():
            spent[name].append(total / len(sample))
    for stream in streams.values():
        stream.close()
    return {name: float(np.median(of[1:])) for name, of in spent.items()}


def run(seed: int, scale: float) -> tuple[dict[str, Any], Program, Params]:
    """Learn and judge with one seed; return the outcome, and the triggered program."""
    began = time.perf_counter()
    warm, more = round(scale * WARM), round(scale * MORE)
    first, network = always_on(WIDTH), always_on(WIDTH).network()
    print(f"seed {seed}: always on", flush=True)
    begun = learn(network, initialise(network, seed), seed, 0, warm, cool=False)
    known = pursuit(seed, 64, LENGTH)
    meters = np.concatenate([of.meters[METER] for of in watched(first, begun, known.inputs)], 1)
    second = triggered(round(float(np.quantile(meters, 1 - SHARE)), 3), WIDTH)
    after = -(-warm // 16)
    params = {"always on": learn(network, begun, seed, after, more, cool=True)}
    print(f"seed {seed}: triggered, {second.edges[2].when}", flush=True)
    params["triggered"] = learn(second.network(), begun, seed, after, more, cool=True)
    print(f"seed {seed}: LSTM", flush=True)
    lstm = auto_stack(HIDDEN, 1, ["L"], inputs=known.inputs.shape[-1], classes=len(known.classes))
    params["LSTM"] = learn(lstm, initialise(lstm, seed), seed, 0, warm + more, cool=True)

    judged = pursuit(seed, JUDGED, LENGTH, split="test")
    rows, targets = judged.inputs, judged.targets
    found: dict[str, Any] = {name: right(f(rows), rows, targets) for name, f in BASELINES.items()}
    found["exact"] = right(exact(rows), rows, targets)
    found["LSTM"] = right(run_rows(lstm, params["LSTM"], rows).argmax(-1), rows, targets)
    programs = {"always on": first, "triggered": second}
    for name, program in programs.items():
        found[name] = told(program, params[name], rows, targets)
    machines = {name: (of.network(), params[name]) for name, of in programs.items()}
    for name, seconds in timed(machines | {"LSTM": (lstm, params["LSTM"])}, rows[:24]).items():
        found[name]["seconds"] = seconds
    outcome = {"seed": seed, "scale": scale, "found": found, "seconds": time.perf_counter() - began}
    return outcome, second, params["triggered"]


def table(outcomes: list[dict[str, Any]]) -> list[str]:
    """Lines of a Markdown table: mean ± deviation over seeds."""
    count = f"{len(outcomes)} seed" + "s" * (len(outcomes) != 1)
    lines = [f"| {count} | {' | '.join(COLUMNS)} |", f"| --- |{' ---: |' * len(COLUMNS)}"]
    for name in NAMES:
        cells: list[str] = []
        for key, (scale, form, shared) in FIGURES.items():
            of = [(found["found"][name].get(key), found["found"]["always on"][key]) for found in outcomes]
            known = [(value, whole) for value, whole in of if value is not None]
            cells.append(_spread([scale * value for value, _ in known], form))
            if shared:
                cells.append(_spread([100 * value / whole for value, whole in known], "{:.1f} ± {:.1f} %"))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    edges = {name: [of["found"]["triggered"]["edges"][name] for of in outcomes] for name in _edges(outcomes)}
    shares = ", ".join(f"`{name}` {100 * mean(of):.1f} %" for name, of in edges.items())
    text = f"Rows in which edges of the triggered program compute: {shares}."
    return [*lines, "", *textwrap.wrap(text, 120, break_on_hyphens=False)]


def _edges(outcomes: list[dict[str, Any]]) -> list[str]:
    return [*outcomes[0]["found"]["triggered"]["edges"]] if outcomes else []


def _spread(values: list[float], form: str) -> str:
    """Mean and, of several, deviation."""
    if not values:
        return ""
    if len(values) == 1:
        form = form.replace(" ± {:.1f}", "")
    return form.format(mean(values), stdev(values) if len(values) > 1 else 0.0)


def draw(program: Program, params: Params, seed: int) -> None:
    """Draw what fires in the triggered program over one sample that it has not learned from."""
    rows = pursuit(seed, 1, LENGTH, split="test").inputs
    seen = fired(program.network(), rows, params=params, device="reference")
    save_figure(draw_firing(seen, "pursuit: what fired in a sample"), PICTURE)


def main() -> None:
    """Learn, judge, and print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--log", type=Path, default=None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    scale, seeds = (1 / 3, 1) if given.quick else (1.0, given.seeds)
    lines = given.log.read_text(encoding="utf-8").splitlines() if given.log and given.log.exists() else []
    outcomes: list[dict[str, Any]] = [of for of in map(json.loads, lines) if of["scale"] == scale]
    for seed in range(0 if given.table else seeds):
        if any(of["seed"] == seed for of in outcomes):
            continue
        outcome, program, params = run(seed, scale)
        outcomes.append(outcome)
        if given.log is not None:
            with given.log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(outcome) + "\n")
        if given.update and seed == 0:
            draw(program, params, seed)
    made = table(outcomes)
    print(*made, sep="\n")
    print(f"\n{sum(of['seconds'] for of in outcomes) / 60:.1f} minutes")
    if given.update:
        write_between(DOCUMENT, BEGIN, END, made)


if __name__ == "__main__":
    main()
