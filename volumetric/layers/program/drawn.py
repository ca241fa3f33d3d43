"""What training draws for a program: positions that are hidden, and noise on diffusive regions, as nodes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from volumetric.errors import SpecError
from volumetric.graph.numeric.noise import stream_of
from volumetric.layers.program.carriers import chosen, noised
from volumetric.layers.program.facts import Facts, Place
from volumetric.layers.program.recipes import HIDDEN, diffuses, hides, stream_at
from volumetric.layers.program.settle import Held
from volumetric.layers.scope import Scope


def hidden_in(scope: Scope, facts: Facts, batch: int, length: int) -> dict[int, int]:
    """Emit which positions training hides: region → ``[T, B, N, 1]`` of 0 and 1, as `recipes.hidden_in` has it."""
    work, training, found = scope.work, scope.training, dict[int, int]()
    for place in hides(facts) if training is not None else ():
        assert training is not None
        count, stream = len(place.positions), stream_of(f"{scope.path}/{place.name}")
        whole = work.broadcast(work.constant(np.ones((1, 1, 1)), "ones"), (training.first + batch, length, count))
        stay = work.emit("dropout", (whole, _key(scope)), p=HIDDEN, stream=stream)[0]
        stay = work.part(stay, 0, training.first, training.first + batch)
        gone = work.permute(work.binary("greater", work.scalar(0.5), stay), (1, 0, 2))
        found[place.index] = work.reshape(gone, (length, batch, count, 1))
    return found


def noise_in(scope: Scope, facts: Facts, batch: int, length: int) -> dict[int, int]:
    """Emit the noise on diffusive regions: region → ε ``[T, B, N, d]``, as `diffusion.noise_in` has it."""
    work, training, found = scope.work, scope.training, dict[int, int]()
    for place in diffuses(facts) if training is not None else ():
        assert training is not None
        count, d = len(place.positions), facts.program.canvas.width
        first, stream = training.first * length * count * d, stream_at(scope.path, place)
        nothing = work.zeros((batch, length, count, d))
        drawn = work.emit("normal", (nothing, _key(scope)), stream=stream, first=first)[0]
        found[place.index] = work.permute(drawn, (1, 0, 2, 3))
    return found


def diffused(held: Held, canvas: int, noise: Mapping[int, int], levels: Mapping[int, tuple[int, int]]) -> int:
    """Emit the canvas with noise ``[B, N, d]`` on what regions hold that fire, each by its level before the step."""
    work, new = held.work, list[tuple[Place, int]]()
    for number, of in noise.items():
        place = held.facts.places[number]
        x, flag = held.taken(canvas, place), held.fires.get(number)
        y = noised(work, x, levels[number][0], of)
        where = None if flag is None else work.reshape(flag, (work.shape(flag)[0], 1, 1))
        new.append((place, chosen(work, where, y, x)))
    return held.placed(canvas, new)


def _key(scope: Scope) -> int:
    if scope.training is None or scope.training.noise is None:
        raise SpecError(f"program at {scope.path} needs the key of a pass")
    return scope.training.noise
