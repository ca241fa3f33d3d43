"""Look at weights without a configuration: what they are, what that makes of them, and what is not known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from volumetric.base.errors import CheckpointError, VolumetricError
from volumetric.detect.assumptions import AssumedError, Assumptions
from volumetric.detect.blocks import group
from volumetric.detect.chains import chained
from volumetric.detect.families import Fitting, fitting_families, nearest
from volumetric.detect.findings import Certainty, Finding
from volumetric.detect.mobilenets import mobilenet
from volumetric.detect.modules import single
from volumetric.detect.recurrent import both_ways
from volumetric.detect.resnets import resnet
from volumetric.detect.respelled import Respelled, is_llama_cpp, spellings
from volumetric.detect.spellings import adapter_of
from volumetric.detect.stack import NetworkPlan, PlanParts
from volumetric.detect.state_spaces import state_space_values
from volumetric.detect.transformer import encoder_layer
from volumetric.detect.tree import Node, build_tree
from volumetric.detect.values import Known, values_of
from volumetric.dtypes import DType, Scheme
from volumetric.layers import Dense, MultiHeadAttention
from volumetric.loaders import archs
from volumetric.loaders.rows_apart import rows_joined
from volumetric.loaders.source import TensorSource
from volumetric.network import Network, Params


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What weights were taken for.

    Attributes
    ----------
    architecture : family or kind of network; empty where no network can be made
    certainty, reason : how certain `architecture` is, and why
    findings : layers in natural order of their names; those without `what` were not recognised
    known : value that names and shapes tell → with the reason
    assumed : value that they do not tell, and that convention does → what it is
    missing : value that is needed and that nothing tells → why; people give it by this name
    left_out : tensor that has no place in the network → why
    advice : what to do with what no network can be made of; empty where nothing is known
    plan : the network, where layers were put together; None where there is none, or `missing` is not empty
    family : whether `architecture` is a model family, whose network `values` describe
    values : the configuration of that family
    source : the tensors by the names that the family knows
    """

    architecture: str
    certainty: Certainty
    reason: str
    findings: tuple[Finding, ...]
    known: Mapping[str, Known] = field(default_factory=dict)
    assumed: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    plan: NetworkPlan | None = None
    family: bool = False
    values: Mapping[str, object] = field(default_factory=dict)
    source: TensorSource | None = None
    advice: str = ""

    def mount(self, source: TensorSource, dtype: str | DType | Scheme | None, where: str) -> tuple[Network, Params]:
        """Return the network that layers were put together to, with lazy weights.

        Raises
        ------
        CheckpointError
            A value is missing (all are named), or nothing was recognised that makes a network.
        """
        if self.missing:
            names = ", ".join(f"{name} ({why})" for name, why in self.missing.items())
            first = next(iter(self.missing))
            raise CheckpointError(
                f"{where}: this looks like {self.architecture}, and names and shapes do not tell {names}",
                hint=f'say it: guess={{"{first}": …}}, or --assume {first}=…; `volumetric inspect` shows what is known',
            )
        if self.plan is not None:
            return self.plan.network, self.plan.mount(source, dtype, where)
        raise CheckpointError(
            f"{where}: no network can be made of these tensors: {self.reason}",
            hint=self.advice or "`volumetric inspect` shows what each of them is taken for",
        )


def detect(source: TensorSource, assumptions: Assumptions, where: str) -> Detection:
    """Look at the names and shapes of a checkpoint; weights are read where a few numbers are evidence.

    Raises
    ------
    SpecError
        A value was assumed that nothing here asks for.
    """
    adapter = adapter_of(source.entries)
    if adapter is not None:
        kind, advice = adapter
        reason = f"it is {kind}, which is added to a model's weights and is no model"
        assumptions.known |= assumptions.values.keys()
        findings = tuple(_findings(build_tree(source.entries)))
        return Detection(architecture="", certainty="certain", reason=reason, findings=findings, advice=advice)
    near = ""
    for one in spellings(source):
        root = build_tree(one.entries)
        known = values_of(root, one)
        known |= {name: fact for name, fact in state_space_values(one.entries).items() if name not in known}
        joined = rows_joined(one)
        fits = fitting_families(joined, known, assumptions, where)
        if fits:
            detection = _of_family(fits, tuple(_findings(build_tree(source.entries))), known, assumptions, one)
            break
        near = near or nearest(joined, known, assumptions, where) or ""
    else:
        root = build_tree(source.entries)
        known = values_of(root, source)
        detection = _of_parts(root, known, assumptions, near, source)
    assumptions.check_used()
    return detection


def _leaves(root: Node) -> list[Finding]:
    """Each module with tensors of its own; the cells of a bidirectional one are one."""
    leaves: list[Finding] = []
    claimed_names: set[str] = set()
    for node in root.walk():
        finding = encoder_layer(node) or (single(node) if node.tensors else both_ways(node))
        if finding is not None and not claimed_names.issuperset(finding.tensors):
            claimed_names.update(finding.tensors)
            leaves.append(finding)
    return leaves


def _findings(root: Node) -> Iterator[Finding]:
    """Yield groups of layers that work together, single layers, and what is neither."""
    claimed_names: set[str] = set()
    for node in root.walk():
        finding = (encoder_layer(node) or group(node) or both_ways(node)) if node.children else None
        if finding is not None and not claimed_names.issuperset(finding.tensors):
            claimed_names.update(finding.tensors)
            yield finding
        rest = [entry.name for entry in node.tensors.values() if entry.name not in claimed_names]
        if not rest:
            continue
        finding = single(node)
        if finding is None:
            reason = "no layer has tensors of these names and shapes"
            finding = Finding(path=node.path, what="", certainty="possible", reason=reason, tensors=tuple(rest))
        claimed_names.update(finding.tensors)
        yield finding
        unknown = tuple(name for name in rest if name not in claimed_names)
        if unknown:
            reason = "beside a layer that was recognised, and no part of it"
            yield Finding(path=node.path, what="", certainty="possible", reason=reason, tensors=unknown)


def _of_family(
    fits: list[Fitting],
    findings: tuple[Finding, ...],
    known: Mapping[str, Known],
    assumptions: Assumptions,
    source: TensorSource,
) -> Detection:
    chosen, others = fits[0], [fit.family for fit in fits[1:]]
    how = f" {source.how}," if isinstance(source, Respelled) else ""
    reason = f"all tensors have the names and shapes of this family,{how} and none is left"
    if others:
        reason += f"; those of {', '.join(others)} are the same: model_type tells which it is"
    return Detection(
        architecture=chosen.family,
        certainty="possible" if others else "certain",
        reason=reason,
        findings=findings,
        known={name: one for name, one in known.items() if name in chosen.keys_read},
        assumed=_conventions(chosen, known, assumptions),
        missing=chosen.missing,
        family=True,
        values=chosen.config.values,
        source=source.turned(chosen.config.values) if isinstance(source, Respelled) else source,
    )


def _conventions(chosen: Fitting, known: Mapping[str, Known], assumptions: Assumptions) -> dict[str, str]:
    """What the network has by the family's convention, neither told nor shown, by the names that change it."""
    facts: dict[str, dict[str, None]] = {}
    for spec in chosen.blueprint.network.layers.values():
        fields = {
            name: getattr(spec, field) for field, names in _CHANGED_BY.items() for name in names if hasattr(spec, field)
        }
        if isinstance(spec, MultiHeadAttention):
            fields["rope_scaling"] = None if spec.rope is None else spec.rope.scaling
        if not isinstance(spec, Dense):
            for name, value in fields.items():
                facts.setdefault(name, {})[f"{value:g}" if isinstance(value, float) else str(value).lower()] = None
    known_names = {*known, *assumptions.spelled(), *chosen.missing}
    return {
        name: ", ".join(values)
        for name, values in facts.items()
        if name in chosen.keys_read and name not in known_names
    }


_CHANGED_BY: Mapping[str, tuple[str, ...]] = {
    "eps": ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps"),
    "activation": ("hidden_act", "hidden_activation", "activation_function"),
    "window": ("sliding_window",),
    "softcap": ("attn_logit_softcapping",),
}
"""Field of a layer → the values of configurations that it comes from."""


def _of_parts(
    root: Node, known: Mapping[str, Known], assumptions: Assumptions, near: str, source: TensorSource
) -> Detection:
    """What layers make, where no family has the tensors; `near` says which one nearly has."""
    leaves, findings = _leaves(root), tuple(_findings(root))
    nothing = Detection(architecture="", certainty="possible", reason="", findings=findings, known=known)
    if is_llama_cpp(source):
        reason = "its tensors have llama.cpp's names (blk.0.attn_q), and their rows the order of GGUF files"
        return replace(nothing, reason=reason, advice="open the .gguf file that they come from, which says the rest")
    blocks = [
        finding for finding in findings if finding.layer is None and finding.what.startswith(("attention", "mixture"))
    ]
    if blocks or near:
        has = f"it has {blocks[0].what}" if blocks else "it has an embedding"
        fits = near or f"its tensors are those of none of the {len(archs.families())} families"
        return replace(nothing, reason=f"{has}; {fits}", advice=_ADVICE)
    reason = "no architecture that is known here has these names and shapes"
    for attempt in (resnet, mobilenet, chained):
        try:
            parts: PlanParts | None = attempt(leaves, assumptions)
        except AssumedError:
            raise
        except VolumetricError as error:  # a layer or the network refused the sizes
            parts, reason = None, str(error)
        if parts is not None:
            break
    else:
        return replace(nothing, reason=reason)
    used = parts.tensors()
    why = {name: f.reason for f in findings if not f.what for name in f.tensors}
    # How many batches a norm has seen counts in training alone.
    names = [e.name for e in root.all_tensors() if not e.name.endswith("num_batches_tracked")]
    left = {name: why.get(name, "no place") for name in names if name not in used}
    left |= {name: text for name, text in parts.left_out.items() if name not in used}
    if len(left) > len(names) / 2:
        reason = f"{parts.architecture} would leave out {len(left)} of {len(names)} tensors"
        return replace(nothing, reason=reason, left_out=left)
    certainty: Certainty = "possible" if left else parts.certainty
    return replace(
        nothing,
        architecture=parts.architecture,
        certainty=certainty,
        reason=parts.reason + ("; some tensors have no place" if left else ""),
        known={},
        assumed=parts.assumed,
        missing=parts.missing,
        left_out=left,
        plan=parts.plan,
    )


_ADVICE = "a config.json beside the weights says what they are; docs/models.md lists the families that are built here"
