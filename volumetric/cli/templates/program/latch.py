"""Write a program, and sequences to train it with: latch.program.json, latch.npz, rows.npz.

The program keeps the symbol that came with the last cue. Regions are boxes of a canvas of 2 × 4 positions. The region
`store` is written only when there is a cue: at all other rows its edge does not even compute.
"""

from __future__ import annotations

import numpy as np

from volumetric.program import Canvas, Edge, In, Out, Program, Region, Signal, save_program

SYMBOLS, SAMPLES, ROWS = 4, 512, 24

canvas = Canvas(
    frames=1,
    shape=(2, 4),
    width=16,
    regions={
        "eye": Region(((0, 1), (0, 2)), family="observation"),
        "store": Region(((1, 2), (0, 2)), family="state"),
        "speech": Region(((0, 2), (2, 4)), family="action"),
    },
)
program = Program(
    canvas,
    edges=[
        Edge(reads="eye", writes="store", rule="cross", write="replace", when="on(cue)"),
        Edge(reads="store", writes="speech", rule="cross", write="replace"),
    ],
    ports={"symbol": In("eye", SYMBOLS), "cue": Signal(), "answer": Out("speech", SYMBOLS)},
)
save_program("latch.program.json", program)

random = np.random.default_rng(0)
symbols = random.integers(0, SYMBOLS, (SAMPLES, ROWS))
cues = random.random((SAMPLES, ROWS)) < 0.2
cues[:, 0] = True
latest = np.maximum.accumulate(np.where(cues, np.arange(ROWS), 0), axis=1)  # row of the last cue
stored = np.take_along_axis(symbols, latest, 1)
one_hot = np.eye(SYMBOLS, dtype=np.float32)
answers = one_hot[stored]
answers = np.concatenate([np.zeros_like(answers[:, :1]), answers[:, :-1]], 1)  # a row later: an edge takes one row
ports = {"symbol": one_hot[symbols], "cue": cues[..., None].astype(np.float32)}
np.savez(
    "latch.npz",
    allow_pickle=False,
    **{f"inputs.{name}": rows for name, rows in ports.items()},
    **{"targets.answer": answers},
)
np.savez("rows.npz", input=np.concatenate([rows[:1, :8] for rows in ports.values()], -1))
print("cue   ", *("x" if cue else "." for cue in cues[0, :8]))
print("symbol", *symbols[0, :8])
print("answer", ".", *stored[0, :7])
