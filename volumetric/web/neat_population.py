"""NeatPopulation: room for genomes of nodes and connections that evolve in a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from volumetric.base.errors import SpecError
from volumetric.devices.gpu.genomes import EDGE, FIRED
from volumetric.devices.gpu.kernels.genomes import GenomeShape, genomes
from volumetric.devices.gpu.recording_context import RecordingContext
from volumetric.evolution import EvolutionConfig
from volumetric.web.variant_writer import VariantWriter


@dataclass(frozen=True)
class NeatPopulation:
    """The kernel that activates a generation, and buffers that a page fills: a `RecordedKind`.

    Attributes
    ----------
    config : of runs in the page; the page replaces widths by those of its problem
    problem : ``"xor"`` or ``"cartpole"``: the first one that the page shows
    nodes, connections, samples : most nodes and connections of a genome, and samples of an activation
    inputs, outputs : most of them

    Raises
    ------
    SpecError : a number is below 1, or the problem is unknown
    """

    config: EvolutionConfig = field(default_factory=EvolutionConfig)
    problem: str = "xor"
    nodes: int = 64
    connections: int = 256
    samples: int = 64
    inputs: int = 8
    outputs: int = 4
    title: str = "Neuroevolution"
    origin: Mapping[str, str | None] = field(default_factory=dict)
    ui: Mapping[str, Any] = field(default_factory=lambda: {"view": "neat"})
    files: Mapping[str, bytes] = field(default_factory=dict)
    kind: str = "population"

    def __post_init__(self) -> None:
        """Check the configuration."""
        if min(self.nodes, self.connections, self.samples, self.inputs, self.outputs) < 1:
            raise SpecError("nodes, connections, samples, inputs and outputs must be 1 or more")
        if self.problem not in PROBLEMS:
            raise SpecError(f"a page has no problem {self.problem!r}", hint=f"known: {', '.join(PROBLEMS)}")

    def record(self, writer: VariantWriter) -> dict[str, Any]:
        """Record the activation of the whole population; see `RecordedKind.record`."""
        count, genome = self.config.population, self.config.genome
        # Nodes of recurrent genomes change at once: an update fires copies of them, then the nodes, which read those.
        copies = self.nodes if genome.recurrent else 0
        fired = (self.nodes + copies) * (genome.steps if genome.recurrent else 1)
        context = RecordingContext(writer.variant.caps, features=writer.variant.features)
        shape = GenomeShape(
            genomes=count, samples=self.samples, inputs=self.inputs, outputs=self.outputs,
            slots=self.inputs + self.nodes + copies, shared=False, edges=self.connections + copies,
        )  # fmt: skip
        sizes = {
            "heads": 4 * (count + 1),
            "fired": FIRED.itemsize * count * fired,
            "edges": EDGE.itemsize * count * shape.edges,
            "x": 4 * count * self.inputs * self.samples,
            "values": shape.value_bytes,
            "y": 4 * count * self.outputs * self.samples,
            "dims": 32,
        }
        buffers = {name: context.buffer(size, name, uniform=name == "dims") for name, size in sizes.items()}
        for name, buffer in buffers.items():
            writer.name(buffer, name)
        call = context.bind(genomes(shape, context.caps), buffers, shape.dims)
        writer.program("activate", [writer.dispatches([call])])
        population = {
            "genomes": count, "samples": self.samples, "inputs": self.inputs, "outputs": self.outputs,
            "slots": shape.slots, "most_edges": self.connections, "program": "activate",
            "buffers": {name: name for name in buffers},
            "evolution": {"nodes": self.nodes, "problem": self.problem, "config": self.config.to_dict()},
        }  # fmt: skip
        return {"inputs": {}, "outputs": {}, "states": [], "population": population, "ui": dict(self.ui)}


PROBLEMS = ("xor", "cartpole")
"""Problems that pages know: ``volumetric/web/site/neat/problems.js``."""
