"""Activation of a population of genomes: one workgroup for each genome and a number of samples. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from volumetric.devices.gpu.kernels.dispatch import Caps, Dispatch, WorkgroupGrid, ceil_div

KERNEL = "genomes"
_LANES = 64
_FOLD = 65535
"""Genomes along one axis of the grid, as in the shader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenomeShape:
    """Sizes of one activation.

    Attributes
    ----------
    genomes, samples : numbers of these
    inputs, outputs : numbers per genome
    slots : values per sample: inputs, then nodes
    shared : whether all genomes read the same inputs
    edges : connections of the largest genome
    """

    genomes: int
    samples: int
    inputs: int
    outputs: int
    slots: int
    shared: bool
    edges: int = 0

    @property
    def dims(self) -> tuple[int, ...]:
        """Contents of the uniform ``dims``."""
        return self.samples, self.inputs, self.outputs, self.slots, int(self.shared), self.genomes, self.edges

    @property
    def value_bytes(self) -> int:
        """Bytes of the scratch with all values: the largest buffer, which limits the genomes of a launch."""
        return 4 * self.genomes * self.slots * self.samples


def genomes(shape: GenomeShape, caps: Caps) -> Dispatch:
    """Return the launch that activates all genomes for all samples."""
    lanes = min(_LANES, caps.max_workgroup)
    across = min(shape.genomes, _FOLD)
    folds = ceil_div(shape.genomes, _FOLD)
    # The grid keeps three axes, so that samples, the middle one, are never folded away.
    grid = WorkgroupGrid(x=across, y=ceil_div(shape.samples, lanes), z=folds)
    return Dispatch(kernel=KERNEL, grid=grid, constants={"WG": lanes})
