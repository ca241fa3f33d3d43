"""A layer, a loss and a reporter of one's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from volumetric.builders import sequential
from volumetric.layers import Dense, LayerSpec, ParamSpec, layer
from volumetric.layers.emit_scope import Scope
from volumetric.train import EpochEvent, Event, GraphLoss, train


@layer("typed_scale")
class TypedScale(LayerSpec):
    """``y = g · x``."""

    features: int

    def params(self) -> tuple[ParamSpec, ...]:
        return (ParamSpec(name="g", shape=(self.features,), init="ones", packable=False),)

    def output_shape(self, *inputs: tuple[int, ...]) -> tuple[int, ...]:
        return inputs[0]

    def emit(self, scope: Scope, x: int) -> int:
        return scope.work.binary("mul", x, scope.params(self)["g"])


def cubed(prediction: Any, target: Any) -> Any:
    return abs(prediction - target) ** 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cubed(GraphLoss):
    """``|y - t|³``."""

    kind: ClassVar[str] = "typed_cubed"


class Printer:
    """Prints the loss of each epoch."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, EpochEvent):
            print(event.epoch, event.loss)


def main() -> float:
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    scale = TypedScale(features=8)
    network = sequential(2, 1, hidden=(8,))
    result = train(network, x, x[:, :1], epochs=2, loss=Cubed(function=cubed))
    print(scale.features, Dense(in_features=2, out_features=8).activation)
    return float(result.predict(x).mean())


if __name__ == "__main__":
    print(main())
