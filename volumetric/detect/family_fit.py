"""Model families by trial: a family fits if the network that it builds from the known values has these tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from volumetric.base.errors import CheckpointError, SpecError, VolumetricError
from volumetric.base.hints import suggestion
from volumetric.detect import spellings
from volumetric.detect.assumptions import SYNONYMS, Assumptions
from volumetric.detect.config_values import KnownValue
from volumetric.detect.state_spaces import GROUPED, complete_groups
from volumetric.layers import LayerSpec, MultiHeadAttention
from volumetric.layers.gate import Gate
from volumetric.loaders import archs
from volumetric.loaders.encoder_layers import trunk_of
from volumetric.loaders.hf_config import Config
from volumetric.loaders.name_rules import ModelBlueprint, fit_rules, rules_as_spelled
from volumetric.loaders.nearest_family import template
from volumetric.loaders.sentence_modules import lacks_head
from volumetric.loaders.tensor_source import TensorSource
from volumetric.loaders.tied_heads import build_for

PLAIN_FIRST: Final = ("llama", "bert")
"""Families whose tensors equal those of a plainer family, but which compute more: a window, NoPE layers, factors."""
_NOT_BY_LAYER: Final = ("mlp_multipliers", "ssm_multipliers", "time_step_limit", "architectures")
"""Configuration lists that do not have a value for each layer."""
_ROTATED: Final = ("partial_rotary_factor", "rotary_pct")
"""Names of the rotated part of a head, which `rope_parameters` may contain too."""
_SCALINGS: Final = ("rope_scaling", "rope_parameters")
_PLAIN: Final[Mapping[str, Any]] = {"rope_scaling": {"rope_type": "default"}, "sliding_window": None}
"""Values that mean "none" explicitly: some families have a default if the value is absent."""
_ROTARY_BASES: Final = ("rope_theta", "global_rope_theta", "rotary_emb_base", "rope_parameters", "rope_scaling")
CONDITIONAL: Final = frozenset(
    {"layer_types", "sliding_window", "use_sliding_window", "max_window_layers", "rope_theta", "rope_parameters"}
    | {"rope_scaling", "partial_rotary_factor", "original_max_position_embeddings", "num_experts_per_tok"}
    | {"architectures", "id2label", "num_labels"}
)
"""Values that families read only if another value enables them."""
_WHAT_ROWS_TELL: Final = ("rows of queries", "rows of keys")


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyFit:
    """A family that fits these tensors.

    Attributes
    ----------
    config : the values from which it was built
    keys_read : names of all values that it reads
    missing : name of a value that is required and unknown → why
    """

    family: str
    config: Config
    blueprint: ModelBlueprint
    keys_read: frozenset[str]
    missing: Mapping[str, str]


def fitting_families(
    source: TensorSource, known: Mapping[str, KnownValue], assumptions: Assumptions, where: str
) -> list[FamilyFit]:
    """Return the families that have exactly these tensors, the plainest first."""
    if "hidden_size" not in known:
        return []
    model_type = assumptions.find("model_type")
    if model_type is not None and Config({"model_type": str(model_type)}, where).family not in archs.families():
        raise SpecError(f"guess: there is no family {model_type!r}", hint=suggestion(model_type, archs.families()))
    names = archs.families() if model_type is None else (str(model_type),)
    fittings = [one for name in names if (one := _try_family(name, source, known, assumptions, where)) is not None]
    order = {name: i for i, name in enumerate(PLAIN_FIRST)}
    return sorted(fittings, key=lambda one: (order.get(one.family, len(order)), one.family))


def _try_family(
    family: str, source: TensorSource, known: Mapping[str, KnownValue], assumptions: Assumptions, where: str
) -> FamilyFit | None:
    values, unknown = values_for(family, known, assumptions)
    # Until the heads are known, a part of a head may have an odd number of elements: then rotate the whole head.
    for stand_in in ({}, dict.fromkeys(_ROTATED, 1.0)):
        keys_read: set[str] = set()
        config = Config(stand_in | values, where, len(source.entries), keys_read=keys_read)
        blueprint = _blueprint_that_fits(config, source)
        if blueprint is not None:
            break
    else:
        return None
    assumptions.known |= keys_read | {"model_type"} | CONDITIONAL
    return FamilyFit(
        family=family,
        config=config,
        blueprint=blueprint,
        keys_read=frozenset(keys_read),
        missing=unknown | _missing(family, blueprint, values, keys_read),
    )


def values_for(
    family: str, known: Mapping[str, KnownValue], assumptions: Assumptions
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the configuration of a family, with placeholders for unknown values; and these values, with why."""
    values = _in_all_spellings(
        {name: one.value for name, one in known.items() if name not in (*_WHAT_ROWS_TELL, GROUPED)}
    )
    values |= assumptions.all_spellings() | {"model_type": family}
    unknown = _complete_values(values, known) | complete_groups(values, known)
    for name, plain in _PLAIN.items():
        if name in values and values[name] in (None, False, "none", "default"):
            values[name] = plain
    return values, unknown


def _blueprint_that_fits(config: Config, source: TensorSource) -> ModelBlueprint | None:
    """Build the blueprint of a family from a configuration; None unless it has exactly these tensors."""
    try:
        one = blueprint_of(
            config.with_values(num_hidden_layers=1, n_layer=1, **_per_layer_lists(config.values)), source
        )
        if any(rule.source not in source.entries for rule in rules_as_spelled(source, one)):
            return None
        blueprint = blueprint_of(config, source)
        fit_rules(blueprint, source)
    except (VolumetricError, ArithmeticError):
        return None
    return blueprint


def blueprint_of(config: Config, source: TensorSource) -> ModelBlueprint:
    """Build the blueprint of a family for these tensors, which may lack the family's head."""
    _, blueprint = build_for(config, source)
    return trunk_of(blueprint) if lacks_head(blueprint, config, source) else blueprint


def _per_layer_lists(values: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce lists with a value for each layer to one layer."""
    layers = values.get("num_hidden_layers")
    lists = {name: value for name, value in values.items() if isinstance(value, list) and name not in _NOT_BY_LAYER}
    return {name: value[:1] for name, value in lists.items() if len(value) == layers}


def _in_all_spellings(values: Mapping[str, Any]) -> dict[str, Any]:
    every = dict(values)
    for first, others in SYNONYMS.items():
        if first in every:
            every |= dict.fromkeys(others, every[first])
    return every


def _complete_values(values: dict[str, Any], known: Mapping[str, KnownValue]) -> dict[str, str]:
    """Fill in values that follow from the rows of projections, and placeholders for others; return the placeholders."""
    if "rows of queries" not in known:
        return {}
    queries, keys = (known[name].value for name in _WHAT_ROWS_TELL)
    groups = queries // keys
    heads, shared, width = (values.get(n) for n in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    if not heads and width and type(width) is int and width > 0:
        heads = queries // width
    if not heads and shared and type(shared) is int:
        heads = shared * groups
    if not heads or type(heads) is not int:
        values |= _in_all_spellings({"num_attention_heads": groups, "num_key_value_heads": 1, "head_dim": keys})
        return {"num_attention_heads": f"{queries} query rows fit any number of heads"}
    values |= _in_all_spellings({"num_attention_heads": heads, "num_key_value_heads": shared or heads // groups})
    values.setdefault("head_dim", queries // heads)
    return {}


def _missing(family: str, blueprint: ModelBlueprint, values: Mapping[str, Any], keys_read: set[str]) -> dict[str, str]:
    """Values that no shape determines and that change the result."""
    missing: dict[str, str] = {}
    specs = [leaf for spec in blueprint.network.layers.values() for leaf in _leaves(spec)]
    attentions = [spec for spec in specs if isinstance(spec, MultiHeadAttention)]
    bases = [name for name in _ROTARY_BASES if name in keys_read]
    turns = any(spec.rope is not None for spec in attentions)
    if turns and not any(name in values for name in bases if name != "rope_scaling"):
        missing[bases[0] if bases else "rope_theta"] = "no tensor shows the base of the rotary embedding"
    if turns and keys_read.intersection(_SCALINGS) and not any(name in values for name in _SCALINGS):
        missing["rope_scaling"] = "no tensor shows the scaling of RoPE for long texts; null means none"
    if "sliding_window" in keys_read and "sliding_window" not in values:
        missing["sliding_window"] = "no tensor shows the attention window; null means full attention"
    elif "sliding_window" in keys_read and values["sliding_window"] is None and any(spec.window for spec in attentions):
        missing["sliding_window"] = "this family has a window"
    elif values.get("sliding_window") is not None and "layer_types" not in values:
        kinds = [
            name for name in ("use_sliding_window", "max_window_layers") if name in keys_read and name not in values
        ]
        missing |= dict.fromkeys(kinds, "it selects the layers that have the window")
    if any(isinstance(spec, Gate) for spec in specs) and "num_experts_per_tok" not in values:
        missing["num_experts_per_tok"] = "no tensor shows how many experts a token uses"
    known_names = {*values, *(_ROTATED if values.get("rope_parameters") is not None else ())}
    unseen: tuple[str, ...] = getattr(archs.family_module(family), "UNSEEN", ())
    other = [name for name in unseen if name not in known_names and name not in missing]
    return missing | dict.fromkeys(other, "it differs between models of this family, and no tensor shows it")


def _leaves(spec: LayerSpec) -> list[LayerSpec]:
    children = spec.children().values()
    gate = getattr(spec, "gate", None)
    own = [gate] if isinstance(gate, LayerSpec) else []
    return [spec, *own, *(leaf for each in children for leaf in _leaves(each))]


_ALIKE: Final = 0.6
"""Fraction of the names that must match for a family to be reported as near."""
_LAYERS: Final = 4
"""Number of layers that are compared; more layers repeat the same names."""


def nearest_to_tensors(
    source: TensorSource, known: Mapping[str, KnownValue], assumptions: Assumptions, where: str
) -> str | None:
    """Return a text with the nearest family and the differences of its tensors; None if no family is near.

    Parameters
    ----------
    known : values that names and shapes of tensors determine
    """
    if "hidden_size" not in known:
        return None
    layers = 1 + max((int(m[1]) for name in source.entries if (m := spellings.STACK.match(name))), default=0)
    more = {} if "num_hidden_layers" in known else {"num_hidden_layers": layers, "n_layer": layers}
    here = {template(name) for name in source.entries}
    model_type = assumptions.find("model_type")
    best: tuple[float, str] = (0.0, "")
    for family in [model_type] if isinstance(model_type, str) else (*PLAIN_FIRST, *archs.families()):
        values, _ = values_for(family, known, assumptions)
        few = {"num_hidden_layers": min(layers, _LAYERS), "n_layer": min(layers, _LAYERS)}
        blueprint = _try_blueprint({**values, **few}, source, where, assumptions)
        if blueprint is None:
            continue
        there = {template(rule.source) for rule in rules_as_spelled(source, blueprint)}
        alike = len(here & there) / max(len(here | there), 1)
        best = max(
            best, (round(alike, 3), family), key=lambda one: one[0]
        )  # of equal ones the plainest, which is first
    alike, family = best
    if alike < (_ALIKE if model_type is None else 0.0) or not family:
        return None
    values, _ = values_for(family, known, assumptions)
    return f"nearest is {family}, but for {_difference({**values, **more}, source, where, assumptions)}"


def _difference(values: Mapping[str, Any], source: TensorSource, where: str, assumptions: Assumptions) -> str:
    blueprint = _try_blueprint(values, source, where, assumptions)
    if blueprint is None:
        return "a number of layers that it does not support"
    try:
        fit_rules(blueprint, source)
    except CheckpointError as error:
        return str(error).partition(": ")[2]
    return "values that its configuration does not support"


def _try_blueprint(
    values: Mapping[str, Any], source: TensorSource, where: str, assumptions: Assumptions
) -> ModelBlueprint | None:
    """Build the blueprint of a family from values, without checking the tensors."""
    keys_read: set[str] = set()
    try:
        blueprint = blueprint_of(Config(values, where, keys_read=keys_read), source)
    except (VolumetricError, ArithmeticError):
        return None
    assumptions.known |= keys_read | CONDITIONAL
    return blueprint
