"""The nodes and edges of a model as a tower: heads, experts, projections, norms and sums at their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from volumetric.layers import MultiHeadAttention, Parallel
from volumetric.network.weight_difference import WeightDifference
from volumetric.run.plan import Plan, Step
from volumetric.scope.model_differences import by_head
from volumetric.scope.model_parts import ModelBlock, describe_step, family_of

_FLOOR: Final = 1.5
"""Height of a block; heads and experts have a distance of 1."""
_RISE: Final = 0.7
"""How much higher the MLP of a block stands than its attention."""
_ROW: Final = 16
"""Experts side by side."""
Differences: TypeAlias = "tuple[WeightDifference, ...]"
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
    errors: Differences = ()


class Tower:
    """Nodes and edges of a model of tokens.

    The residual stream goes up in the middle. Of a block, what mixes tokens stands in front of it, what does not behind
    it, and norms between.

    Parameters
    ----------
    detail : how much is shown
    errors : of `weight_differences`
    """

    def __init__(
        self, plan: Plan, blocks: Sequence[ModelBlock], detail: Detail, errors: Mapping[str, Differences]
    ) -> None:
        self.plan: Plan = plan
        self.detail: Detail = detail
        self.errors: Mapping[str, Differences] = errors
        self.nodes: list[TowerNode] = []
        self.edges: list[tuple[int, int, str]] = []
        self._owned: set[str] = set()
        self._exits: dict[int, list[int]] = {}
        self._at: tuple[float, float, float] = (0.0, 0.0, 0.0)
        for name, i in plan.inputs.items():
            self._exits[i] = [self._add(name, "embedding", 0, (2.0 * len(self.nodes), 0, 0), 1, {})]
        height = 0.0
        for number, block in enumerate(blocks):
            sides = _sides(block)
            inside = block.label not in ("embedding", "head")
            used: dict[tuple[float, float], int] = {}
            for step, side in zip(block.steps, sides, strict=True):
                height += 0.0 if inside else 0.9
                z, up = side if inside else (0.0, 0.0)
                taken = used[z, up] = used.get((z, up), -1) + 1
                # several norms, one for what enters and one for what leaves, stand next to each other
                x = (0.0 if abs(z) != 1 else 0.6) + 1.2 * (taken // 2)
                self._at = (x if taken % 2 else -x, height + up, z)
                exits = self._layer(number, block, step)
                self._exits |= dict.fromkeys(step.outputs, exits)
            height += _FLOOR if inside else 0.5

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
        parts = dict.fromkeys(own.values(), 1.0)
        node = self._add(f"{name}: {describe_step(step)}", family, number, self._at, width, parts)
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
        _, up, z = self._at
        for group in range(kv):
            ends = [(group * each + i - (count - 1) / 2) for i in (0, each - 1)]
            parts = {key: 1 / kv for part in "kv" for key in projections[part].values()}
            errors = [e for part in "kv" for k in projections[part].values() for e in by_head(self.errors, k, group)]
            at = (sum(ends) / 2, up, z + 0.9)
            pair = self._add(f"{name}: key/value head {group}", "key/value", number, at, 2 * spec.width, parts, errors)
            self._join(inputs, [pair])
            for i in range(each):
                head = group * each + i
                keys = [*projections["q"].values(), *projections["o"].values()]
                parts = dict.fromkeys((*keys, *rest), 1 / count)
                numbers = range(head * pooled, (head + 1) * pooled)
                errors = [e for k in projections["q"].values() for n in numbers for e in by_head(self.errors, k, n)]
                title = f"heads {numbers[0]}–{numbers[-1]}" if pooled > 1 else f"head {head}"
                at = (head - (count - 1) / 2, up, z)
                node = self._add(f"{name}: {title}", "attention", number, at, spec.width * pooled, parts, errors)
                self._join(inputs, [node])
                self._join([pair], [node], "keys and values")
                heads.append(node)
        return heads

    def _experts(self, number: int, name: str, spec: Parallel, own: Mapping[str, str], inputs: list[int]) -> list[int]:
        """Add the router, and experts in rows behind it."""
        gate = {key: 1.0 for role, key in own.items() if role.startswith("gate/")}
        width = spec.gate.out_features if spec.gate is not None else 1
        _, up, z = self._at
        router = self._add(f"{name}: router", "router", number, (0, up, z), width, gate)
        self._join(inputs, [router])
        count = len(spec.branches)
        pooled = 1 if self.detail == "all" else -(-count // _ROW)
        by_expert: dict[str, list[str]] = {}
        for role, key in own.items():
            by_expert.setdefault(role.partition("/")[0], []).append(key)
        nodes: list[int] = []
        shown = -(-count // pooled)
        for i in range(shown):
            numbers = range(i * pooled, min(count, (i + 1) * pooled))
            parts = dict.fromkeys((key for n in numbers for key in by_expert.get(str(n), ())), 1.0)
            row, column = divmod(i, _ROW)
            at = (column - (min(shown, _ROW) - 1) / 2, up, z - 1.0 - row)
            title = f"experts {numbers[0]}–{numbers[-1]}" if len(numbers) > 1 else f"expert {i}"
            size = getattr(spec.branches[0], "hidden_features", 1) * len(numbers)
            nodes.append(self._add(f"{name}: {title}", "experts", number, at, size, parts))
        self._join([router], nodes, "chooses")
        return nodes

    def _projections(self, number: int, name: str, step: Step, own: Mapping[str, str], inputs: list[int]) -> list[int]:
        """Add the matrices of an MLP next to each other: the last reads the others."""
        groups: dict[str, dict[str, float]] = {}
        for role in step.params:
            inside = groups.setdefault(role.rpartition(".")[0] or describe_step(step), {})
            if role in own:
                inside[own[role]] = 1.0
        *first, last = groups.items()
        nodes: list[int] = []
        x, up, z = self._at
        for i, (role, parts) in enumerate(first):
            at = (x + 2.0 * (i - (len(first) - 1) / 2), up, z - 1.0)
            nodes.append(self._add(f"{name}: {role}", "mlp", number, at, self._rows(step, role), parts))
        end = self._add(f"{name}: {last[0]}", "mlp", number, self._at, self._rows(step, last[0]), last[1])
        self._join(inputs, nodes or [end])
        self._join(nodes, [end])
        return [end]

    def _rows(self, step: Step, role: str) -> int:
        key = step.params.get(f"{role}.weight", step.params.get("weight", ""))
        return self.plan.params.get(key, (1,))[0]


def _sides(block: ModelBlock) -> list[tuple[float, float]]:
    """Return how far in front of the stream each layer of a block stands, and how much above the floor."""
    families = [family_of(step, block) for step in block.steps]
    mixes = [getattr(step.attrs.get("spec"), "contextual", False) for step in block.steps]
    sides: list[tuple[float, float]] = []
    sums = 0
    for i, family in enumerate(families):
        if family == "sum":
            sides.append((0.0, _RISE * (0.5 + sums)))
            sums += 1
            continue
        if family in ("attention", "mlp", "experts") or mixes[i]:
            front = 2.0 if family == "attention" else 4.0
            sides.append((front, 0.0) if mixes[i] else (-2.0, _RISE))
            continue
        later = [k for k in range(i + 1, len(families)) if families[k] != "norm"]
        near = later[0] if later and families[later[0]] != "sum" else max(i - 1, 0)
        while near > 0 and families[near] == "norm":
            near -= 1
        sides.append((1.0, 0.0) if mixes[near] else (-1.0, _RISE))
    return sides
