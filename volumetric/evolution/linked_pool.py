"""A pool whose genomes are linked once, for repeated activation in environments."""

from __future__ import annotations

import os
import struct
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.evolution.pool import Pool

if TYPE_CHECKING:
    from volumetric.devices.gpu.device import GpuDevice
    from volumetric.devices.gpu.genomes import GenomeLinks, GpuGenomes

F64Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
_LEAST = 2048
"""Minimum genomes times samples of a thread: starting work costs some 20 µs."""
_FIRST = np.zeros(1, np.int64)
"""Rows of a pool with one genome."""
_BLOCK = 128
"""Samples computed together, so that they stay in the first-level cache."""


@cache
def _thread_pool(threads: int) -> ThreadPoolExecutor:
    """The thread pool besides the calling thread, shared by all pools of genomes."""
    return ThreadPoolExecutor(threads - 1)


class LinkedPool:
    """Genomes linked for repeated activation.

    A pool of n genomes with at most c connections and m nodes takes ``n (12 c + 8 m)`` bytes for its links.

    Parameters
    ----------
    pool : the genomes; they must not change afterwards
    threads : number of threads; 0: all CPU cores. The result does not depend on it
    """

    def __init__(self, pool: Pool, *, threads: int = 1) -> None:
        if threads < 0:
            raise SpecError(f"threads must not be negative, got {threads}")
        from volumetric.evolution.kernels.neat import linked_genomes

        self.pool = pool
        self.threads: int = threads or os.cpu_count() or 1
        self._kernels = linked_genomes
        count, nodes = pool.nodes.shape
        connections = pool.connections.shape[1]
        self._starts = np.empty((count, nodes + 1), np.int32)
        self._sources = np.empty((count, connections), np.int32)
        self._weights = np.empty((count, connections))
        self._order = np.empty((count, nodes + 1), np.int32)
        self._all = np.arange(count)
        self._uploaded: tuple[GpuDevice, GpuGenomes] | None = None
        inputs, outputs = pool.interface.inputs, pool.interface.outputs
        self._width, self._end, self._slots = inputs, inputs + outputs, inputs + nodes
        self._recurrent = pool.interface.recurrent
        self._pack = struct.Struct(f"{inputs}d").pack_into
        self._links = pool.nodes, self._starts, self._sources, self._weights, self._order
        self._divide(self._link, count, _LEAST)

    def new_state(self, samples: int = 1) -> F64Array:
        """Return the initial state of recurrent genomes."""
        return np.zeros((len(self.pool), self.pool.nodes.shape[1], samples))

    def activate(
        self, inputs: Array, state: F64Array | None = None, *, rows: IntArray | None = None, out: F64Array | None = None
    ) -> F64Array:
        """Return the outputs of all genomes, float64 [genomes, samples, outputs].

        Parameters
        ----------
        inputs : [samples, inputs], shared by all genomes, or [genomes, samples, inputs]
        state : for recurrent genomes, from `new_state`; read and overwritten. None starts from zero
        rows : genomes to activate; the outputs of the others are unchanged in `out`, or zero
        out : array for the outputs

        Raises
        ------
        ShapeError : inputs, state or `out` do not fit the pool
        """
        pool, interface = self.pool, self.pool.interface
        x = self.checked(inputs)
        shape = len(pool), x.shape[1], interface.outputs
        out = np.zeros(shape) if out is None else out
        if out.shape != shape:
            raise ShapeError(f"out has shape {out.shape}, expected {shape}")
        chosen = self._all if rows is None else np.asarray(rows, np.int64)
        if not interface.recurrent:
            state = None
        else:
            state = self.new_state(x.shape[1]) if state is None else state
            if state.shape != (len(pool), pool.nodes.shape[1], x.shape[1]):
                raise ShapeError(f"state has shape {state.shape}, expected that of new_state({x.shape[1]})")
        least = max(1, _LEAST // x.shape[1])
        if self.threads == 1 or len(chosen) < 2 * least:
            self._run(x, state, chosen, out, 0, len(chosen))
        else:
            self._divide(lambda first, last: self._run(x, state, chosen, out, first, last), len(chosen), least)
        return out

    def checked(self, inputs: Array) -> F64Array:
        """Return inputs as [1 or genomes, samples, inputs]; raise `ShapeError` if they do not fit the genomes."""
        x, width = np.ascontiguousarray(inputs, np.float64), self._width
        x = x[None] if x.ndim == 2 else x
        if x.ndim != 3 or x.shape[2] != width or len(x) not in (1, len(self.pool)):
            raise ShapeError(
                f"inputs have shape {np.shape(inputs)}, expected [samples, {width}] or "
                f"[{len(self.pool)}, samples, {width}]",
                hint=f"the genomes have {width} inputs: pass rows of {width} numbers",
            )
        return x

    def activate_one(self, row: int, inputs: Array | Sequence[Any], state: F64Array | None = None) -> F64Array:
        """Return the outputs of one genome: [outputs] for [inputs], or [samples, outputs] for [samples, inputs].

        Thread-safe.

        Parameters
        ----------
        state : for a recurrent genome, values of its nodes [max nodes, samples], read and overwritten; None is zero

        Raises
        ------
        ShapeError : the last axis does not match the genome's inputs, or the state has another number of samples
        """
        width, values = self._width, np.empty(self._slots)
        if inputs.__class__ in (tuple, list) and len(inputs) == width and not isinstance(inputs[0], np.ndarray):
            try:  # numbers are written in place, without a temporary array
                self._pack(values.data, 0, *inputs)
            except struct.error:
                return self._activate_samples(row, np.asarray(inputs, np.float64), state)
        else:
            x = np.asarray(inputs, np.float64)
            if x.shape != (width,):
                return self._activate_samples(row, x, state)
            values[:width] = x
        nodes, starts, sources, weights, order = self._links
        if not self._recurrent:
            self._kernels.fire(nodes, row, starts, sources, weights, order, width, values)
            return values[width : self._end]
        values[width:] = 0.0 if state is None else self._of_samples(state, 1)[:, 0]
        steps, after = self.pool.interface.steps, np.empty(self._slots - width)
        self._kernels.update(nodes, row, starts, sources, weights, order, width, steps, values, after)
        if state is not None:
            state[:, 0] = values[width:]
        return values[width : self._end]

    def _activate_samples(self, row: int, x: F64Array, state: F64Array | None) -> F64Array:
        if x.ndim != 2 or x.shape[1] != self._width:
            raise ShapeError(
                f"inputs have shape {x.shape}, expected [{self._width}], or [samples, {self._width}] for several",
                hint=f"the genome has {self._width} inputs: pass {self._width} numbers, or set its number of inputs",
            )
        samples, rows, nodes = len(x), slice(row, row + 1), self._slots - self._width
        x, out = np.ascontiguousarray(x)[None], np.empty((1, samples, self._end - self._width))
        genes, starts, sources, weights, order = (part[rows] for part in self._links)
        block = np.empty((self._slots, min(samples, _BLOCK)))
        if self._recurrent:
            state = np.zeros((nodes, samples)) if state is None else self._of_samples(state, samples)
            steps, after = self.pool.interface.steps, np.empty_like(block)
            self._kernels.step_recurrent(
                genes, starts, sources, weights, order, x, True, steps, _FIRST, 0, 1, block, after, state[None], out
            )
        else:
            self._kernels.step_feed_forward(genes, starts, sources, weights, order, x, True, _FIRST, 0, 1, block, out)
        return out[0]

    def _of_samples(self, state: F64Array, samples: int) -> F64Array:
        expected = self._slots - self._width, samples
        if state.shape != expected:
            raise ShapeError(
                f"state has shape {state.shape}, expected {expected}: the number of samples must not change"
            )
        return state

    def play_cartpole(self, bodies: F64Array, limit: int) -> F64Array:
        """Return the number of steps for which each genome balances the pole of ``CartPole-v1``, float64 [genomes].

        Parameters
        ----------
        bodies : float64 [genomes, 4]; position, speed, angle and angular speed at the beginning
        limit : maximum steps of an episode

        Raises
        ------
        ShapeError : genomes do not have 4 inputs and 1 or 2 outputs
        """
        from volumetric.evolution.kernels.neat import cartpole

        interface = self.pool.interface
        if interface.inputs != 4 or interface.outputs not in (1, 2) or bodies.shape != (len(self.pool), 4):
            raise ShapeError(
                f"the cart has 4 inputs and takes 1 or 2 outputs; {len(self.pool)} genomes have {interface.inputs} and "
                f"{interface.outputs}, and bodies have shape {bodies.shape}",
                hint="let evolve() set the widths, or use problem.configure(config)",
            )
        pool, rewards, bodies = self.pool, np.zeros(len(self.pool)), bodies.copy()
        links = self._links
        kind = interface.outputs, interface.recurrent, interface.steps
        self._divide(
            lambda first, last: cartpole.play(*links, *kind, bodies, limit, first, last, rewards), len(pool), 64
        )
        return rewards

    def on_gpu(self, device: GpuDevice) -> GpuGenomes:
        """Return these genomes on a GPU, for activation in float32; uploaded once, freed with these links.

        Raises
        ------
        UnsupportedError : the genomes are recurrent
        """
        if self._uploaded is None or self._uploaded[0] is not device:
            genomes = self._upload(device)
            weakref.finalize(self, genomes.close)
            self._uploaded = device, genomes
        return self._uploaded[1]

    def _upload(self, device: GpuDevice) -> GpuGenomes:
        """Return the linked genomes in GPU memory; raise `UnsupportedError` for recurrent genomes."""
        from volumetric.devices.gpu.genomes import GpuGenomes

        return GpuGenomes(device.context, self.gpu_links())

    def gpu_links(self) -> GenomeLinks:
        """Return these genomes in the form of the GPU.

        Raises
        ------
        UnsupportedError : the genomes are recurrent
        """
        from volumetric.devices.gpu.genomes import EDGE, FIRED, GenomeLinks

        pool, interface = self.pool, self.pool.interface
        if interface.recurrent:
            raise UnsupportedError("recurrent genomes have no GPU form", hint="activate them on the CPU")
        counts = self._order[:, 0]
        heads = np.concatenate(([0], np.cumsum(counts))).astype(np.uint32)
        owner = np.repeat(np.arange(len(pool)), counts)
        node = self._order[owner, 1 + np.arange(len(owner)) - heads[:-1][owner].astype(np.int64)]
        last = self._starts[np.arange(len(pool)), pool.sizes[:, 0]]
        used = np.arange(self._sources.shape[1]) < last[:, None]
        begin = np.cumsum(last) - last
        genes, fired = pool.nodes[owner, node], np.empty(len(owner), FIRED)
        fired["slot"] = interface.inputs + node
        fired["kinds"] = genes["activation"].astype(np.uint32) + 256 * genes["aggregation"].astype(np.uint32)
        fired["first"] = begin[owner] + self._starts[owner, node]
        fired["last"] = begin[owner] + self._starts[owner, node + 1]
        fired["bias"] = genes["bias"]
        edges = np.empty(int(last.sum()), EDGE)
        edges["source"], edges["weight"] = self._sources[used], self._weights[used]
        return GenomeLinks(
            heads=heads, fired=fired, edges=edges, inputs=interface.inputs, outputs=interface.outputs,
            slots=interface.inputs + pool.nodes.shape[1], most_edges=int(last.max(initial=0)),
        )  # fmt: skip

    def _run(
        self,
        x: F64Array,
        state: F64Array | None,
        rows: IntArray,
        out: F64Array,
        first: int,
        last: int,
    ) -> None:
        """Activate the genomes ``rows[first : last]``."""
        shared, links = x.shape[0] == 1 and len(self.pool) > 1, self._links
        block = np.empty((self._slots, min(x.shape[1], _BLOCK)))
        if state is None:
            self._kernels.step_feed_forward(*links, x, shared, rows, first, last, block, out)
            return
        steps, after = self.pool.interface.steps, np.empty_like(block)
        self._kernels.step_recurrent(*links, x, shared, steps, rows, first, last, block, after, state, out)

    def _link(self, first: int, last: int) -> None:
        pool = self.pool
        scratch = np.empty((3, pool.nodes.shape[1] + 1), np.int32)
        self._kernels.link(
            pool.nodes, pool.connections, pool.sizes, pool.interface.inputs, pool.interface.outputs,
            pool.interface.recurrent, first, last, self._starts, self._sources, self._weights, self._order, scratch,
        )  # fmt: skip

    def _divide(self, run: Callable[[int, int], None], count: int, least: int) -> None:
        """Call ``run(first, last)`` for parts of `count`, at least `least` each; kernels release the GIL."""
        parts = max(1, min(self.threads, count // least))
        cuts = [count * part // parts for part in range(parts + 1)]
        others = [_thread_pool(self.threads).submit(run, cuts[part], cuts[part + 1]) for part in range(1, parts)]
        run(cuts[0], cuts[1])
        for other in others:
            other.result()
