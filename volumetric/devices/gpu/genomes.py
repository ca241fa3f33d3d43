"""Populations of genomes on a GPU: connections uploaded once, activated for any number of inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import DeviceError, ShapeError
from volumetric.devices.gpu.gpu_context import BoundDispatch, GpuContext
from volumetric.devices.gpu.kernels.genomes import GenomeShape, genomes

FIRED = np.dtype([("slot", "u4"), ("kinds", "u4"), ("first", "u4"), ("last", "u4"), ("bias", "f4")])
"""One node to activate; see ``devices/gpu/shaders/genomes.wgsl``."""
EDGE = np.dtype([("source", "u4"), ("weight", "f4")])
"""One enabled connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenomeLinks:
    """Genomes as lists of nodes to activate and their connections.

    Attributes
    ----------
    heads : uint32 [genomes + 1]; start of each genome's nodes
    fired : `FIRED` records in activation order
    edges : `EDGE` records; those into a node are contiguous
    inputs, outputs, slots : as in `GenomeShape`
    most_edges : edges of the largest genome
    """

    heads: NDArray[np.uint32]
    fired: NDArray[Any]
    edges: NDArray[Any]
    inputs: int
    outputs: int
    slots: int
    most_edges: int

    def __len__(self) -> int:
        return len(self.heads) - 1

    def part(self, first: int, last: int) -> GenomeLinks:
        """Return only the genomes ``first : last``."""
        nodes = self.fired[self.heads[first] : self.heads[last]].copy()
        start = int(nodes["first"].min(initial=len(self.edges))) if len(nodes) else 0
        end = int(nodes["last"].max(initial=start))
        nodes["first"] -= np.uint32(start)
        nodes["last"] -= np.uint32(start)
        heads = self.heads[first : last + 1] - self.heads[first]
        return dataclasses.replace(self, heads=heads, fired=nodes, edges=self.edges[start:end])


class GpuGenomes:
    """Activates genomes on one GPU. Values are float32.

    Parameters
    ----------
    context : the open GPU
    links : the genomes
    """

    def __init__(self, context: GpuContext, links: GenomeLinks) -> None:
        self._context = context
        self._links = links
        self._parts: list[tuple[int, GenomeLinks, dict[str, Any]]] = []
        self._samples = 0

    def activate(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return outputs [genomes, samples, outputs] for inputs [samples, inputs] or [genomes, samples, inputs].

        Raises
        ------
        DeviceError : one genome's values exceed a binding, or memory is short
        ShapeError : inputs have another width than the genomes, or are neither one set nor one set per genome
        """
        x, width, count = inputs[None] if inputs.ndim == 2 else inputs, self._links.inputs, len(self._links)
        if x.ndim != 3 or x.shape[2] != width or len(x) not in (1, count):
            raise ShapeError(
                f"inputs have shape {inputs.shape}, expected [samples, {width}] or [{count}, samples, {width}]"
            )
        shared = len(x) == 1
        self._divide_genomes(x.shape[1])
        outputs = []
        for first, links, buffers in self._parts:
            rows = x if shared else x[first : first + len(links)]
            columns = np.ascontiguousarray(rows.swapaxes(1, 2), np.float32)
            shape, call = self._bind(links, buffers, columns, shared=shared)
            self._context.run([call])
            outputs.append(self._read(buffers, shape))
        return np.concatenate(outputs)

    def close(self) -> None:
        """Free the buffers."""
        for _, _, buffers in self._parts:
            for buffer in buffers.values():
                self._context.free(buffer)
        self._parts.clear()
        self._samples = 0

    def _divide_genomes(self, samples: int) -> None:
        """Divide the genomes so that the values of a part fit one binding, and upload them."""
        if samples == self._samples:
            return
        self.close()
        slots, edges = self._links.slots, self._links.most_edges
        each = max(4 * slots * max(samples, 1), FIRED.itemsize * slots, EDGE.itemsize * edges)
        most = max(1, self._context.caps.max_binding // each)
        for first in range(0, len(self._links), most):
            last = min(first + most, len(self._links))
            links = self._links.part(first, last)
            self._parts.append((first, links, self._upload(links)))
        self._samples = samples

    def _upload(self, links: GenomeLinks) -> dict[str, Any]:
        arrays: Mapping[str, NDArray[Any]] = {"heads": links.heads, "fired": links.fired, "edges": links.edges}
        return {
            name: self._context.upload(_nonempty_words(values), f"{name} of genomes") for name, values in arrays.items()
        }

    def record(self, samples: int, *, shared: bool = True) -> tuple[dict[str, Any], BoundDispatch]:
        """Return the launch that activates all genomes for so many samples, and its buffers by name; nothing runs.

        ``x`` is ``[inputs, samples]``, or for each genome ``[genomes, inputs, samples]`` unless `shared`; ``y`` is
        ``[genomes, outputs, samples]``.

        Raises
        ------
        DeviceError : the genomes exceed one launch
        """
        self._divide_genomes(samples)
        if len(self._parts) != 1:
            raise DeviceError(
                f"{len(self._links)} genomes of {samples} samples exceed one launch",
                hint="use fewer genomes or samples",
            )
        [(_, links, buffers)] = self._parts
        x = np.zeros((1 if shared else len(links), links.inputs, samples), np.float32)
        return buffers, self._bind(links, buffers, x, shared=shared)[1]

    def _bind(
        self, links: GenomeLinks, buffers: dict[str, Any], x: NDArray[np.float32], *, shared: bool
    ) -> tuple[GenomeShape, BoundDispatch]:
        """Write the inputs, and bind the launch for them."""
        context = self._context
        shape = GenomeShape(
            genomes=len(links), samples=x.shape[2], inputs=links.inputs, outputs=links.outputs, slots=links.slots,
            shared=shared, edges=links.most_edges,
        )  # fmt: skip
        size = 4 * shape.genomes * shape.outputs * shape.samples
        for name, nbytes in (("x", x.nbytes), ("values", shape.value_bytes), ("y", size), ("dims", 32)):
            if name not in buffers or buffers[name].size < nbytes:
                if name in buffers:
                    context.free(buffers[name])
                buffers[name] = context.buffer(nbytes, f"{name} of genomes", uniform=name == "dims")
        context.write(buffers["x"], x)
        context.write(buffers["dims"], np.array([*shape.dims, 0], np.uint32))
        return shape, context.bind(genomes(shape, context.caps), buffers, shape.dims)

    def _read(self, buffers: Mapping[str, Any], shape: GenomeShape) -> NDArray[np.float32]:
        size = 4 * shape.genomes * shape.outputs * shape.samples
        flat = self._context.read(buffers["y"], size).view(np.float32)
        return flat.reshape(shape.genomes, shape.outputs, shape.samples).swapaxes(1, 2).copy()


def _nonempty_words(values: NDArray[Any]) -> NDArray[np.uint32]:
    """The words of an array; an empty one gets one unused word."""
    words = np.ascontiguousarray(values).view(np.uint8).reshape(-1).view(np.uint32)
    return words if words.size else np.zeros(1, np.uint32)
