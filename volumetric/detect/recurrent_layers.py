"""LSTM, GRU and RNN: names, layouts and gate orders of torch, Keras and ONNX.

Gate orders are from the packages' documentation: torch ``i f g o`` and ``r z n``, also used here; Keras ``i f c o`` and
``z r h``; ONNX (operators LSTM and GRU) ``i o f c`` and ``z r h``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.detect.findings import Finding
from volumetric.detect.module_tree import ModuleNode
from volumetric.detect.parameter_fills import ParameterFill, prefix_fills, transposed_fill, verbatim_fill
from volumetric.layers import GRU, LSTM, RNN, LayerSpec, Parallel, Sequential
from volumetric.layers.recurrent import Recurrent

_CELLS: Final[Mapping[int, type[Recurrent]]] = {4: LSTM, 3: GRU, 1: RNN}
"""Rows of the recurrent matrix divided by its columns → cell."""
_ORDERS: Final[Mapping[tuple[str, int], tuple[int, ...]]] = {
    ("keras", 3): (1, 0, 2),
    ("onnx", 4): (0, 2, 3, 1),
    ("onnx", 3): (1, 0, 2),
}
"""Gate order of other packages: our block i is their block ``order[i]``."""
_TORCH = re.compile(r"(weight|bias)_(ih|hh|hr)(?:_l(\d+))?(_reverse)?")
_KERAS: Final = "Keras' names; gates i f c o, or z r h"
MAX_LAYERS: Final = 64
"""Maximum layers of a recurrent module; no model has a tenth of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _DirectionCell:
    """The fills of one layer in one direction."""

    kind: type[Recurrent]
    input_size: int
    hidden_size: int
    fills: Mapping[str, ParameterFill]

    def spec(self, *, reverse: bool) -> Recurrent:
        """Return the recurrent layer that the cell fills, forward or in reverse."""
        return self.kind(
            input_size=self.input_size, hidden_size=self.hidden_size, bias="ih.bias" in self.fills, reverse=reverse
        )


def recurrent(node: ModuleNode) -> Finding | None:
    """Recognise a recurrent module, of one or several layers and directions."""
    for attempt in (_torch, _onnx, _keras):
        finding = attempt(node)
        if finding is not None:
            return finding
    return None


def _torch(node: ModuleNode) -> Finding | None:
    parts = {name: match for name in node.tensors if (match := _TORCH.fullmatch(name))}
    if not any(match[2] == "hh" for match in parts.values()):
        return None
    names = tuple(node.tensors[name].name for name in parts)
    if any(match[2] == "hr" for match in parts.values()):
        return Finding(path=node.path, what="", reason="an LSTM with projections (proj_size)", tensors=names)
    places = {(int((match[3] or "0")[-9:]), bool(match[4])): (match[3], match[4]) for match in parts.values()}
    depth = 1 + max(layer for layer, _ in places)
    if depth > MAX_LAYERS:
        return None
    stack: list[list[_DirectionCell]] = []
    for layer in range(depth):
        cells: list[_DirectionCell] = []
        for reverse in (False, True):
            if (layer, reverse) in places:
                number, back = places[layer, reverse]
                end = ("" if number is None else f"_l{number}") + (back or "")
                cell = _torch_cell(node, end)
                if cell is None:
                    return None
                cells.append(cell)
        stack.append(cells)
    return _recurrent_finding(node.path, stack, names, "torch's names; gates i f g o, or r z n")


def _torch_cell(node: ModuleNode, end: str) -> _DirectionCell | None:
    ih, hh = node.shape(f"weight_ih{end}"), node.shape(f"weight_hh{end}")
    kind = _kind(hh)
    if kind is None or ih is None or hh is None or len(ih) != 2 or ih[0] != hh[0]:
        return None
    fills = {f"{side}.weight": verbatim_fill(node.tensors[f"weight_{side}{end}"].name) for side in ("ih", "hh")}
    biases = {side: node.tensors.get(f"bias_{side}{end}") for side in ("ih", "hh")}
    if all(entry is not None and entry.shape == hh[:1] for entry in biases.values()):
        fills |= {f"{side}.bias": verbatim_fill(entry.name) for side, entry in biases.items() if entry is not None}
    elif any(biases.values()):
        return None
    return _DirectionCell(kind=kind, input_size=ih[1], hidden_size=hh[1], fills=fills)


def _onnx(node: ModuleNode) -> Finding | None:
    """Recognise an ONNX RNN, LSTM or GRU of one or two directions by its inputs W, R and B; None for anything else."""
    roles = {role: [n for n in node.tensors if n == role or n.endswith(f"_{role}")] for role in "WRBP"}
    if len(roles["W"]) != 1 or len(roles["R"]) != 1 or len(roles["B"]) > 1 or roles["P"]:
        return None  # P are peepholes, which no cell here supports
    w, r, b = roles["W"][0], roles["R"][0], next(iter(roles["B"]), None)
    ws, rs = node.shape(w) or (), node.shape(r) or ()
    bs = None if b is None else node.shape(b)
    if len(ws) != 3 or len(rs) != 3 or ws[:2] != rs[:2] or ws[0] not in (1, 2):
        return None
    kind = _kind(rs[1:])
    if kind is None or (bs is not None and bs != (rs[0], 2 * rs[1])):
        return None
    blocks = rs[1] // rs[2]
    order = _ORDERS.get(("onnx", blocks))
    cells: list[_DirectionCell] = []
    for way in range(ws[0]):
        fills = {
            "ih.weight": ParameterFill((node.tensors[w].name,), _direction_reader(way, order, blocks)),
            "hh.weight": ParameterFill((node.tensors[r].name,), _direction_reader(way, order, blocks)),
        }
        if b is not None:
            for i, side in enumerate(("ih", "hh")):
                part = slice(i * rs[1], (i + 1) * rs[1])
                fills[f"{side}.bias"] = ParameterFill(
                    (node.tensors[b].name,), _direction_reader(way, order, blocks, part)
                )
        cells.append(_DirectionCell(kind=kind, input_size=ws[2], hidden_size=rs[2], fills=fills))
    names = tuple(node.tensors[name].name for name in (w, r, *([b] if b else [])))
    finding = _recurrent_finding(node.path, [cells], names, "ONNX' inputs W, R and B; gates i o f c, or z r h")
    if finding is None or kind is not GRU:
        return finding
    why = (
        "an attribute of the node, which no tensor shows, selects whether the reset gate is applied before or "
        "after the product"
    )
    return replace(finding, certainty="likely", needs={"linear_before_reset": (1, why)})


def _keras(node: ModuleNode) -> Finding | None:
    if "recurrent_kernel" not in node.tensors:
        return None
    cell = _keras_cell(node)
    names = tuple(entry.name for entry in node.tensors.values())
    if cell is not None:
        return _recurrent_finding(node.path, [[cell]], names, _KERAS)
    reason = "the shapes of this recurrent kernel fit no supported cell; Keras' GRU needs reset_after=True"
    return Finding(path=node.path, what="", reason=reason, tensors=names)


def bidirectional(node: ModuleNode) -> Finding | None:
    """Recognise Keras' Bidirectional: a module with a forward cell and a backward cell."""
    both = {way: child for child in node.children.values() if (way := _direction_of(child.path)) is not None}
    candidates = [_keras_cell(_cell_node(both[reverse])) for reverse in (False, True) if reverse in both]
    cells = [cell for cell in candidates if cell is not None]
    if len(cells) != 2:
        return None
    return _recurrent_finding(node.path, [cells], tuple(entry.name for entry in node.all_tensors()), _KERAS)


def _direction_of(path: str) -> bool | None:
    """Direction in the name of a child of Keras' Bidirectional; True is backward."""
    name = re.split(r"[./]", path)[-1]
    return False if name.startswith("forward") else True if name.startswith("backward") else None


def _cell_node(node: ModuleNode) -> ModuleNode:
    """Node that has the kernels: the layer, or its child cell."""
    if "recurrent_kernel" in node.tensors:
        return node
    return next((child for child in node.children.values() if "recurrent_kernel" in child.tensors), node)


def _keras_cell(node: ModuleNode) -> _DirectionCell | None:
    """Return the cell that Keras' names and shapes describe, or None: kernels ``[inputs, blocks · hidden]``."""
    kernel, back, bias = (node.shape(name) for name in ("kernel", "recurrent_kernel", "bias"))
    if kernel is None or back is None or len(kernel) != 2 or len(back) != 2 or kernel[1] != back[1]:
        return None
    kind = _kind(back[::-1])
    if kind is None:
        return None
    wide, blocks = back[1], back[1] // back[0]
    order = _ORDERS.get(("keras", blocks))
    if kind is GRU and bias != (2, wide):
        return None  # with one bias the reset gate is applied before the product, which is another equation
    fills = {
        "ih.weight": _transposed_gates_fill(node.tensors["kernel"].name, order, blocks),
        "hh.weight": _transposed_gates_fill(node.tensors["recurrent_kernel"].name, order, blocks),
    }
    if bias is not None:
        name = node.tensors["bias"].name
        if bias == (2, wide):
            fills |= {
                f"{s}.bias": ParameterFill((name,), _direction_reader(i, order, blocks))
                for i, s in enumerate(("ih", "hh"))
            }
        elif bias == (wide,):
            # Keras has one bias, torch the sum of two: the other one is zero.
            fills |= {
                "ih.bias": ParameterFill((name,), _gate_reorderer(order, blocks)),
                "hh.bias": ParameterFill((name,), np.zeros_like),
            }
        else:
            return None
    return _DirectionCell(kind=kind, input_size=kernel[0], hidden_size=back[0], fills=fills)


def _kind(hh: Shape | None) -> type[Recurrent] | None:
    """Kind of cell of a recurrent matrix ``[blocks · H, H]``."""
    if hh is None or len(hh) != 2 or hh[1] < 1 or hh[0] % hh[1]:
        return None
    return _CELLS.get(hh[0] // hh[1])


def _direction_reader(
    first: int, order: tuple[int, ...] | None, blocks: int, part: slice = slice(None)
) -> Callable[[Array], Array]:
    """Select part of one direction and reorder its blocks to our order."""
    return lambda value: _reorder_gates(value[first][part], order, blocks)


def _transposed_gates_fill(name: str, order: tuple[int, ...] | None, blocks: int) -> ParameterFill:
    if order is None:
        return transposed_fill(name)
    return ParameterFill((name,), lambda value: _reorder_gates(value.T, order, blocks))


def _gate_reorderer(order: tuple[int, ...] | None, blocks: int) -> Callable[[Array], Array]:
    return lambda value: _reorder_gates(value, order, blocks)


def _reorder_gates(value: Array, order: tuple[int, ...] | None, blocks: int) -> Array:
    if order is None:
        return value
    return value.reshape(blocks, -1, *value.shape[1:])[list(order)].reshape(value.shape)


def _recurrent_finding(
    path: str, stack: list[list[_DirectionCell]], names: tuple[str, ...], reason: str
) -> Finding | None:
    """Combine cells into one layer, if each can read the output of the one before it."""
    layers: list[LayerSpec] = []
    fills: dict[str, ParameterFill] = {}
    width: int | None = None
    for i, cells in enumerate(stack):
        if not cells or any(cell.input_size != (width or cell.input_size) for cell in cells):
            return None
        if len({(cell.hidden_size, cell.input_size, cell.kind, "ih.bias" in cell.fills) for cell in cells}) != 1:
            return None
        specs = [cell.spec(reverse=bool(way)) for way, cell in enumerate(cells)]
        path_in = f"{i}/" if len(stack) > 1 else ""
        if len(cells) == 1:
            layers.append(specs[0])
            fills |= {path_in + name: fill for name, fill in cells[0].fills.items()}
        else:
            layers.append(Parallel(branches=tuple(specs), combine="concat"))
            for way, cell in enumerate(cells):
                fills |= prefix_fills(cell.fills, f"{path_in}{way}")
        width = len(cells) * cells[0].hidden_size
    first = stack[0][0]
    extra = [f"{len(stack)} layers"] * (len(stack) > 1) + ["both ways"] * (len(stack[0]) > 1)
    what = f"{first.kind.__name__} {first.input_size} → {first.hidden_size}" + "".join(f", {text}" for text in extra)
    layer = layers[0] if len(layers) == 1 else Sequential(layers=tuple(layers))
    gates = {LSTM: "4 blocks of rows", GRU: "3 blocks of rows", RNN: "one block of rows (tanh)"}[first.kind]
    certainty = "likely" if first.kind is RNN else "certain"
    return Finding(
        path=path,
        what=what,
        certainty=certainty,
        reason=f"{gates} in the recurrent matrix; {reason}",
        tensors=names,
        layer=layer,
        fills=fills,
    )
