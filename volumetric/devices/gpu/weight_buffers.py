"""Weights on the GPU: packed tensors become buffers unchanged, split by rows if a binding would be too large."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import DeviceError, ShapeError, UnsupportedError
from volumetric.base.progress import WorkMeter
from volumetric.devices.gpu.gpu_context import GpuContext
from volumetric.devices.gpu.kernels.dispatch import ceil_div
from volumetric.devices.gpu.kernels.half_range import fits_half, largest_magnitude
from volumetric.devices.gpu.kernels.weight_formats import FORMATS, WeightFormat
from volumetric.devices.gpu.owned_buffers import OwnedBuffers
from volumetric.dtypes import Packed, decode
from volumetric.network import Params
from volumetric.network.weight_store import WeightStore

_BLOCK_BYTES = 32 << 20
_SHARD_UNIT = 4
"""Shards start at multiples of this many outputs: gemm writes whole vectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixShard:
    """Outputs `first` … `first + units` of a matrix, in one format.

    For matrices abreast it has these rows of the first one, then of the next: gate and up, or all experts.
    `fits_half`: whether its weights may be rounded to float16, see `half_range`.
    """

    first: int
    units: int
    format: WeightFormat
    weights: str
    scales: str | None
    fits_half: bool

    @property
    def buffers(self) -> dict[str, str]:
        """Names of the buffers by the shaders' names for them."""
        return {"weights": self.weights} | ({} if self.scales is None else {"scales": self.scales})


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentMatrix:
    """A resident weight matrix of `units` outputs with rows of `k`."""

    k: int
    units: int
    shards: tuple[MatrixShard, ...]

    @property
    def format(self) -> WeightFormat:
        """Format of the first shard: that of all, unless matrices in several formats were stacked."""
        return self.shards[0].format

    @property
    def fits_half(self) -> bool:
        """Whether all weights may be rounded to float16."""
        return all(shard.fits_half for shard in self.shards)


class WeightBuffers:
    """Uploads each parameter once; tied weights share one copy.

    Parameters
    ----------
    context : the open GPU
    params : weights of the network
    sources : the original weights, before their groups were narrowed
    shared_with : residency to share: matrices of the same sources are not uploaded again

    Attributes
    ----------
    buffers : name → buffer
    decoded : keys of parameters that have no native layout and were decoded to float32
    meter : progress of the upload, in matrices
    """

    def __init__(
        self,
        context: GpuContext,
        params: Params,
        *,
        sources: Params | None = None,
        shared_with: WeightBuffers | None = None,
    ) -> None:
        self._sources = params if sources is None else sources
        self._like = shared_with
        self.buffers: OwnedBuffers = OwnedBuffers(context)
        self.decoded: set[str] = set()
        matrices = [store for store in params.values() if len(store.shape) > 1]
        self.meter: WorkMeter = WorkMeter(
            "uploading weights", len(matrices), nbytes=sum(store.nbytes for store in matrices)
        )
        self._context = context
        self._params = params
        self._matrices: dict[tuple[tuple[str, ...], bool], ResidentMatrix] = {}
        self._vectors: dict[object, str] = {}
        self._dense: dict[str, str] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of weights on the GPU."""
        return self.buffers.nbytes

    def matrix(self, keys: tuple[str, ...], *, abreast: bool = False) -> ResidentMatrix:
        """Stack the matrices at `keys`: one below the other, or with the same rows of all in each shard.

        Raises
        ------
        DeviceError : not even a few rows fit one binding, or memory is short
        """
        matrix = self._matrices.get((keys, abreast))
        if matrix is None:
            matrix = self._shared_matrix(keys, abreast=abreast) or self._upload_matrix(keys, abreast=abreast)
            self._matrices[keys, abreast] = matrix
        return matrix

    def vector(self, label: str, *parts: tuple[str | None, int]) -> str | None:
        """Buffer with the float32 vectors at these keys, each padded with zeros to its length; None if all are None."""
        if all(key is None for key, _ in parts):
            return None
        if parts not in self._vectors:
            padded = []
            for key, length in parts:
                values = np.zeros(length, np.float32)
                if key is not None:
                    stored = self._params[key].values().reshape(-1)
                    values[: stored.size] = stored
                padded.append(values)
            keys = " + ".join(key for key, _ in parts if key is not None)
            self._vectors[parts] = self._upload(np.concatenate(padded), f"{label} {keys}")
        return self._vectors[parts]

    def values(self, key: str) -> NDArray[np.float32]:
        """Return the numbers of a small parameter."""
        return self._params[key].values()

    def derived_buffer(self, name: tuple[object, ...], build: Callable[[], NDArray[np.float32]]) -> str:
        """Buffer with a small array computed from parameters, built once per name."""
        if name not in self._vectors:
            self._vectors[name] = self._upload(build(), " ".join(map(str, name[:2])))
        return self._vectors[name]

    def dense_buffer(self, key: str) -> str:
        """Buffer with all elements of a parameter as float32, row-major, as graphs of fixed shape read them."""
        name = self._dense.get(key)
        if name is None:
            store = self._params[key]
            if str(store.scheme) != "float32":
                self.decoded.add(key)
            values = np.ascontiguousarray(store.values(), np.float32)
            name = self._dense[key] = self._upload(values if values.size else np.zeros(1, np.float32), f"dense {key}")
            store.release()
        return name

    def update(self, params: Params) -> None:
        """Overwrite resident float32 matrices, see `Updatable.update`."""
        for key, store in params.items():
            if key in self._dense and store.shape == self._params[key].shape:
                self._context.write(self.buffers[self._dense[key]], np.ascontiguousarray(store.values(), np.float32))
            homes = [(keys, m) for (keys, abreast), m in self._matrices.items() if key in keys and not abreast]
            if not homes and key in self._dense:
                continue
            if not homes:
                raise ShapeError(f"no resident weight {key}")
            payload = store.packed().payload
            for keys, matrix in homes:
                shapes = [self._params[other].shape for other in keys]
                at, row_bytes = keys.index(key), matrix.format.row_bytes(matrix.k)
                if shapes[at] != store.shape or len(matrix.shards) != 1 or matrix.format.group:
                    raise ShapeError(f"no resident weight {key} of shape {store.shape} in float32")
                padded = np.pad(payload, ((0, 0), (0, row_bytes // 4 - payload.shape[1])))
                if self.buffers.is_shared(matrix.shards[0].weights):
                    hint = "open the models apart"
                    raise UnsupportedError(f"{key} is shared by several models and cannot be replaced", hint=hint)
                first = sum(prod(shape[:-1]) for shape in shapes[:at])
                self._context.write(self.buffers[matrix.shards[0].weights], padded, first * row_bytes)

    def close(self) -> None:
        """Free every buffer."""
        self.buffers.close()
        self._matrices.clear()
        self._vectors.clear()
        self._dense.clear()

    def _shared_matrix(self, keys: tuple[str, ...], *, abreast: bool) -> ResidentMatrix | None:
        """Return a matrix shared with another residency; None if it has none of these sources."""
        like = self._like
        if like is None or any(self._sources[key] is not like._sources.get(key) for key in keys):
            return None
        matrix = like._matrices.get((keys, abreast))
        if matrix is None:
            return self._half_of_pair(like, keys[0]) if len(keys) == 1 else None
        return replace(matrix, shards=tuple(self._borrow_shard(like, shard) for shard in matrix.shards))

    def _borrow_shard(self, shared_with: WeightBuffers, shard: MatrixShard) -> MatrixShard:
        """Return a shard of another residency as one of this one."""
        weights, scales = (
            None if name is None else self.buffers.borrow(shared_with.buffers, name) for name in _names(shard)
        )
        return replace(shard, weights=weights or "", scales=scales)

    def _half_of_pair(self, shared_with: WeightBuffers, key: str) -> ResidentMatrix | None:
        """Return the gate or the up of a pair stored abreast, if a binding may begin at it."""
        for (keys, abreast), pair in shared_with._matrices.items():
            if not abreast or len(keys) != 2 or key not in keys or len(pair.shards) != 1:
                continue
            shard = pair.shards[0]
            sizes = pair.units * shard.format.row_bytes(pair.k), pair.units * shard.format.scale_bytes(pair.k)
            at, step = keys.index(key), self._context.alignment
            if any(size % 4 or at * size % step for size in sizes):
                return None
            weights, scales = (
                None if name is None else self.buffers.borrow(shared_with.buffers, name, offset=at * size, size=size)
                for name, size in zip(_names(shard), sizes, strict=True)
            )
            return replace(pair, shards=(replace(shard, weights=weights or "", scales=scales),))
        return None

    def _upload(self, data: NDArray[Any], label: str) -> str:
        name = self.buffers.make(label, data.nbytes)
        self._context.write(self.buffers[name], data)
        return name

    def _upload_matrix(self, keys: tuple[str, ...], *, abreast: bool) -> ResidentMatrix:
        stores = [self._params[key] for key in keys]
        packed = [store.packed() for store in stores]
        k = packed[0].k
        shards: list[MatrixShard] = []
        for run in _runs(stores, abreast=abreast):
            sources, first = [packed[i] for i in run], sum(p.rows for p in packed[: run[0]])
            layout = FORMATS[_common_format([stores[i] for i in run])]
            self.decoded.update(keys[i] for i in run if FORMATS.get(str(stores[i].scheme)) is not layout)
            units = sources[0].rows if abreast else sum(p.rows for p in sources)
            unit_bytes = layout.row_bytes(k) * (len(run) if abreast else 1)
            for start, count in _split_units(units, unit_bytes, self._context.caps.max_binding, keys[run[0]]):
                stop = start + count
                rows = [(p, start, stop) for p in sources] if abreast else _ranges(sources, start, stop)
                shards.append(self._upload_shard(rows, first + start, count, layout, " + ".join(keys)))
        for store in stores:
            store.release()
            self.meter.step(store.nbytes)
        units = packed[0].rows if abreast else sum(p.rows for p in packed)
        return ResidentMatrix(k=k, units=units, shards=tuple(shards))

    def _upload_shard(
        self, sources: list[tuple[Packed, int, int]], first: int, units: int, layout: WeightFormat, label: str
    ) -> MatrixShard:
        """Upload rows of the sources, one below the other."""
        k = sources[0][0].k
        rows = sum(stop - start for _, start, stop in sources)
        weights = self.buffers.make(label, rows * layout.row_bytes(k))
        scales, largest = [], []
        at = 0
        for source, start, stop in sources:
            for block in _blocks(source, start, stop, layout.row_bytes(k)):
                converted = block if _is_native(block, layout) else Packed.from_array(decode(block, np.float32))
                largest.append(largest_magnitude(converted))
                payload, beside = layout.lay_out(converted)
                self._context.write(self.buffers[weights], payload, at)
                at += payload.nbytes
                if beside is not None:
                    scales.append(beside)
        scale_buffer = None
        if scales:
            flat = np.concatenate(scales)
            scale_buffer = self._upload(np.pad(flat, (0, flat.size % 2)), f"{label} scales")
        return MatrixShard(
            first=first,
            units=units,
            format=layout,
            weights=weights,
            scales=scale_buffer,
            fits_half=layout is FORMATS["float16"] or fits_half(float(np.max(largest, initial=0))),
        )


def _names(shard: MatrixShard) -> tuple[str, str | None]:
    return shard.weights, shard.scales


def _runs(stores: list[WeightStore], *, abreast: bool) -> list[list[int]]:
    """Ranges of neighbouring matrices that become resident in one format.

    Stacked matrices of several native formats, such as queries and values of most GGUF files, keep them. Exceptions:
    matrices abreast, such as gate and up, whose rows belong together, and matrices that begin where no shard may.
    """
    formats = [FORMATS.get(str(store.scheme)) for store in stores]
    starts = np.cumsum([store.shape[0] for store in stores[:-1]])
    if abreast or None in formats or np.any(starts % _SHARD_UNIT):
        return [list(range(len(stores)))]
    runs = [[0]]
    for i in range(1, len(stores)):
        if formats[i] is formats[i - 1]:
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _common_format(stores: list[WeightStore]) -> str:
    """Scheme of matrices that share a product: their own if native and equal, else float32."""
    names = {str(store.scheme) for store in stores}
    return names.pop() if len(names) == 1 and names <= FORMATS.keys() else "float32"


def _is_native(block: Packed, layout: WeightFormat) -> bool:
    return FORMATS.get(str(block.scheme)) is layout


def _ranges(packed: list[Packed], first: int, last: int) -> list[tuple[Packed, int, int]]:
    """Rows `first` … `last` of stacked matrices, as ranges of each."""
    ranges = []
    at = 0
    for p in packed:
        start, stop = max(first - at, 0), min(last - at, p.rows)
        if start < stop:
            ranges.append((p, start, stop))
        at += p.rows
    return ranges


def _blocks(source: Packed, start: int, stop: int, row_bytes: int) -> Iterator[Packed]:
    """Slices of bounded size, so that padding or decoding a large tensor never doubles it in host memory."""
    step = max(1, _BLOCK_BYTES // row_bytes)
    for row in range(start, stop, step):
        yield source.slice_rows(row, min(row + step, stop))


def _split_units(units: int, unit_bytes: int, limit: int, label: str) -> list[tuple[int, int]]:
    """Split `units` outputs into equal (first, count) parts of at most `limit` bytes each."""
    most = limit // unit_bytes // _SHARD_UNIT * _SHARD_UNIT
    if units * unit_bytes <= limit:
        return [(0, units)]
    if most == 0:
        raise DeviceError(
            f"{_SHARD_UNIT} rows of {label} need {_SHARD_UNIT * unit_bytes} bytes; this GPU binds at most {limit}",
            hint="use a smaller dtype, or device='cpu'",
        )
    count = ceil_div(ceil_div(units, ceil_div(units, most)), _SHARD_UNIT) * _SHARD_UNIT
    return [(first, min(count, units - first)) for first in range(0, units, count)]
