"""The view of a model as a tower: its floors are blocks, with a node for each head, expert and projection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from volumetric.base._typing import F32Array
from volumetric.loaders import LoadedModel
from volumetric.network import OUTPUT
from volumetric.observe.scene import Scene, SceneEdge, SceneNode, scene_of
from volumetric.run.lower import lower
from volumetric.run.plan import Plan
from volumetric.scope.document import ScopeView
from volumetric.scope.model_channels import node_channels, where_of
from volumetric.scope.model_nodes import DETAILS, Differences, Tower, TowerNode
from volumetric.scope.model_parts import ModelBlock, is_tower, model_blocks
from volumetric.scope.scene_tables import scene_tables

MAX_NODES: Final = 6000
"""Most nodes of a tower; larger models show several experts, then several heads, in one."""


def tower_view(
    loaded: LoadedModel,
    errors: Mapping[str, Differences] | None = None,
    *,
    similarity: Mapping[str, float] | None = None,
    attention: Mapping[str, F32Array] | None = None,
    name: str = "tower",
    label: str = "Tower",
) -> ScopeView:
    """Return the view of a model as a tower; of a network that does not read tokens, of its layers in their grid.

    Weights are not read. Nodes carry channels: kind, dtype, parameters, bytes, bits per weight, and those of the
    arguments.

    Parameters
    ----------
    errors : of `weight_differences`; adds the relative error of each node's weights
    similarity : path of a layer → similarity of its DNA with another model's, see `Comparison.overlaps`
    attention : coordinate of a layer of attention → a number for each of its heads, such as the entropy of what they
        read in a prompt, in bits
    """
    plan = lower(loaded.network)
    blocks = model_blocks(plan)
    if is_tower(blocks):
        nodes, scene = _tower(plan, blocks, errors or {})
    else:
        nodes, scene = _grid(plan, loaded, errors or {})
    channels = node_channels(loaded, nodes, similarity, attention)
    data = {"scene": {**scene_tables(scene), "channels": channels}, "recordings": []}
    return ScopeView(kind="scene", name=name, label=label, data=data)


def _tower(
    plan: Plan, blocks: Sequence[ModelBlock], errors: Mapping[str, Differences]
) -> tuple[Sequence[TowerNode], Scene]:
    """Return the nodes and the scene of a model of tokens, in as much detail as fits."""
    tower = Tower(plan, blocks, "all", errors)
    for detail in DETAILS[1:]:
        if len(tower.nodes) > MAX_NODES:
            tower = Tower(plan, blocks, detail, errors)
    nodes = tower.nodes[:MAX_NODES]
    edges = [edge for edge in tower.edges if max(edge[:2]) < len(nodes)]
    last = {step.where for step in plan.steps if plan.outputs[OUTPUT] in step.outputs}
    scene = Scene(
        kind="model",
        nodes=tuple(
            SceneNode(
                id=i,
                name=node.name,
                role="input" if i < len(plan.inputs) else "output" if where_of(node.name) in last else "cell",
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
    return nodes, scene


def _grid(plan: Plan, loaded: LoadedModel, errors: Mapping[str, Differences]) -> tuple[Sequence[TowerNode], Scene]:
    """Return the layers of a network at their coordinates, with the weights of each."""
    scene = scene_of(loaded.network)
    keys: dict[str, dict[str, float]] = {}
    owned: set[str] = set()
    for step in plan.steps:
        own = [key for key in step.params.values() if key not in owned]
        owned.update(own)
        keys.setdefault(step.where.partition("/")[0], {}).update(dict.fromkeys(own, 1.0))
    nodes: list[TowerNode] = []
    for node in scene.nodes:
        parts = keys.get(node.name.partition(" ")[0], {})
        nodes.append(
            TowerNode(
                name=node.name,
                family=node.group,
                block=0,
                at=node.at,
                size=node.size,
                parts=parts,
                errors=tuple(one for key in parts for one in errors.get(key, ())),
            )
        )
    return nodes, scene
