"""From a blueprint to a network and its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from volumetric.base._typing import Array
from volumetric.fabric.fabric_blueprint import Blueprint, ReceiverState
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.fabric.layer.node_latency import check_reached, latencies
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import Params

AT = Coord(0)
"""Coordinate of the fabric in its network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A network of one fabric, with initial weights.

    Attributes
    ----------
    network : network whose input row concatenates all inputs, and whose output row concatenates all outputs
    params : weights by key
    latency : output → input → minimum number of rows until the output can depend on it; None: never
    """

    network: Network
    params: Params
    latency: Mapping[str, Mapping[str, int | None]]

    @property
    def fabric(self) -> Fabric:
        """The layer."""
        spec = self.network.layers[AT]
        assert isinstance(spec, Fabric)
        return spec

    def facts(self) -> dict[str, Any]:
        """Return a summary: nodes, edges, populations, parameters, bytes of a stream's state, latency."""
        living = self.params[f"{AT}/living"].values() if self.fabric.dynamic else None
        return fabric_facts(self.fabric, living) | {
            "parameters": sum(prod(store.shape) for store in self.params.values())
        }


def layer_of(blueprint: Blueprint) -> Fabric:
    """Return the layer of a blueprint."""
    declared, message = blueprint.declared, blueprint.message
    return Fabric(
        graph=declared.graph,
        inputs=declared.inputs,
        outputs=declared.outputs,
        populations=declared.populations,
        connectivity=declared.connectivity,
        public=blueprint.interface.public,
        message=blueprint.interface.message,
        head_dim=message.head_dim,
        heads=message.heads,
        value_dim=message.value_dim,
        query="state" if isinstance(message.query, ReceiverState) else "slot",
        kv_tile=declared.kv_tile,
        learn_distance=message.learn_distance,
        inner_steps=blueprint.inner_steps,
        dynamic=blueprint.dynamic,
        without=declared.without,
    )


def compile(blueprint: Blueprint, *, seed: int = 0) -> Model:  # noqa: A001  (the field's name for it)
    """Return the network of a blueprint, with initial weights.

    Parameters
    ----------
    seed : seed of the weights

    Raises
    ------
    SpecError : the blueprint is ill-formed, or an output can depend on no input
    """
    spec = layer_of(blueprint)
    late = check_reached(spec)
    width = sum(port.dim for port in spec.inputs)
    network = Network(grid=Grid(1), layers={AT: spec}, input_shape=(width,), input_dtype="float32")
    return Model(network=network, params=initialise(network, seed), latency=late)


def fabric_facts(spec: Fabric, living: Array | None = None) -> dict[str, Any]:
    """Return a summary of a fabric: nodes, edges, populations, bytes of a stream's state, latency.

    With `living`, the mask of a dynamic fabric in the order of its facts, also the numbers of living and masked nodes.
    """
    facts = spec.facts
    counted = {} if living is None else {"living": int((living != 0).sum()), "masked": int((living == 0).sum())}
    return {
        "nodes": {"inputs": facts.inputs, "cells": facts.cells, "outputs": facts.outputs, **counted},
        "edges": len(facts.senders),
        "populations": {
            p.name: {
                "cell": type(p.cell).__name__,
                "nodes": facts.populations[p.name].stop - facts.populations[p.name].start,
                "share": p.share,
            }
            for p in spec.populations
        },
        "state_bytes": 4 * sum(state.size for state in spec.states()),
        "latency": latencies(spec),
    }
