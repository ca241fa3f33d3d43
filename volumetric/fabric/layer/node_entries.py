"""Maps from nodes to the entries of a fabric's parameters and states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from volumetric.fabric.layer.cell_steps import params_of, states_of
from volumetric.layers.node_layer import NodeEntries

if TYPE_CHECKING:
    from volumetric.fabric.layer.fabric_layer import Fabric


def param_entries(spec: Fabric) -> dict[str, NodeEntries]:
    """Return the entries of nodes for each parameter and buffer that has them."""
    facts, h = spec.facts, spec.hidden
    every = np.arange(len(facts.order))
    outputs = facts.order[facts.senders_count :]
    entries = {
        "slot": NodeEntries(0, 1, facts.order, every),
        "kv.weight": NodeEntries(0, 1, facts.order[: facts.senders_count], facts.groups),
        **{f"readout.{name}": NodeEntries(0, 1, outputs, np.arange(facts.outputs)) for name in ("weight", "bias")},
    }
    if spec.dynamic:
        entries["living"] = NodeEntries(0, 1, facts.order, every)
    for port in spec.inputs:
        own = facts.order[facts.ports[port.name]]
        rows = NodeEntries(0, h, own, np.arange(len(own)))
        entries |= {f"ports.{port.name}.{name}": rows for name in ("weight", "bias")}
    for port in spec.outputs:
        if port.aggregate == "flatten":
            own = outputs[facts.ports[port.name]]
            entries[f"ports.{port.name}.weight"] = NodeEntries(1, h, own, np.arange(len(own)))
    for p in spec.populations:
        own = facts.order[facts.inputs : facts.senders_count][facts.populations[p.name]]
        sets = NodeEntries(0, 1, own, facts.shares[p.name])
        entries |= {f"cells.{p.name}.{of.name}": sets for of in params_of(p.cell, 1)}
    return entries


def state_entries(spec: Fabric) -> dict[str, NodeEntries]:
    """Return the entries of nodes for each state."""
    facts = spec.facts
    cells = facts.order[facts.inputs : facts.senders_count]
    entries = {"shown": NodeEntries(0, 1, cells, np.arange(facts.cells))}
    for p in spec.populations:
        own = cells[facts.populations[p.name]]
        entries |= {f"{p.name}.{name}": NodeEntries(0, 1, own, np.arange(len(own))) for name in states_of(p.cell)}
    if spec.remembered:
        entries["past"] = NodeEntries(1, 1, facts.order[: facts.senders_count], np.arange(facts.senders_count))
    return entries
