"""The view of a model as a tower: its floors are blocks, with a node for each head, expert and projection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, Literal

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.layers import MultiHeadAttention, Parallel
from volumetric.loaders import LoadedModel
from volumetric.network import OUTPUT
from volumetric.network.weight_difference import WeightDifference
from volumetric.observe.scene import Scene, SceneEdge, SceneNode
from volumetric.run.lower import lower
from volumetric.run.plan import Plan, Step
from volumetric.scope.document import ScopeView
from volumetric.scope.model_differences import by_head
from volumetric.scope.model_parts import ModelBlock, describe_step, family_of, model_blocks
from volumetric.scope.model_table import relative_error
from volumetric.scope.scene_tables import scene_tables

MAX_NODES: Final = 6000
"""Most nodes of a tower; larger models show several experts, then several heads, in one."""
_STEP: Final = 1.6
"""Height of a layer; heads and experts have a distance of 1."""
_ROW: Final = 16
"""Experts side by side."""
Detail = Literal["all", "few experts", "few heads", "layers"]
DETAILS: Final[tuple[Detail, ...]] = ("all", "few experts", "few heads", "layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerNode:
    """A node: its name and place, and how much of which weights it stands for.

    Attributes
    ----------
    parts : key of a weight → share of its elements that are this node's
    errors : differences of its weights from a reference; empty: not known
    """

    name: str
    family: str
    block: int
    at: tuple[float, float, float]
    size: int
    parts: Mapping[str, float]
    errors: tuple[WeightDifference, ...] = ()


class Tower:
    """Nodes and edges of a plan.

    Parameters
    ----------
    detail : how much is shown
    errors : of `weight_differences`
    """

    def __init__(self, plan: Plan, detail: Detail, errors: Mapping[str, tuple[WeightDifference, ...]]) -> None:
        self.plan: Plan = plan
        self.detail: Detail = detail
        self.errors: Mapping[str, tuple[WeightDifference, ...]] = errors
        self.nodes: list[TowerNode] = []
        self.edges: list[tuple[int, int, str]] = []
        self._height = 0.0
        self._owned: set[str] = set()
        self._exits: dict[int, list[int]] = {}
        for name, i in plan.inputs.items():
            self._exits[i] = [self._add(name, "embedding", 0, (2.0 * len(self.nodes), 0, 0), 1, {})]
        for number, block in enumerate(model_blocks(plan)):
            self._height += _STEP * 0.7
            for step in block.steps:
                self._height += _STEP
                exits = self._layer(number, block, step)
                self._exits |= dict.fromkeys(step.outputs, exits)

    def _add(
        self,
        name: str,
        family: str,
        block: int,
        at: tuple[float, float, float],
        size: int,
        parts: Mapping[str, float],
        errors: Sequence[WeightDifference] | None = None,
    ) -> int:
        x, up, z = at
        if errors is None:
            errors = [one for key in parts for one in self.errors.get(key, ())]
        self.nodes.append(
            TowerNode(
                name=name, family=family, block=block, at=(x, -up, z), size=size, parts=parts, errors=tuple(errors)
            )
        )
        return len(self.nodes) - 1

    def _join(self, sources: Sequence[int], targets: Sequence[int], kind: str = "reads") -> None:
        self.edges += [(source, target, kind) for source in sources for target in targets]

    def _layer(self, number: int, block: ModelBlock, step: Step) -> list[int]:
        """Add the nodes of a layer; return those that its readers read."""
        spec, family = step.attrs.get("spec"), family_of(step, block)
        inputs = [i for value in step.inputs for i in self._exits[value]]
        own = {role: key for role, key in step.params.items() if key not in self._owned}
        self._owned.update(own.values())
        name = f"{block.label} {step.where}"
        if self.detail != "layers":
            if isinstance(spec, MultiHeadAttention):
                return self._heads(number, name, spec, own, inputs)
            if isinstance(spec, Parallel) and spec.gate is not None:
                return self._experts(number, name, spec, own, inputs)
            if family == "mlp":
                return self._projections(number, name, step, own, inputs)
        width = self.plan.values[step.outputs[0]].width if step.outputs else 1
        at = (0.0, self._height, 0.0)
        parts = dict.fromkeys(own.values(), 1.0)
        node = self._add(f"{name}: {describe_step(step)}", family, number, at, width, parts)
        skips = {i for i in inputs if step.op == "add" and self.nodes[i].family in ("sum", "embedding")}
        self._join([i for i in inputs if i not in skips], [node])
        self._join(sorted(skips), [node], "stream")
        return [node]

    def _heads(
        self, number: int, name: str, spec: MultiHeadAttention, own: Mapping[str, str], inputs: list[int]
    ) -> list[int]:
        """Add query heads in a row, and in front of each group the key/value head that it shares."""
        kv, shared = spec.kv_heads, spec.num_heads // spec.kv_heads
        few = self.detail == "few heads"
        pooled, each = (shared, 1) if few else (1, shared)
        count = spec.num_heads // pooled
        projections = {part: {r: k for r, k in own.items() if r.startswith(f"{part}.")} for part in "qkvo"}
        rest = [key for role, key in own.items() if role[:2] not in ("q.", "k.", "v.", "o.")]
        heads: list[int] = []
        self._height += _STEP * 0.6
        for group in range(kv):
            ends = [(group * each + i - (count - 1) / 2) for i in (0, each - 1)]
            parts = {key: 1 / kv for part in "kv" for key in projections[part].values()}
            errors = [e for part in "kv" for k in projections[part].values() for e in by_head(self.errors, k, group)]
            at = (sum(ends) / 2, self._height - _STEP * 0.6, 1.2)
            pair = self._add(f"{name}: key/value head {group}", "key/value", number, at, 2 * spec.width, parts, errors)
            self._join(inputs, [pair])
            for i in range(each):
                head = group * each + i
                keys = [*projections["q"].values(), *projections["o"].values()]
                parts = {key: 1 / count for key in (*keys, *rest)}
                numbers = range(head * pooled, (head + 1) * pooled)
                errors = [e for k in projections["q"].values() for n in numbers for e in by_head(self.errors, k, n)]
                title = f"heads {numbers[0]}–{numbers[-1]}" if pooled > 1 else f"head {head}"
                at = (head - (count - 1) / 2, self._height, 0.0)
                node = self._add(f"{name}: {title}", "attention", number, at, spec.width * pooled, parts, errors)
                self._join(inputs, [node])
                self._join([pair], [node], "keys and values")
                heads.append(node)
        return heads

    def _experts(
        self, number: int, name: str, spec: Parallel, own: Mapping[str, str], inputs: list[int]
    ) -> list[int]:
        """Add the router, and experts in rows behind it."""
        gate = {key: 1.0 for role, key in own.items() if role.startswith("gate/")}
        width = spec.gate.out_features if spec.gate is not None else 1
        router = self._add(f"{name}: router", "router", number, (0, self._height, 1.5), width, gate)
        self._join(inputs, [router])
        count = len(spec.branches)
        pooled = 1 if self.detail == "all" else -(-count // _ROW)
        nodes: list[int] = []
        shown = -(-count // pooled)
        for i in range(shown):
            numbers = range(i * pooled, min(count, (i + 1) * pooled))
            inside = tuple(f"{n}/" for n in numbers)
            parts = {key: 1.0 for role, key in own.items() if role.startswith(inside)}
            row, column = divmod(i, _ROW)
            at = (column - (min(shown, _ROW) - 1) / 2, self._height, -float(row))
            title = f"experts {numbers[0]}–{numbers[-1]}" if len(numbers) > 1 else f"expert {i}"
            size = getattr(spec.branches[0], "hidden_features", 1) * len(numbers)
            nodes.append(self._add(f"{name}: {title}", "experts", number, at, size, parts))
        self._join([router], nodes, "chooses")
        return nodes

    def _projections(
        self, number: int, name: str, step: Step, own: Mapping[str, str], inputs: list[int]
    ) -> list[int]:
        """Add the matrices of an MLP next to each other: the last reads the others."""
        groups: dict[str, dict[str, float]] = {}
        for role in step.params:
            inside = groups.setdefault(role.rpartition(".")[0] or describe_step(step), {})
            if role in own:
                inside[own[role]] = 1.0
        *first, last = groups.items()
        nodes: list[int] = []
        for i, (role, parts) in enumerate(first):
            at = (2.0 * (i - (len(first) - 1) / 2), self._height, 0.0)
            nodes.append(self._add(f"{name}: {role}", "mlp", number, at, self._rows(step, role), parts))
        self._height += _STEP * 0.8 * bool(first)
        at = (0.0, self._height, 0.0)
        end = self._add(f"{name}: {last[0]}", "mlp", number, at, self._rows(step, last[0]), last[1])
        self._join(inputs, nodes or [end])
        self._join(nodes, [end])
        return [end]

    def _rows(self, step: Step, role: str) -> int:
        key = step.params.get(f"{role}.weight", step.params.get("weight", ""))
        return self.plan.params.get(key, (1,))[0]


def tower_view(
    loaded: LoadedModel,
    errors: Mapping[str, tuple[WeightDifference, ...]] | None = None,
    *,
    similarity: Mapping[str, float] | None = None,
    attention: Mapping[str, F32Array] | None = None,
    name: str = "tower",
    label: str = "Tower",
) -> ScopeView:
    """Return the view of a model as a tower. Weights are not read.

    Nodes carry channels: kind, dtype, parameters, bytes, bits per weight, and those of the arguments.

    Parameters
    ----------
    errors : of `weight_differences`; adds the relative error of each node's weights
    similarity : path of a layer → similarity of its DNA with another model's, see `Comparison.overlaps`
    attention : coordinate of a layer of attention → a number for each of its heads, such as the entropy of what they
        read in a prompt, in bits
    """
    plan = lower(loaded.network)
    for detail in DETAILS:
        tower = Tower(plan, detail, errors or {})
        if len(tower.nodes) <= MAX_NODES:
            break
    nodes, total = tower.nodes[:MAX_NODES], len(tower.nodes)
    edges = [edge for edge in tower.edges if max(edge[:2]) < len(nodes)]
    last = {step.where for step in plan.steps if plan.outputs[OUTPUT] in step.outputs}
    scene = Scene(
        kind="model",
        nodes=tuple(
            SceneNode(
                id=i,
                name=node.name,
                role="input" if i < len(plan.inputs) else "output" if _where(node.name) in last else "cell",
                group=node.family,
                at=node.at,
                size=node.size,
            )
            for i, node in enumerate(nodes)
        ),
        edges=tuple(SceneEdge(id=i, source=s, target=t, kind=kind) for i, (s, t, kind) in enumerate(edges)),
        left_out=len(tower.edges) - len(edges),
    )
    scene.check()
    data = {
        "scene": {
            **scene_tables(scene),
            "floor": np.array([node.block for node in nodes], np.uint16),
            "channels": _channels(loaded, nodes, similarity, attention),
            "nodesLeftOut": total - len(nodes),
            "detail": tower.detail,
        },
        "recordings": [],
    }
    return ScopeView(kind="scene", name=name, label=label, data=data)


def _where(name: str) -> str:
    """Return the coordinate in a node's name: ``"block 3 4.0.0.1: head 2"`` → ``"4.0.0.1"``."""
    return name.partition(":")[0].rpartition(" ")[2]


def _channels(
    loaded: LoadedModel,
    nodes: Sequence[TowerNode],
    similarity: Mapping[str, float] | None,
    attention: Mapping[str, F32Array] | None,
) -> list[dict[str, Any]]:
    """Return what nodes can be coloured or sized by: numbers (NaN: none), or classes with names."""
    params = loaded.params
    count = np.zeros(len(nodes))
    size = np.zeros(len(nodes))
    dtypes: list[str] = []
    for i, node in enumerate(nodes):
        stores = [(params[key], share) for key, share in node.parts.items() if key in params]
        count[i] = sum(prod(store.shape) * share for store, share in stores)
        size[i] = sum(store.nbytes * share for store, share in stores)
        most = max(stores, key=lambda pair: prod(pair[0].shape) * pair[1], default=None)
        dtypes.append("no weights" if most is None else str(most[0].scheme))
    with np.errstate(divide="ignore", invalid="ignore"):
        bits = np.where(count > 0, 8 * size / count, np.nan)
    names = [*dict.fromkeys(dtypes)]
    kinds = [*dict.fromkeys(node.family for node in nodes)]
    channels: list[dict[str, Any]] = [
        _classes("kind", kinds, [node.family for node in nodes]),
        _classes("dtype", names, dtypes),
        _numbers("parameters", "", count),
        _numbers("bytes", "B", size),
        _numbers("bits per weight", "bits", bits),
    ]
    if any(node.errors for node in nodes):
        error = [relative_error(list(node.errors)) for node in nodes]
        channels.append(_numbers("relative error", "", [np.nan if e is None else e for e in error]))
    if loaded.damage:
        told = [[loaded.damage[k] * s for k, s in node.parts.items() if k in loaded.damage] for node in nodes]
        channels.append(_numbers("damage", "nats per token", [sum(parts) if parts else np.nan for parts in told]))
    if similarity:
        values = [similarity.get(_where(node.name), np.nan) for node in nodes]
        channels.append(_numbers("similarity", "", values) | {"range": [-1.0, 1.0]})
    if attention:
        channels.append(_numbers("entropy of attention", "bits", [_of_head(node, attention) for node in nodes]))
    return channels


def _of_head(node: TowerNode, attention: Mapping[str, F32Array]) -> float:
    """Return the number of a query head, or the mean of several; NaN for other nodes."""
    values = attention.get(_where(node.name))
    if values is None or node.family != "attention":
        return np.nan
    first, _, last = node.name.rpartition(" ")[2].partition("–")
    return float(values[int(first) : int(last or first) + 1].mean())


def _numbers(name: str, unit: str, values: Any) -> dict[str, Any]:
    return {"name": name, "unit": unit, "values": np.asarray(values, np.float32)}


def _classes(name: str, names: Sequence[str], values: Sequence[str]) -> dict[str, Any]:
    places = {text: i for i, text in enumerate(names)}
    return {"name": name, "unit": "", "names": list(names), "classes": np.array([places[v] for v in values], np.uint16)}


