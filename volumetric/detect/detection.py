"""Recognise weights without a configuration: the architecture, its known values, and the missing ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from volumetric.base.errors import CheckpointError, VolumetricError
from volumetric.detect.assumptions import AssumedError, Assumptions
from volumetric.detect.config_values import KnownValue, known_values
from volumetric.detect.family_fit import FamilyFit, fitting_families, nearest_to_tensors
from volumetric.detect.findings import Certainty, Finding
from volumetric.detect.image_network import NetworkAttempt, NetworkPlan
from volumetric.detect.layer_chain import chain_layers
from volumetric.detect.layer_groups import group
from volumetric.detect.mobilenets import mobilenet
from volumetric.detect.module_tree import ModuleNode, build_tree
from volumetric.detect.recurrent_layers import bidirectional
from volumetric.detect.renamed_tensors import RenamedSource, alternative_sources, is_llama_cpp
from volumetric.detect.resnets import resnet
from volumetric.detect.single_layers import single_layer
from volumetric.detect.spellings import adapter_of
from volumetric.detect.state_spaces import state_space_values
from volumetric.detect.transformer_encoder import encoder_layer
from volumetric.dtypes import DType, Scheme
from volumetric.layers import Dense, MultiHeadAttention
from volumetric.loaders import archs
from volumetric.loaders.numbered_rows import join_numbered_rows
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network, Params


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """Result of the recognition of weights.

    Attributes
    ----------
    architecture : family or kind of network; empty if no network can be built
    certainty, reason : how certain `architecture` is, and why
    findings : layers in natural order of their names; if `what` is empty, the tensors were not recognised
    known : name of a value that names and shapes of tensors determine → value and reason
    assumed : name of a value that follows from convention only → value
    missing : name of a value that is required and unknown → why; users give it by this name
    left_out : tensor that has no place in the network → why
    advice : what to do if no network can be built; empty if there is no advice
    plan : the network, if it was built from single layers; None if there is none, or `missing` is not empty
    family : whether `architecture` is a model family, whose network `values` describe
    values : the configuration of that family
    source : the tensors, under the names of the family
    """

    architecture: str
    certainty: Certainty
    reason: str
    findings: tuple[Finding, ...]
    known: Mapping[str, KnownValue] = field(default_factory=dict)
    assumed: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    plan: NetworkPlan | None = None
    family: bool = False
    values: Mapping[str, object] = field(default_factory=dict)
    source: TensorSource | None = None
    advice: str = ""

    def mount(self, source: TensorSource, dtype: str | DType | Scheme | None, where: str) -> tuple[Network, Params]:
        """Return the network that was built from single layers, with lazy weights.

        Raises
        ------
        CheckpointError
            A value is missing (the message names all), or no network can be built.
        """
        if self.missing:
            names = ", ".join(f"{name} ({why})" for name, why in self.missing.items())
            first = next(iter(self.missing))
            raise CheckpointError(
                f"{where}: this looks like {self.architecture}, but names and shapes do not determine {names}",
                hint=(f'give guess={{"{first}": …}}, or --assume {first}=…; `volumetric inspect` shows what is known'),
            )
        if self.plan is not None:
            return self.plan.network, self.plan.mount(source, dtype, where)
        raise CheckpointError(
            f"{where}: no network can be built from these tensors: {self.reason}",
            hint=self.advice or "`volumetric inspect` shows how each tensor was recognised",
        )


def detect(source: TensorSource, assumptions: Assumptions, where: str) -> Detection:
    """Recognise a checkpoint by names and shapes; weights are read only if a few numbers are evidence.

    Raises
    ------
    SpecError
        An assumed value is never used.
    """
    adapter = adapter_of(source.entries)
    if adapter is not None:
        kind, advice = adapter
        reason = f"it is {kind}, which is added to the weights of a model, not a model"
        assumptions.known |= assumptions.values.keys()
        findings = tuple(_findings(build_tree(source.entries)))
        return Detection(architecture="", certainty="certain", reason=reason, findings=findings, advice=advice)
    near = ""
    for one in alternative_sources(source):
        root = build_tree(one.entries)
        known = known_values(root, one)
        known |= {name: fact for name, fact in state_space_values(one.entries).items() if name not in known}
        joined = join_numbered_rows(one)
        fits = fitting_families(joined, known, assumptions, where)
        if fits:
            detection = _detect_family(fits, tuple(_findings(build_tree(source.entries))), known, assumptions, one)
            break
        near = near or nearest_to_tensors(joined, known, assumptions, where) or ""
    else:
        root = build_tree(source.entries)
        known = known_values(root, source)
        detection = _detect_from_layers(root, known, assumptions, near, source)
    assumptions.check_used()
    return detection


def _leaves(root: ModuleNode) -> list[Finding]:
    """Each module that has tensors; the two cells of a bidirectional layer are one module."""
    leaves: list[Finding] = []
    claimed_names: set[str] = set()
    for node in root.modules():
        finding = encoder_layer(node) or (single_layer(node) if node.tensors else bidirectional(node))
        if finding is not None and not claimed_names.issuperset(finding.tensors):
            claimed_names.update(finding.tensors)
            leaves.append(finding)
    return leaves


def _findings(root: ModuleNode) -> Iterator[Finding]:
    """Yield groups of layers, single layers, and tensors that are neither."""
    claimed_names: set[str] = set()
    for node in root.modules():
        finding = (encoder_layer(node) or group(node) or bidirectional(node)) if node.children else None
        if finding is not None and not claimed_names.issuperset(finding.tensors):
            claimed_names.update(finding.tensors)
            yield finding
        rest = [entry.name for entry in node.tensors.values() if entry.name not in claimed_names]
        if not rest:
            continue
        finding = single_layer(node)
        if finding is None:
            reason = "no known layer has tensors with these names and shapes"
            finding = Finding(path=node.path, what="", certainty="possible", reason=reason, tensors=tuple(rest))
        claimed_names.update(finding.tensors)
        yield finding
        unknown = tuple(name for name in rest if name not in claimed_names)
        if unknown:
            reason = "in the same module as a recognised layer, but not part of it"
            yield Finding(path=node.path, what="", certainty="possible", reason=reason, tensors=unknown)


def _detect_family(
    fits: list[FamilyFit],
    findings: tuple[Finding, ...],
    known: Mapping[str, KnownValue],
    assumptions: Assumptions,
    source: TensorSource,
) -> Detection:
    chosen, others = fits[0], [fit.family for fit in fits[1:]]
    how = f" {source.how}," if isinstance(source, RenamedSource) else ""
    reason = f"all tensors have the names and shapes of this family,{how} and none is left over"
    if others:
        reason += f"; {', '.join(others)} have the same tensors: give model_type to choose"
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
        source=source.with_rotary_halves(chosen.config.values) if isinstance(source, RenamedSource) else source,
    )


def _conventions(chosen: FamilyFit, known: Mapping[str, KnownValue], assumptions: Assumptions) -> dict[str, str]:
    """Values that follow from the family's convention only, by the names that change them."""
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
    known_names = {*known, *assumptions.all_spellings(), *chosen.missing}
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
"""Field of a layer → the configuration values that set it."""


def _detect_from_layers(
    root: ModuleNode, known: Mapping[str, KnownValue], assumptions: Assumptions, near: str, source: TensorSource
) -> Detection:
    """Build a network from single layers, if the tensors fit no family; `near` describes the nearest family."""
    leaves, findings = _leaves(root), tuple(_findings(root))
    nothing = Detection(architecture="", certainty="possible", reason="", findings=findings, known=known)
    if is_llama_cpp(source):
        reason = "its tensors have llama.cpp's names (blk.0.attn_q) and the row order of GGUF files"
        return replace(nothing, reason=reason, advice="open the original .gguf file, which has the metadata")
    blocks = [
        finding for finding in findings if finding.layer is None and finding.what.startswith(("attention", "mixture"))
    ]
    if blocks or near:
        has = f"it has {blocks[0].what}" if blocks else "it has an embedding"
        fits = near or f"its tensors fit none of the {len(archs.families())} families"
        return replace(nothing, reason=f"{has}; {fits}", advice=_ADVICE)
    reason = "no known architecture has these names and shapes"
    for attempt in (resnet, mobilenet, chain_layers):
        try:
            parts: NetworkAttempt | None = attempt(leaves, assumptions)
        except AssumedError:
            raise
        except VolumetricError as error:  # a layer or the network rejected the sizes
            parts, reason = None, str(error)
        if parts is not None:
            break
    else:
        return replace(nothing, reason=reason)
    used = parts.tensors()
    why = {name: f.reason for f in findings if not f.what for name in f.tensors}
    # The number of batches that a norm has seen matters only in training.
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


_ADVICE = "add the model's config.json next to the weights; docs/models.md lists the supported families"
