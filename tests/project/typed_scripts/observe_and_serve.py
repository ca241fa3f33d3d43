"""Observers of layers, recordings, and a server inside another program."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import volumetric
from volumetric.builders import sequential
from volumetric.generate import Limits, Model
from volumetric.observe import LayerEvent, ObservedDevice, Recording, record
from volumetric.serve.server import Server
from volumetric.serve.serving import ServerSettings


class Names:
    """Stores the layers that it was told of."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def observe(self, event: LayerEvent) -> None:
        self.seen.append(event.where)

    def close(self) -> None:
        self.seen.clear()


def observe() -> list[str]:
    names = Names()
    network = sequential(4, 2, hidden=(8,))
    params = volumetric.initialise(network, seed=1)
    device = ObservedDevice([names])
    print(volumetric.predict(network, params, np.zeros((3, 4), np.float32), device=device).shape)
    return names.seen


def film(path: Path) -> Recording:
    network = sequential(4, 2, hidden=(8,))
    recording = record(network, np.zeros((1, 6, 4), np.float32), device="reference")
    recording.save(path)
    return Recording.open(path)


def serve(name: str) -> Server:
    def opened() -> Model:
        return volumetric.load(name, device="cpu")

    return Server({"small": opened}, ServerSettings(api_key="secret"), Limits(slots=4), drain=5.0)


if __name__ == "__main__":
    print(observe(), film(Path("film.scope")).scene)
