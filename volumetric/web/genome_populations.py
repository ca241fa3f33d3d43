"""Populations of genomes: one launch activates all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from volumetric.devices.gpu.genomes import GpuGenomes
from volumetric.devices.gpu.recording_context import RecordingContext
from volumetric.evolution.genome import Genome
from volumetric.evolution.pool import Pool
from volumetric.web.variant_writer import VariantWriter


@dataclass(frozen=True)
class GenomePopulation:
    """Feed-forward genomes of one interface: a `RecordedKind`.

    Attributes
    ----------
    samples : samples of a launch
    """

    genomes: Sequence[Genome]
    samples: int
    title: str
    origin: Mapping[str, str | None]
    files: Mapping[str, bytes] = field(default_factory=dict)
    kind: str = "population"

    def record(self, writer: VariantWriter) -> dict[str, Any]:
        """Record the launch; see `RecordedKind.record`."""
        links = Pool.of(self.genomes).links.gpu_links()
        context = RecordingContext(writer.variant.caps, features=writer.variant.features)
        buffers, call = GpuGenomes(context, links).record(self.samples)
        names = {name: writer.name(buffer, name) for name, buffer in buffers.items()}
        program = writer.program("activate", [writer.dispatches([call])])
        column = {"dtype": "float32", "stride": 4 * self.samples}
        return {
            "inputs": {"input": {"buffer": names["x"], "shape": [self.samples], **column}},
            "outputs": {"output": {"buffer": names["y"], "shape": [self.samples], **column}},
            "population": {
                "genomes": len(links),
                "samples": self.samples,
                "inputs": links.inputs,
                "outputs": links.outputs,
                "slots": links.slots,
                "most_edges": links.most_edges,
                "program": program,
                "buffers": names,
            },
        }
