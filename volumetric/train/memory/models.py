"""Networks that memory tasks are given to, by short names: stacks by their patterns, and a fabric."""

from __future__ import annotations

from typing import Final

from volumetric.builders import auto_stack, chain
from volumetric.errors import SpecError
from volumetric.layers import Dense, Embedding, Fabric, LayerSpec
from volumetric.layers.fabric.cells import SLSTM
from volumetric.layers.fabric.declared import InPort, OutPort, Population
from volumetric.layers.fabric.edges import LocalRadius
from volumetric.layers.fabric.graphs import Lattice
from volumetric.layers.fabric.places import XBand
from volumetric.network import Network
from volumetric.train.problems import Problem

FABRIC: Final = "fabric"
_SIDE, _REACH, _CELL = 4, 1.5, 16


def network_for(problem: Problem, model: str, width: int) -> Network:
    """Return the network of a name, between an embedding (or a projection, of values) and a head.

    Parameters
    ----------
    model : patterns of `volumetric.builders.auto_stack`, one for each layer, with slashes between them: ``"M"``,
        ``"AXMS/L"``; or ``"fabric"``: 4 × 4 nodes, of which the first column takes rows and the last hands them out,
        with sLSTMs of 16 in between that read their neighbours, twice for each row, so that a row gets through
    width : features of a row inside

    Raises
    ------
    SpecError : there is no such cell, or it does not go with the width
    """
    if model == FABRIC:
        return _fabric(problem, width)
    patterns = model.split("/")
    ids = problem.vocabulary or None
    inputs = None if ids else problem.inputs.shape[-1]
    return auto_stack(width, len(patterns), patterns, embed=ids, inputs=inputs, classes=problem.outputs)


def _fabric(problem: Problem, width: int) -> Network:
    first: LayerSpec
    if problem.vocabulary:
        first = Embedding(num_embeddings=problem.vocabulary, embedding_dim=width)
    else:
        first = Dense(in_features=problem.inputs.shape[-1], out_features=width)
    if width < 1:
        raise SpecError(f"a fabric needs a width of 1 or more, got {width}")
    body = Fabric(
        graph=Lattice(sizes=(_SIDE, _SIDE)),
        inputs=(InPort(name="rows", nodes=XBand("low"), dim=width),),
        outputs=(OutPort(name="made", nodes=XBand("high"), dim=width),),
        populations=(Population(name="cells", cell=SLSTM(hidden=_CELL)),),
        connectivity=(LocalRadius(radius=_REACH),),
        public=_CELL,
        message=_CELL,
        head_dim=_CELL,
        inner_steps=_SIDE - 2,
    )
    shape, dtype = ((), "int32") if problem.vocabulary else (problem.inputs.shape[2:], "float32")
    return chain([first, body, Dense(in_features=width, out_features=problem.outputs)], shape, dtype)
