"""The compiler over networks in which programs are layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from volumetric._typing import Array, F32Array
from volumetric.errors import SpecError
from volumetric.grid import Coord
from volumetric.layers import Program
from volumetric.network import Network, check_params
from volumetric.program.compiling import compiled_part
from volumetric.program.compiling.report import Report
from volumetric.weights import Params, WeightStore


@dataclass(frozen=True, eq=False, slots=True)
class CompiledNetwork:
    """A network of which all programs are compiled.

    Attributes
    ----------
    network, params : of it
    reports : where a program is → what was done to it, and why
    frozen : keys of parameters that regions to be frozen own, and rows of constants: what `TrainConfig.frozen` takes
    exported : where a program is → what regions of it hold whose keep is export, if there are any
    """

    network: Network
    params: Params
    reports: Mapping[Coord, Report]
    frozen: tuple[str, ...]
    exported: Mapping[Coord, Mapping[str, F32Array]]


def compile_network(
    network: Network,
    params: Mapping[str, WeightStore],
    *,
    deploy: bool = True,
    outputs: Sequence[str] | None = None,
    drop_inputs: bool = False,
    after: int | None = None,
    rows: Array | Mapping[str, Array] | None = None,
) -> CompiledNetwork:
    """Return a network that makes the same, with all its programs compiled; `compile` says how.

    Parameters
    ----------
    outputs, drop_inputs, rows : of a network that is a program alone, for others read its rows, or make them
    after : of each program, which its inputs are zeros for

    Raises
    ------
    SpecError : no layer is a program, links share its parameters, or there is no such output
    CheckpointError : parameters do not fit
    """
    check_params(network, params)
    at = [coord for coord, spec in network.layers.items() if isinstance(spec, Program)]
    if not at:
        kinds = ", ".join(sorted({spec.kind for spec in network.layers.values()}))
        raise SpecError(
            f"compile: no layer of the network is a program; there is: {kinds or 'none'}",
            hint="give a file x.program.json, or a model with a program, as program.network() makes it",
        )
    if (outputs is not None or drop_inputs or rows is not None) and len(network.layers) > 1:
        raise SpecError(
            "compile: outputs and inputs can go only where the program is all there is, and rows come in only there",
            hint=f"this network has {len(network.layers)} layers, which read the program's rows or make them",
        )
    shared = [link for link in network.links if link.kind == "shared" and {link.source, link.target} & set(at)]
    if shared:
        raise SpecError(f"compile: {shared[0].source} and {shared[0].target} share parameters of a program")
    layers, shape = dict(network.layers), network.input_shape
    stores = {key: store for key, store in params.items() if Coord.parse(key.partition("/")[0]) not in at}
    reports: dict[Coord, Report] = {}
    frozen: list[str] = []
    exported: dict[Coord, Mapping[str, F32Array]] = {}
    for coord in at:
        spec, start = layers[coord], f"{coord}/"
        assert isinstance(spec, Program)
        own = {key.removeprefix(start): store for key, store in params.items() if key.startswith(start)}
        part = compiled_part(
            spec.program, own, deploy=deploy, outputs=outputs, drop_inputs=drop_inputs, after=after, rows=rows
        )
        layers[coord] = made = Program(program=part.program)
        stores |= {start + name: store for name, store in (part.params or {}).items()}
        frozen += (start + name for name in part.frozen)
        reports[coord] = part.report
        exported |= {coord: part.exported} if part.exported else {}
        if drop_inputs:
            shape = (*shape[:-1], max(stop for _, stop in made.ports("inputs").values()))
    made = dataclasses.replace(network, layers=layers, input_shape=shape)
    return CompiledNetwork(made, Params(stores), reports, tuple(frozen), exported)
