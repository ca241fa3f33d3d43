"""Genomes as plain Python or C: a line for each node, with the sum of its inputs written out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Final

import numpy as np

from volumetric.base.atomic import write_atomic
from volumetric.base.errors import UnsupportedError
from volumetric.codegen.code_names import RESERVED
from volumetric.codegen.loop_writer import ArrayView, LoopWriter
from volumetric.codegen.network_code import MAX_WEIGHTS, NetworkCode
from volumetric.codegen.save_source import c_text, python_text
from volumetric.codegen.source_language import PYTHON, C, SourceLanguage
from volumetric.evolution.genes import ACTIVATIONS, AGGREGATIONS
from volumetric.evolution.genome import Genome, topological_order
from volumetric.formula.elementary import exp, larger, sigmoid, smaller
from volumetric.formula.expression import Expression, constant, substitute, variable
from volumetric.formula.unary_functions import FUNCTIONS, X

SOURCE_SUFFIXES: Final = (".py", ".c")
_OWN: Final[Mapping[str, Expression]] = {
    "steep_sigmoid": sigmoid(4.9 * X),
    "gaussian": exp(-(X * X)),
    "clamp": smaller(larger(X, -1.0), 1.0),
}
"""Activations of nodes that layers do not have."""
_JOINED: Final[Mapping[str, Callable[[Expression, Expression], Expression]]] = {
    "sum": lambda a, b: a + b,
    "mean": lambda a, b: a + b,
    "product": lambda a, b: a * b,
    "max": larger,
    "min": smaller,
}


def save_genome_source(path: str | os.PathLike[str], genome: Genome) -> None:
    """Write a genome as one file of Python (``.py``) or C (``.c``), see `volumetric.codegen`.

    All activations and aggregations are written, and recurrent genomes, whose `State` holds the values of their nodes.

    Raises
    ------
    UnsupportedError
        The name has another suffix, or the genome has more than `MAX_WEIGHTS` connections.
    """
    suffix = Path(path).suffix
    if suffix not in SOURCE_SUFFIXES:
        raise UnsupportedError(f"{path}: the name must end in .py or .c", hint=f"name it {Path(path).stem}.py")
    count = int(genome.connections["enabled"].sum())
    if count > MAX_WEIGHTS:
        raise UnsupportedError(f"the genome has {count:,} connections", hint=f"source code holds {MAX_WEIGHTS:,}")
    code = genome_code(genome, PYTHON if suffix == ".py" else C)
    about = f"A genome with {genome.hidden} hidden nodes and {count} connections"
    write_atomic(path, (python_text if suffix == ".py" else c_text)(code, about).encode())


def genome_code(genome: Genome, language: SourceLanguage) -> NetworkCode:
    """Return a genome as the body of a function of a language."""
    interface, size = genome.interface, len(genome.nodes)
    write = LoopWriter(language, {*RESERVED, *language.helpers, "input"})
    values = {i: f"input[{i}]" for i in range(interface.inputs)}
    place = {int(node): i for i, node in enumerate(genome.nodes["id"])}
    state = ArrayView(language.state.format(name="nodes"), (size,))
    if interface.recurrent:
        values |= {node: state.at(plus=i) for node, i in place.items()}
        with write.loops([interface.steps]):  # all nodes at once, from the values before
            after = {node: _node(write, genome, i, values) for node, i in place.items()}
            for node, i in place.items():
                write.set(state.at(plus=i), after[node])
    else:
        needed = _needed(genome)
        for i in topological_order(genome):
            node = int(genome.nodes["id"][i])
            if node in needed:
                values[node] = _node(write, genome, int(i), values)
    output = write.array("output", (interface.outputs,))
    for i in range(interface.outputs):
        write.set(output.at(plus=i), values[interface.inputs + i])
    return NetworkCode(
        lines=write.lines,
        helpers=[name for name in language.helpers if name in write.used],
        inputs={"input": (interface.inputs,)},
        outputs={"output": (interface.outputs,)},
        weights={},
        states={"nodes": (size,)} if interface.recurrent else {},
        results={"output": output.name},
    )


def _node(write: LoopWriter, genome: Genome, position: int, values: Mapping[int, str]) -> str:
    """Write the value of a node, and return its name."""
    node = genome.nodes[position]
    chosen = (genome.connections["target"] == node["id"]) & genome.connections["enabled"]
    names: dict[str, str] = {}
    terms: list[Expression] = []
    for gene in genome.connections[chosen]:
        source = f"n{int(gene['source'])}"
        names[source] = values[int(gene["source"])]
        terms.append(constant(float(gene["weight"])) * variable(source))
    aggregation = AGGREGATIONS[node["aggregation"]]
    total = reduce(_JOINED[aggregation], terms) if terms else constant(0.0)
    if aggregation == "mean" and terms:
        total = total / float(len(terms))
    total = total + float(node["bias"])
    activation = ACTIVATIONS[node["activation"]]
    formula = _OWN[activation] if activation in _OWN else FUNCTIONS[activation].value
    (text,) = write.formula(names, substitute(formula, {X: total}))
    return write.let(f"node{int(node['id'])}", text)


def _needed(genome: Genome) -> set[int]:
    """Return the nodes that an output depends on."""
    interface = genome.interface
    needed: set[int] = set()
    waiting = list(range(interface.inputs, interface.inputs + interface.outputs))
    genes = genome.connections[genome.connections["enabled"]]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += np.unique(genes["source"][genes["target"] == node]).tolist()
    return needed
