"""Biases of dense layers in layers that the Go engine Loom has: its own dense layers have none.

``act(W x + b)`` is written as a sequential of the product without an activation, a gated block with weights of 0 whose
last bias is b, a residual that adds the product to it, and, where there is an activation, a product with the identity
that has it. All sums and products but the one with W are exact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from volumetric._typing import Shape
from volumetric.layers import Dense, LayerSpec, Residual, Sequential, SwiGLU
from volumetric.weights import WeightStore


def bias_apart(
    spec: LayerSpec, stores: Mapping[str, WeightStore], row: Shape
) -> tuple[LayerSpec, Mapping[str, WeightStore]]:
    """Return a layer that computes the same without a bias that the engine lacks, and its parameters.

    Parameters
    ----------
    row : shape of a row that it reads

    Returns
    -------
    Layer and parameters; those that were given for all but dense layers that read one vector and have a bias
    """
    if not isinstance(spec, Dense) or len(row) != 1 or not spec.bias or not np.any(stores["bias"].values()):
        return spec, stores
    count = spec.out_features
    constant = SwiGLU(in_features=count, hidden_features=1, bias=True)
    values = {param.name: np.zeros(param.shape, np.float32) for param in constant.params()}
    values["down.bias"] = stores["bias"].values()
    layers = [dataclasses.replace(spec, bias=False, activation="linear"), constant, Residual()]
    named = {"0/weight": stores["weight"]}
    named |= {f"1/{name}": WeightStore.from_array(array) for name, array in values.items()}
    if spec.activation != "linear":
        layers.append(Dense(in_features=count, out_features=count, bias=False, activation=spec.activation))
        named["3/weight"] = WeightStore.from_array(np.eye(count, dtype=np.float32))
    return Sequential(layers=tuple(layers)), named
