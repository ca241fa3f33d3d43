"""LoRA adapters in PEFT's format: ``adapter_config.json`` and ``adapter_model.safetensors`` in a directory.

``base_model.model.<module>.lora_A.weight`` is A ``[rank, in]``, ``….lora_B.weight`` B ``[out, rank]``; the module's
weight is increased by ``alpha / rank · B A``, or with ``alpha / √rank`` if ``use_rslora``. Embeddings have
``lora_embedding_A`` ``[rank, tokens]`` and ``lora_embedding_B`` ``[width, rank]``, to which ``(B A)ᵀ`` is added: this
is always merged, not computed separately. Ranks are those of the tensors; ``alpha_pattern`` gives some modules another
alpha. Fully trained modules (``modules_to_save``) have full weights.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.atomic import write_atomic
from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.dtypes import decode
from volumetric.loaders.directory import new_directory
from volumetric.loaders.hf_export import blueprint_of
from volumetric.loaders.json_file import read_object
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.loaders.name_rules import NameRule
from volumetric.loaders.safetensors_write import TensorOut, array_out, write_safetensors
from volumetric.loaders.shards import open_safetensors
from volumetric.loaders.text_files import to_json
from volumetric.run.graph.low_rank import DOWN, UP

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
TORCH_WEIGHTS: Final = "adapter_model.bin"
_TENSOR = re.compile(r"base_model\.model\.(?P<module>.+?)\.lora_(?P<factor>[AB])(?:\.[^.]+)?\.weight")
_EMBEDDING = re.compile(r"base_model\.model\.(?P<module>.+?)\.lora_embedding_(?P<factor>[AB])(?:\.[^.]+)?")
_SAVED = re.compile(
    r"base_model\.model\.(?P<module>.+?)(?:\.modules_to_save(?:\.[^.]+)?|\.base_layer)?\.(?P<name>weight|bias)"
)
_REFUSED: Final[Mapping[str, str]] = {
    "use_dora": "DoRA, which scales the columns of the sum",
    "use_qalora": "QA-LoRA, which pools its inputs",
    "lora_bias": "a bias on B",
    "layer_replication": "repeated layers",
    "target_parameters": "factors of parameters that are not modules",
    "trainable_token_indices": "training of single tokens",
    "alora_invocation_tokens": "activated LoRA",
    "arrow_config": "Arrow routing",
    "kasa_config": "KaSA",
    "monteclora_config": "MonteCLoRA",
    "use_bdlora": "block-diagonal LoRA",
    "velora_config": "VeLoRA",
}
"""Settings that change the computation → description for messages."""
_CHANGES_BASE: Final = ("pissa", "olora", "corda", "lora_ga", "loftq")
"""Initialisations that change the base model's weights; their adapters do not fit the original weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraAdapter:
    """A LoRA adapter that fits a model.

    Attributes
    ----------
    name : name of its directory
    path : the directory
    factors : key of a weight → A ``[rank, in]`` and B ``[out, rank]``, float32, with the scaling in B
    replaced : key → replacement of the parameter
    """

    name: str
    path: Path
    factors: Mapping[str, tuple[Array, Array]]
    replaced: Mapping[str, Array] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        """The largest rank."""
        return max((len(down) for down, _ in self.factors.values()), default=0)


def read_adapter(path: str | Path, model: LoadedModel) -> LoraAdapter:
    """Read an adapter for a model.

    Raises
    ------
    CheckpointError
        The directory has no adapter, or it does not fit the model; the message has the names.
    UnsupportedError
        It is not a LoRA, or an unsupported variant; or the model belongs to no family.
    """
    home = Path(path)
    if not (home / CONFIG).is_file():
        raise CheckpointError(f"{home} has no {CONFIG}", hint="give the directory of an adapter saved by PEFT")
    if not file_of(home).is_file():
        raise CheckpointError(f"{home} has neither {WEIGHTS} nor {TORCH_WEIGHTS}", hint="download the adapter again")
    config = read_object(home / CONFIG)
    _refuse_variants(config, home)
    file = open_safetensors(file_of(home))
    blueprint, rules = blueprint_of(model), dict[str, list[NameRule]]()
    for rule in blueprint.rules:
        rules.setdefault(rule.source, []).append(rule)
    pairs: dict[str, dict[str, Array]] = {}
    replaced: dict[str, Array] = {}
    for name in file.entries:
        values = np.ascontiguousarray(decode(file.packed(name)), np.float32)
        match = _TENSOR.fullmatch(name)
        if match is not None:
            pairs.setdefault(match["module"], {})[match["factor"]] = values
            continue
        match = _EMBEDDING.fullmatch(name)
        if match is not None:  # a row for each token: A and B swap roles compared to a product
            other = {"A": "B", "B": "A"}[match["factor"]]
            pairs.setdefault(match["module"], {})[other] = np.ascontiguousarray(values.T)
            continue
        saved = _SAVED.fullmatch(name)
        source = None if saved is None else f"{saved['module']}.{saved['name']}"
        if saved is None or source not in rules or "lora_" in name:
            raise CheckpointError(f"{file_of(home)}: tensor {name!r} is not part of a LoRA adapter of this model")
        own = {rule.key: _part(values.T if rule.transposed else values, rule) for rule in rules[source]}
        # PEFT saves embeddings with their adapters, since tokens may have been added; usually they are unchanged.
        replaced |= {
            key: each
            for key, each in own.items()
            if ".base_layer." not in name or _differs_from_model(model, key, each)
        }
    if not pairs:
        raise CheckpointError(f"{file_of(home)} has no LoRA factors", hint="expected names that end in lora_A.weight")
    shapes = {key: spec.shape for key, spec in model.network.param_specs().items()}
    factors: dict[str, tuple[Array, Array]] = {}
    for module, pair in pairs.items():
        _refuse_shared(f"{module}.weight", blueprint.tied, home)
        factors |= _factors(module, pair, rules.get(f"{module}.weight"), config, home)
    found_shapes = {key: (len(up), down.shape[1]) for key, (down, up) in factors.items()}
    for key, shape in [*found_shapes.items(), *((key, value.shape) for key, value in replaced.items())]:
        if shape != shapes[key]:
            raise CheckpointError(
                f"{file_of(home)}: the update of {key} has shape {list(shape)}, expected {list(shapes[key])}",
                hint="the adapter is for another model",
            )
    return LoraAdapter(name=home.name, path=home, factors=factors, replaced=replaced)


def file_of(home: Path) -> Path:
    """Return the file with the tensors of an adapter."""
    return home / (WEIGHTS if (home / WEIGHTS).is_file() or not (home / TORCH_WEIGHTS).is_file() else TORCH_WEIGHTS)


def _refuse_variants(config: Mapping[str, Any], home: Path) -> None:
    kind = str(config.get("peft_type", "an adapter without a type"))[:40]
    if kind.upper() != "LORA":
        raise UnsupportedError(f"{home / CONFIG}: {kind} is not supported", hint="LORA is")
    for name, what in _REFUSED.items():
        if config.get(name):
            raise UnsupportedError(
                f"{home / CONFIG}: {name}: {what}, is not supported", hint="merge it with PEFT first"
            )
    if config.get("bias", "none") != "none":
        raise UnsupportedError(f"{home / CONFIG}: trained biases (bias={config['bias']!r:.20}) are not supported")
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_CHANGES_BASE):
        raise UnsupportedError(
            f"{home / CONFIG}: init_lora_weights={start[:20]!r} changes the base model's weights",
            hint="save it with path_initial_model_for_weight_conversion, which converts it to a plain LoRA",
        )


def _differs_from_model(model: LoadedModel, key: str, values: Array) -> bool:
    """Whether a parameter has other values, or another shape, in the model."""
    store = model.params[key]
    return store.shape != values.shape or not np.array_equal(store.values(), values)


def _refuse_shared(weight: str, tied: Mapping[str, str], home: Path) -> None:
    """Raise `UnsupportedError` for an adapter of a tied embedding and head: it applies to only one of the two."""
    if weight in tied or weight in tied.values():
        raise UnsupportedError(
            f"{file_of(home)}: an adapter of {weight.removesuffix('.weight')!r} is not supported: embedding and "
            "head are tied, but the adapter is for only one of them",
            hint="merge it with PEFT into a model whose tie_word_embeddings is false",
        )


def _factors(
    module: str, pair: Mapping[str, Array], rules: list[NameRule] | None, config: Mapping[str, Any], home: Path
) -> dict[str, tuple[Array, Array]]:
    """Factors by key, with the scaling in B; a fused tensor's B is split into the rows of its parts."""
    if rules is None:
        raise CheckpointError(
            f"{file_of(home)}: the model has no module {module!r}", hint="the adapter is for another model"
        )
    if pair.keys() != {"A", "B"} or any(x.ndim != 2 for x in pair.values()) or pair["A"].shape[0] != pair["B"].shape[1]:
        raise CheckpointError(f"{file_of(home)}: the factors of {module!r} do not match")
    rank = len(pair["A"])
    alpha = _of_pattern(config.get("alpha_pattern"), module, config.get("lora_alpha", 8))
    if type(alpha) not in (int, float) or not math.isfinite(alpha) or not rank:
        raise CheckpointError(f"{home / CONFIG}: lora_alpha of {module!r} is {str(alpha)[:40]!r}, expected a number")
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    up = pair["B"] * np.float32(scale)
    return {rule.key: (pair["A"], _part(up, rule)) for rule in rules}


def _part(values: Array, rule: NameRule) -> Array:
    """Rows of a fused tensor that a rule uses; all rows if it is not fused."""
    if rule.part is None:
        return values
    if rule.part.stop > len(values):
        raise CheckpointError(f"a factor for {rule.source} has only {len(values)} rows")
    return values[rule.part.rows(len(values))]


def _of_pattern(patterns: object, module: str, default: Any) -> Any:
    """Value of the first pattern that matches the end of a module's name, as in PEFT."""
    for pattern, value in patterns.items() if isinstance(patterns, Mapping) else ():
        try:
            if re.match(rf"(.*\.)?({pattern})$", module):
                return value
        except re.error:
            continue
    return default


def save_adapter(
    directory: str | Path, model: LoadedModel, factors: Mapping[str, Array], *, rank: int, alpha: float
) -> None:
    """Write ``adapter_config.json`` and ``adapter_model.safetensors``; the directory is created atomically.

    Parameters
    ----------
    model : the base model, of a Hugging Face family
    factors : ``<key of a weight>:a`` ``[rank, in]`` and ``…:b`` ``[out, rank]``, named as in `train.LowRank`
    rank, alpha : for all of them; ``alpha / rank · B A`` is added

    Raises
    ------
    UnsupportedError
        The model belongs to no family, or a weight is a part of a fused tensor, for which PEFT has no factors.
    CheckpointError
        The directory cannot be written.
    """
    rules = {rule.key: rule for rule in blueprint_of(model).rules}
    tensors: dict[str, TensorOut] = {}
    modules: set[str] = set()
    for key, values in factors.items():
        rule = rules.get(key.removesuffix(DOWN).removesuffix(UP))
        if rule is None or rule.part is not None or not key.endswith((DOWN, UP)):
            raise UnsupportedError(
                f"{key} cannot be stored in an adapter of {model.name}",
                hint="PEFT has no LoRA for parts of fused projections",
            )
        module = rule.source.removesuffix(".weight")
        modules.add(module)
        name = f"base_model.model.{module}.lora_{'A' if key.endswith(DOWN) else 'B'}.weight"
        tensors[name] = array_out(np.ascontiguousarray(values, np.float32))
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": model.name,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
        "target_modules": "|".join(re.escape(module) for module in sorted(modules)),
    }
    with new_directory(directory, CONFIG) as home:
        write_atomic(home / CONFIG, to_json(config))
        write_safetensors(home / WEIGHTS, tensors, {"format": "pt"})
