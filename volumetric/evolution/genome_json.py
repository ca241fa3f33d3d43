"""Genes as plain JSON values, and back, strictly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from volumetric.errors import SpecError
from volumetric.evolution.genes import ACTIVATIONS, AGGREGATIONS, CONNECTION, NODE, Interface, Records

_FORMAT = "volumetric.genome"
_VERSION = 1
_TOP = {
    "format": str, "version": int, "inputs": int, "outputs": int, "recurrent": bool, "steps": int, "nodes": list,
    "connections": list,
}  # fmt: skip
_NODE = {"id": int, "bias": float, "activation": str, "aggregation": str}
_CONNECTION = {"innovation": int, "source": int, "target": int, "weight": float, "enabled": bool}


def to_plain(interface: Interface, nodes: Records, connections: Records) -> dict[str, Any]:
    """Return values that `json` writes."""
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "inputs": interface.inputs,
        "outputs": interface.outputs,
        "recurrent": interface.recurrent,
        "steps": interface.steps,
        "nodes": [
            {
                "id": int(node["id"]),
                "bias": float(node["bias"]),
                "activation": ACTIVATIONS[node["activation"]],
                "aggregation": AGGREGATIONS[node["aggregation"]],
            }
            for node in nodes
        ],
        "connections": [{key: gene[key].item() for key in _CONNECTION} for gene in connections],
    }


def from_plain(plain: Any) -> dict[str, Any]:
    """Return the arguments of `Genome` that `plain` describes; whether they make sense is not checked here.

    Raises
    ------
    SpecError : a missing or unknown key, or a value of another type
    """
    _check(plain, _TOP, "genome")
    if plain["format"] != _FORMAT or plain["version"] != _VERSION:
        raise SpecError(f"not a genome of format {_FORMAT} {_VERSION}: {plain['format']!r} {plain['version']!r}")
    nodes = np.zeros(len(plain["nodes"]), NODE)
    for position, node in enumerate(plain["nodes"]):
        _check(node, _NODE, f"nodes[{position}]")
        codes = _code(node["activation"], ACTIVATIONS), _code(node["aggregation"], AGGREGATIONS)
        nodes[position] = (_small(node["id"]), *codes, _real(node["bias"]))
    connections = np.zeros(len(plain["connections"]), CONNECTION)
    for position, gene in enumerate(plain["connections"]):
        _check(gene, _CONNECTION, f"connections[{position}]")
        ends = _small(gene["source"]), _small(gene["target"])
        connections[position] = (_small(gene["innovation"], 62), *ends, _real(gene["weight"]), gene["enabled"])
    interface = Interface(
        inputs=_small(plain["inputs"]), outputs=_small(plain["outputs"]), recurrent=plain["recurrent"],
        steps=_small(plain["steps"]),
    )  # fmt: skip
    return {"interface": interface, "nodes": nodes, "connections": connections}


def _check(plain: Any, fields: dict[str, type], where: str) -> None:
    if not isinstance(plain, dict):
        raise SpecError(f"{where} must be an object, got {type(plain).__name__}")
    if plain.keys() != fields.keys():
        odd = ", ".join(sorted(map(str, plain.keys() ^ fields.keys())))
        raise SpecError(f"{where} has missing or unknown keys: {odd}", hint=f"it has {', '.join(fields)}")
    for key, kind in fields.items():
        fits = type(plain[key]) in (int, float) if kind is float else type(plain[key]) is kind
        if not fits:
            raise SpecError(f"{where}.{key} must be of type {kind.__name__}, got {plain[key]!r}")


def _code(name: str, names: Sequence[str]) -> int:
    if name not in names:
        raise SpecError(f"unknown {name!r}", hint=f"known: {', '.join(names)}")
    return names.index(name)


def _small(number: int, bits: int = 31) -> int:
    if not 0 <= number < 1 << bits:
        raise SpecError(f"{number} is negative or needs more than {bits} bits")
    return number


def _real(number: float) -> float:
    try:
        return float(number)
    except OverflowError as error:
        raise SpecError(f"{str(number)[:20]}… is too large") from error
