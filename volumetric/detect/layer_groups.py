"""Groups of layers: attention, multi-layer perceptrons, mixtures of experts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from volumetric.base._typing import Shape
from volumetric.detect import spellings
from volumetric.detect.findings import Certainty, Finding
from volumetric.detect.module_tree import ModuleNode

MAX_HEADS = 1024
"""Maximum heads of a layer; no model has a tenth of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionHeads:
    """Facts about the heads of an attention layer.

    Attributes
    ----------
    queries, keys : rows of the query and key projections
    head_dim : width of a head, None if unknown
    reason : the evidence for it, or a note that there is none
    """

    queries: int
    keys: int
    head_dim: int | None
    reason: str

    @property
    def groups(self) -> int:
        """Number of query heads that share a key head."""
        return self.queries // self.keys


def group(node: ModuleNode) -> Finding | None:
    """Recognise a module by its child modules."""
    for attempt in (_attention, _experts, _mlp):
        finding = attempt(node)
        if finding is not None:
            return finding
    return None


def child(node: ModuleNode, names: Sequence[str]) -> ModuleNode | None:
    """First child module of `node` with one of these names."""
    return next((node.children[name] for name in names if name in node.children), None)


def matrix(node: ModuleNode | None) -> Shape | None:
    """Shape ``(out, in)`` of a module's matrix, None if it has none."""
    shape = None if node is None else node.shape("weight")
    if node is None or shape is None or len(shape) != 2 or not min(shape):
        return None
    if re.split(r"[./]", node.path)[-1] not in spellings.INPUT_SIDE:
        return shape
    # GPT-2's Conv1D always has a bias of the output size; without one it is torch's Linear, as in StarCoder 2.
    return shape[::-1] if node.shape("bias") == shape[1:] else shape


def heads_of(node: ModuleNode) -> AttentionHeads | None:
    """Return the facts about the heads of an attention module, None if `node` is not one.

    The width of a head is the width of head norms, if these have a gain for each element of a head; or twice the length
    of a table of rotary frequencies; or it follows from the number of heads, which is the number of columns of a table
    of slopes, sinks or relative positions.
    """
    inner = projections_node(node)
    rows = _projections(inner) or _fused_projections(node)
    if rows is None:
        return None
    queries, keys = rows
    norm = child(inner, spellings.QUERY_NORM)
    width = None if norm is None else norm.shape("weight")
    if norm is not None and width is None and "norms" in norm.children:
        width = next((each.shape("weight") for each in norm.children["norms"].children.values()), None)
    if width is not None and len(width) == 2 and width[0] * width[1] == queries:
        width = width[1:]
    if width is not None and len(width) == 1 and width[0] < queries and keys % width[0] == 0:
        return AttentionHeads(queries=queries, keys=keys, head_dim=width[0], reason=f"head norms of {width[0]}")
    for each in inner.modules():
        table = each.shape("inv_freq")
        if table is not None and len(table) == 1 and table[0] and keys % (2 * table[0]) == 0:
            wide = 2 * table[0]
            return AttentionHeads(queries=queries, keys=keys, head_dim=wide, reason=f"{table[0]} rotary frequencies")
        for name, entry in each.tensors.items():
            count = _heads_of_table(each, name, entry.shape)
            if count and queries % count == 0 and keys % (queries // count) == 0:
                wide = queries // count
                return AttentionHeads(queries=queries, keys=keys, head_dim=wide, reason=f"{name} has {count} heads")
    ratio = f"; {queries // keys} query heads share a key head" if queries > keys else ""
    return AttentionHeads(
        queries=queries, keys=keys, head_dim=None, reason=f"the tensors do not show the width of a head{ratio}"
    )


def projections_node(node: ModuleNode) -> ModuleNode:
    """Module with the projections of an attention module: the module, or its child ``self`` in BERT."""
    return node.children.get("self", node)


def _projections(node: ModuleNode) -> tuple[int, int] | None:
    """Rows of queries and keys of three separate projections."""
    q, k, v = (matrix(child(node, names)) for names in (spellings.QUERY, spellings.KEY, spellings.VALUE))
    if q is None or k is None or v is None or not q[1] == k[1] == v[1] or k[0] != v[0] or q[0] % k[0]:
        return None
    return q[0], k[0]


def _fused_projections(node: ModuleNode) -> tuple[int, int] | None:
    """Rows of queries and keys of one fused projection: the output projection has a column for each query row."""
    joint = node.shape("in_proj_weight")  # in torch's nn.MultiheadAttention
    if joint is not None and len(joint) == 2 and joint[1] and joint[0] == 3 * joint[1]:
        return joint[1], joint[1]
    fused, out = matrix(child(node, spellings.FUSED_QKV)), matrix(child(node, spellings.OUTPUT))
    if fused is None or out is None or out[0] != fused[1] or fused[0] <= out[1]:
        return None
    keys, odd = divmod(fused[0] - out[1], 2)
    return None if odd or out[1] % keys else (out[1], keys)


def _heads_of_table(node: ModuleNode, name: str, shape: Shape) -> int | None:
    """Number of heads in ALiBi slopes, sinks or a table of relative position biases; None for other tensors."""
    if re.search(r"slopes|alibi|^sinks$", name) and shape and max(shape) <= MAX_HEADS:
        return max(shape)
    if re.search(r"relative_(?:attention|position)_bias", f"{node.path}.{name}") and len(shape) == 2:
        return shape[1] if shape[1] <= MAX_HEADS else None
    return None


def _attention(node: ModuleNode) -> Finding | None:
    heads = heads_of(node)
    if heads is None:
        return None
    certainty: Certainty = "likely"
    if heads.head_dim is None:
        text = f"{heads.queries} query and {heads.keys} key rows"
    else:
        count, shared = heads.queries // heads.head_dim, heads.keys // heads.head_dim
        text = f"{count} heads × {heads.head_dim}" + (f", {shared} key heads" if shared < count else "")
        certainty = "certain"
    within = projections_node(node)
    parts = (spellings.QUERY, spellings.KEY, spellings.VALUE, spellings.FUSED_QKV, spellings.OUTPUT)
    parts += (spellings.QUERY_NORM, spellings.KEY_NORM)
    own = _names(*(child(each, part) for each in (within, node) for part in parts))
    tables = [name for name in _names(within) if re.search(r"inv_freq|relative|slopes|in_proj_", name)]
    return Finding(
        path=node.path,
        what=f"attention, {text}",
        certainty=certainty,
        reason=f"projections to queries, keys and values; {heads.reason}",
        tensors=tuple(dict.fromkeys((*own, *tables))),
    )


def _names(*modules: ModuleNode | None) -> tuple[str, ...]:
    """Names of all tensors of some modules."""
    return tuple(entry.name for module in modules if module is not None for entry in module.all_tensors())


def _mlp(node: ModuleNode) -> Finding | None:
    modules = {
        name: child(node, n) for name, n in (("gate", spellings.GATE), ("up", spellings.UP), ("down", spellings.DOWN))
    }
    fused_module = child(node, spellings.FUSED_GATE_UP)
    gate, up, down = (matrix(module) for module in modules.values())
    fused = matrix(fused_module)
    if fused is not None and down is not None and fused[0] == 2 * down[1] and fused[1] == down[0]:
        what, reason = f"gated MLP {down[0]} → {down[1]}", "gate and up projections in one matrix"
        return Finding(path=node.path, what=what, reason=reason, tensors=_names(fused_module, modules["down"]))
    if up is None or down is None or up != down[::-1]:
        return None
    if gate is not None and gate == up and modules["gate"] is not modules["up"]:
        what, reason = f"gated MLP {up[1]} → {up[0]}", "gate, up and down projections"
        return Finding(path=node.path, what=what, reason=reason, tensors=_names(*modules.values()))
    what, reason = f"MLP {up[1]} → {up[0]}", "up and down projections"
    return Finding(path=node.path, what=what, reason=reason, tensors=_names(modules["up"], modules["down"]))


def _experts(node: ModuleNode) -> Finding | None:
    """A mixture of experts: numbered modules, or tensors of three axes that stack the experts."""
    experts = child(node, spellings.EXPERTS)
    router = matrix(child(node, spellings.ROUTER))
    if experts is None or router is None:
        return None
    numbered = [name for name in experts.children if name.isascii() and name.isdigit()]
    stacked = {entry.shape[0] for entry in experts.tensors.values() if len(entry.shape) == 3}
    count = len(numbered) or (next(iter(stacked)) if len(stacked) == 1 else 0)
    if count != router[0]:
        return None
    inner = None if not numbered else _mlp(experts.children[numbered[0]])
    kind = f" of {inner.what}" if inner is not None else ""
    return Finding(
        path=node.path,
        what=f"mixture of {count} experts{kind}",
        reason="the router has a row for each expert; no tensor shows how many experts a token uses",
        tensors=_names(experts, child(node, spellings.ROUTER)),
    )
