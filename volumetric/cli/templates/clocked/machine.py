"""Write a network whose layers all compute at the same time, and sequences to train and to run it with.

The network is a grid of 2 × 3 × 3 dense layers, each connected with its neighbours. The task: say which of four symbols
came `LATER` rows ago. No layer stores anything; the symbol is remembered by going round in the grid.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from volumetric import Coord, Grid, Link, Network
from volumetric.layers import Dense

LATER, SYMBOLS, WIDTH, SAMPLES, ROWS = 4, 4, 16, 512, 24

places = [Coord(z, y, x) for z in range(2) for y in range(3) for x in range(3)]
first, last = places[0], places[-1]
layers = {place: Dense(in_features=WIDTH, out_features=WIDTH, activation="tanh") for place in places}
layers[first] = Dense(in_features=SYMBOLS, out_features=WIDTH, activation="tanh")
layers[last] = Dense(in_features=WIDTH, out_features=SYMBOLS)
links = tuple(
    Link(kind="activation", source=a, target=b, combine="add", delay=1)
    for a in places
    for b in places
    if abs(a.z - b.z) + abs(a.y - b.y) + abs(a.x - b.x) == 1 and a != last and b != first
)
network = Network(grid=Grid(2, 3, 3), layers=layers, links=links, input_shape=(SYMBOLS,), input_dtype="float32")
Path("network.json").write_text(network.to_json(), encoding="utf-8")

symbols = np.random.default_rng(0).integers(0, SYMBOLS, (SAMPLES, ROWS))
rows = np.eye(SYMBOLS, dtype=np.float32)[symbols]
unknown = np.full((SAMPLES, LATER), -100)  # the class -100 does not count
np.savez("recall.npz", inputs=rows, targets=np.concatenate([unknown, symbols[:, :-LATER]], 1))
np.savez("rows.npz", input=rows[:1])
print(f"{len(layers)} layers, {len(links)} links; {SAMPLES} sequences of {ROWS} rows")
