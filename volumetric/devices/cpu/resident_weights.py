"""Resident weights: every matrix of a plan is re-tiled into panels once, tensor by tensor, in the order of use.

A product reads all its parts as one matrix: q, k and v follow each other, gate and up alternate panel by panel, so one
thread finishes ``act(gate) · up``. A tensor shared by an embedding and a product is stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import ShapeError, UnsupportedError
from volumetric.base.progress import WorkMeter
from volumetric.devices.cpu.arena import Arena, address_of, aligned_zeros
from volumetric.devices.cpu.block_panels import retile_coded_rows
from volumetric.devices.cpu.kernels.panels import FORMATS, ROWS, PanelFormat
from volumetric.devices.cpu.kernels.retile import retile_blocks, retile_halves, retile_words
from volumetric.dtypes import Packed, decode
from volumetric.graph.expert_fusion import expert_products
from volumetric.graph.ops import Graph, Node
from volumetric.network import Params

_PRODUCTS = frozenset({"linear", "recurrence"})
"""Operations that multiply by packed matrices, in addition to mixtures."""
_IN_WORDS = ("int8", "int4", "uint4")
"""Panels built directly from the words of a payload, without unpacking."""
_FLIP = {128: 0x80808080, 8: 0x88888888, 0: 0}
_PIECE = 1 << 21  # numbers of a tensor read at a time; limits the memory used besides file and panels
_SHARE_BYTES = 1 << 20  # tensors below this are re-tiled by one thread


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelMatrix:
    """Panels of one or more tensors with the same k.

    Attributes
    ----------
    base : address of the first panel
    panel_stride : bytes between panels whose columns follow each other
    panels : number of panels of columns (a gated pair counts once)
    parts : indices of the product's parts in this matrix
    apart : bytes between panels if they alternate with those of another matrix; 0: they are contiguous
    """

    form: PanelFormat
    keys: tuple[str, ...]
    parts: tuple[int, ...]
    rows: tuple[int, ...]
    k: int
    gated: bool
    base: int = 0
    apart: int = 0

    @property
    def panel_bytes(self) -> int:
        """Bytes of one panel."""
        return self.form.panel_bytes(self.k)

    @property
    def panel_stride(self) -> int:
        """Bytes from a panel to the next column panel; the two panels of a gated pair count as one."""
        return self.apart or self.panel_bytes * (2 if self.gated else 1)

    @property
    def panels(self) -> int:
        """Number of panels of columns; a gated pair counts once."""
        return _panels(self.rows[0]) if self.gated else sum(_panels(n) for n in self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes from the first panel to the end of the last one."""
        return self.panels * self.panel_stride

    def part_address(self, index: int) -> int:
        """Address of the first panel of tensor `index`."""
        before = index if self.gated else sum(_panels(n) for n in self.rows[:index])
        return self.base + before * self.panel_bytes


def products_in(graph: Graph, nodes: Sequence[Node]) -> Iterator[Node]:
    """The nodes that multiply by packed matrices; for a mixture, the products of its experts."""
    for node in nodes:
        if node.op in _PRODUCTS:
            yield node
        elif node.op == "experts":
            for pair in expert_products(graph, node):
                yield from pair


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingPanels:
    """Location of a tensor whose rows can be read back."""

    address: int
    panel_stride: int
    form: PanelFormat
    k: int


class ResidentWeights:
    """All weights of row operations in device form.

    Parameters
    ----------
    graph : with open rows
    nodes : its nodes that run on rows
    params : the weights; each tensor is read once and its source's pages are released
    threads : threads for re-tiling
    sources : the original weights, before their groups were narrowed
    like : resident weights to share: matrices of the same sources are not built again
    """

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        params: Params,
        threads: int,
        *,
        sources: Params | None = None,
        like: ResidentWeights | None = None,
    ) -> None:
        self._graph = graph
        self._params = params
        self._sources = params if sources is None else sources
        self._like = like  # owners of shared matrices
        self._shared: set[tuple[str, ...]] = set()
        self._kept: dict[tuple[object, ...], NDArray[np.generic]] = {}
        self._matrices = {matrix.keys: matrix for matrix in self._used_keys(nodes)}
        if like is not None:
            self._adopt_matrices(like)
        own = {keys: matrix for keys, matrix in self._matrices.items() if keys not in self._shared}
        self._arena = Arena(sum(-(-matrix.nbytes // 64) * 64 for matrix in own.values()))
        stores = [params[key] for matrix in own.values() for key in matrix.keys[: len(matrix.rows)]]
        meter = WorkMeter("reading weights", len(stores), nbytes=sum(store.nbytes for store in stores))
        with ThreadPoolExecutor(threads) as pool, meter:
            for keys, matrix in own.items():
                placed = replace(matrix, base=self._arena.allocate(matrix.nbytes))
                self._matrices[keys] = placed
                self._fill(placed, pool, threads, meter)

    @property
    def nbytes(self) -> int:
        """Bytes of weights, padding included, without shared ones."""
        return self._arena.used + sum(array.nbytes for array in self._kept.values())

    @property
    def has_integers(self) -> bool:
        """Whether any matrix has an integer format."""
        return any(matrix.form.is_integer for matrix in self._matrices.values())

    def matrices(self, node: Node) -> list[PanelMatrix]:
        """The matrices of a product, in order of their parts."""
        return [self._matrices[matrix.keys] for matrix in self._split(node)]

    def table(self, key: str) -> EmbeddingPanels:
        """Location of the rows of tensor `key` for an embedding."""
        for matrix in self._matrices.values():
            if key in matrix.keys:
                address = matrix.part_address(matrix.keys.index(key))
                return EmbeddingPanels(address=address, panel_stride=matrix.panel_stride, form=matrix.form, k=matrix.k)
        raise KeyError(key)

    def values(self, key: str) -> NDArray[np.float32]:
        """Return the numbers of a small parameter; its file pages may be evicted again."""
        numbers = self._params[key].values()
        self._params[key].release()
        return numbers

    def vector(self, key: str | None, *, unit_offset: bool = False) -> int:
        """Address of a float32 vector padded with zeros; 0 for no vector. `unit_offset` adds 1 (Gemma's gains)."""
        if key is None:
            return 0
        return self.small_array((key, unit_offset), lambda: self.values(key).ravel() + np.float32(unit_offset))

    def biases(self, matrix: PanelMatrix, keys: Sequence[str | None]) -> int:
        """Address of the parts' biases in panel order; 0 if none has one."""
        if all(key is None for key in keys):
            return 0

        def build() -> NDArray[np.float32]:
            padded = []
            for key, rows in zip(keys, matrix.rows, strict=True):
                part = np.zeros(_panels(rows) * ROWS, np.float32)
                if key is not None:
                    part[:rows] = self.values(key).ravel()
                padded.append(part)
            return np.concatenate(padded)

        return self.small_array(("bias", *keys), build)

    def small_array(self, name: tuple[object, ...], build: Callable[[], NDArray[np.generic]]) -> int:
        """Address of a small array that lives as long as the weights; built once per name."""
        if name not in self._kept:
            array = build()
            if array.dtype == np.float32:
                padded = aligned_zeros((-(-array.size // 64) * 64 + 64) * 4).view(np.float32)
                padded[: array.size] = array
                array = padded
            self._kept[name] = np.ascontiguousarray(array)
        return address_of(self._kept[name])

    def update(self, params: Params, threads: int) -> None:
        """Overwrite resident float32 matrices, see `Updatable.update`."""
        with ThreadPoolExecutor(threads) as pool:
            for key, store in params.items():
                homes = [matrix for matrix in self._matrices.values() if key in matrix.keys]
                if not homes or any(prod(store.shape[:-1]) != m.rows[m.keys.index(key)] for m in homes):
                    raise ShapeError(f"no resident weight {key} of shape {store.shape}")
                if any(matrix.keys in self._shared for matrix in homes):
                    hint = "open the models apart"
                    raise UnsupportedError(f"{key} is shared by several models and cannot be replaced", hint=hint)
                for matrix in homes:
                    address = matrix.part_address(matrix.keys.index(key))
                    write_panels(store.packed(), matrix.form, address, matrix.panel_stride, pool, threads)

    def _adopt_matrices(self, like: ResidentWeights) -> None:
        """Reuse matrices that other resident weights have from the same tensors."""
        halves = {key: pair for pair in like._matrices.values() if pair.gated for key in pair.keys[:2]}
        for keys, matrix in self._matrices.items():
            if any(self._sources[key] is not like._sources.get(key) for key in keys[: len(matrix.rows)]):
                continue
            other, pair = like._matrices.get(keys), halves.get(keys[0])
            if other is not None and replace(other, base=0, apart=0) == matrix:
                like._shared.add(keys)
                self._matrices[keys] = other
            elif len(keys) == 1 and pair is not None and pair.form == matrix.form:
                # A gate changed by an adapter is a separate product: its panels alternate with those of its pair.
                like._shared.add(pair.keys)
                address = pair.part_address(pair.keys.index(keys[0]))
                self._matrices[keys] = replace(matrix, base=address, apart=pair.panel_stride)
            else:
                continue
            self._shared.add(keys)

    def _used_keys(self, nodes: Sequence[Node]) -> list[PanelMatrix]:
        products = [matrix for node in products_in(self._graph, nodes) for matrix in self._split(node)]
        covered = {key for matrix in products for key in matrix.keys}
        for node in nodes:
            key = self._graph.keys_by_role(node).get("weight", "")
            if node.op == "lookup" and key not in covered:
                covered.add(key)
                products.append(self._matrix((key,), (0,), self._form(key), gated=False))
        return products

    def _form(self, key: str) -> PanelFormat:
        return FORMATS.get(str(self._params[key].scheme), FORMATS["float32"])

    def _split(self, node: Node) -> list[PanelMatrix]:
        """Return one matrix for each format of the parts; a gated pair with two formats falls back to float32."""
        params = self._graph.keys_by_role(node)
        keys = [params[f"weight.{i}"] for i in range(len(node.attrs["parts"]))]
        if node.attrs.get("combine") == "gated":
            forms = {self._form(key).name for key in keys}
            form = self._form(keys[0]) if len(forms) == 1 else FORMATS["float32"]
            return [self._matrix(tuple(keys), (0, 1), form, gated=True)]
        groups: dict[str, list[int]] = {}
        for i, key in enumerate(keys):
            groups.setdefault(self._form(key).name, []).append(i)
        return [
            self._matrix(tuple(keys[i] for i in parts), tuple(parts), self._form(keys[parts[0]]), gated=False)
            for parts in groups.values()
        ]

    def _matrix(self, keys: tuple[str, ...], parts: tuple[int, ...], form: PanelFormat, *, gated: bool) -> PanelMatrix:
        shapes = [self._params[key].shape for key in keys]
        return PanelMatrix(
            form=form,
            keys=(*keys, "gated") if gated else keys,
            parts=parts,
            rows=tuple(prod(shape[:-1]) for shape in shapes),
            k=shapes[0][-1],
            gated=gated,
        )

    def _fill(self, matrix: PanelMatrix, pool: ThreadPoolExecutor, threads: int, meter: WorkMeter) -> None:
        for index in range(len(matrix.rows)):
            store = self._params[matrix.keys[index]]
            target = matrix.part_address(index)
            # Whole panels at a time: a partial last panel is padded with zeros.
            rows = max(_PIECE // max(matrix.k, 1) // ROWS, 1) * ROWS
            for piece in store.row_blocks(rows):
                write_panels(piece, matrix.form, target, matrix.panel_stride, pool, threads)
                target += _panels(piece.rows) * matrix.panel_stride
            store.release()
            meter.step(store.nbytes)


def _panels(rows: int) -> int:
    return -(-rows // ROWS)


def write_panels(
    packed: Packed, form: PanelFormat, target: int, panel_stride: int, pool: ThreadPoolExecutor, threads: int
) -> None:
    """Re-tile `packed` into panels of `form` at address `target`; other schemes are decoded to float32 first."""
    panels = _panels(packed.rows)
    if FORMATS.get(str(packed.scheme)) != form:
        packed = Packed.from_array(decode(packed, np.float32).reshape(packed.rows, packed.k))
    payload = np.ascontiguousarray(packed.payload)
    arrays = [payload]
    source = (address_of(payload), payload.strides[0])
    if form.is_coded and form.name not in _IN_WORDS:

        def work(first: int, last: int) -> None:
            retile_coded_rows(packed, form, target, panel_stride, first, last)

    elif form.is_coded:
        assert packed.scales is not None
        scales = np.ascontiguousarray(packed.scales)
        offsets = None if packed.offsets is None else np.ascontiguousarray(packed.offsets)
        arrays += [scales] if offsets is None else [scales, offsets]
        tail = (16 if form.name == "int8" else 8, _FLIP[form.zero])
        more = (address_of(scales), 0 if offsets is None else address_of(offsets), scales.strides[0])

        def work(first: int, last: int) -> None:
            retile_blocks(*source, *more, packed.rows, packed.k, target, panel_stride, first, last, *tail)

    else:
        kernel = retile_halves if form.name == "float16" else retile_words
        per = 2 if form.name == "bfloat16" else 1  # numbers that stay together
        padded = form.units(packed.k) * form.unit
        sizes = (packed.rows, -(-packed.k // per), padded // per)

        def work(first: int, last: int) -> None:
            kernel(*source, *sizes, target, panel_stride, first, last)

    if payload.nbytes < _SHARE_BYTES or threads == 1:
        work(0, panels)
        return
    cuts = [panels * i // threads for i in range(threads + 1)]
    list(pool.map(work, cuts[:-1], cuts[1:]))
