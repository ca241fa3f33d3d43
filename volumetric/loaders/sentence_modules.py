"""How texts become embeddings: modules.json and related files of sentence-transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, cast, get_args

from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.graph.numeric.activations import Activation
from volumetric.layers import Dense
from volumetric.loaders.encoder_layers import labels, trunk_of
from volumetric.loaders.hf_config import MAX_SIZE, Config
from volumetric.loaders.json_file import read_json, read_object
from volumetric.loaders.mount import mount
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.network_builder import CheckpointNetworkBuilder
from volumetric.loaders.shards import open_safetensors
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network, Params
from volumetric.run.text_pooling import Pooling

POOLINGS: Final[tuple[Pooling, ...]] = get_args(Pooling)
MODULES: Final = "modules.json"
PROMPTS: Final = "config_sentence_transformers.json"
_FLAGS: Final[Mapping[str, Pooling]] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Older spelling, in the order in which several poolings are concatenated."""
_LENGTHS: Final = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_ACTIVATIONS: Final[Mapping[str, Activation]] = {
    "Identity": "linear",
    "Tanh": "tanh",
    "ReLU": "relu",
    "GELU": "gelu",
    "SiLU": "silu",
    "Sigmoid": "sigmoid",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledHead:
    """A network that reads pooled hidden states, ``[n, d]``, with its weights.

    `pooling` is the default pooling for it.
    """

    network: Network
    params: Params
    pooling: Pooling = "cls"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceEncoding:
    """Settings in the files of an embedding model.

    Attributes
    ----------
    pooling : one or more poolings, whose results are concatenated
    normalise : whether to scale embeddings to length 1
    max_length : maximum tokens of a text, including special ones; None: the model's context
    lower_case : whether texts are lowercased before tokenisation
    include_prompt : whether tokens of a prompt are pooled
    prompts : name → text that is prepended to a text
    default_prompt : name of the prompt that is used by default
    dense : layers after the pooling, or None
    """

    pooling: tuple[Pooling, ...] = ("mean",)
    normalise: bool = False
    max_length: int | None = None
    lower_case: bool = False
    include_prompt: bool = True
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    dense: PooledHead | None = None


def read_sentences(directory: Path) -> SentenceEncoding | None:
    """Read modules.json and the files to which it refers; None if it does not exist.

    Raises
    ------
    CheckpointError : a file is damaged, missing, or outside the directory
    UnsupportedError : a module of an unsupported kind, or in an unsupported order
    """
    path = directory / MODULES
    if not path.is_file():
        return None
    modules = _modules(path)
    kinds = [kind for kind, _ in modules]
    shape = [kind for i, kind in enumerate(kinds) if kind != "Dense" or kinds[i - 1] != "Dense"]
    if shape not in (
        ["Transformer", "Pooling", *dense, *normalise] for dense in ([], ["Dense"]) for normalise in ([], ["Normalize"])
    ):
        raise UnsupportedError(
            f"{path}: modules {', '.join(kinds)} are not supported",
            hint="supported: Transformer, Pooling, then optional Dense layers and Normalize",
        )
    limits = next(
        (
            directory / name
            for name in (f"sentence_{kind}_config.json" for kind in _LENGTHS)
            if (directory / name).is_file()
        ),
        None,
    )
    limit = _config(limits) if limits else Config({}, str(path))
    pooling = _config(modules[1][1] / "config.json")
    prompt_config = _config(directory / PROMPTS) if (directory / PROMPTS).is_file() else Config({}, str(path))
    prompts = prompt_config.section("prompts")
    names = {} if prompts is None else {name: text for name, text in prompts.values.items() if isinstance(text, str)}
    default = prompt_config.values.get("default_prompt_name")
    if default is not None and (not isinstance(default, str) or default not in names):
        raise CheckpointError(
            f"{prompt_config.where}: default_prompt_name {str(default)[:60]!r} is not one of the prompts"
        )
    return SentenceEncoding(
        pooling=_pooling_modes(pooling),
        normalise="Normalize" in kinds,
        max_length=limit.integer("max_seq_length") if limit.has("max_seq_length") else None,
        lower_case=limit.flag("do_lower_case", False),
        include_prompt=pooling.flag("include_prompt", True),
        prompts=names,
        default_prompt=default,
        dense=_dense([home for kind, home in modules if kind == "Dense"]),
    )


def sentence_files(directory: Path) -> list[Path]:
    """Files that `read_sentences` reads and that exist."""
    path = directory / MODULES
    if not path.is_file():
        return []
    paths = [path, directory / PROMPTS, *(directory / f"sentence_{kind}_config.json" for kind in _LENGTHS)]
    for _, home in _modules(path)[1:]:
        paths += [home / "config.json", home / "model.safetensors"]
    return [one for one in paths if one.is_file()]


def _modules(path: Path) -> list[tuple[str, Path]]:
    """Kind and directory of each module, in order."""
    listed = read_json(path)
    if not isinstance(listed, list) or not listed or len(listed) > 16:
        raise CheckpointError(f"{path} is not a list of 1 to 16 modules")
    modules = []
    for number, module in enumerate(listed):
        kind = module.get("type") if isinstance(module, dict) else None
        where = module.get("path") if isinstance(module, dict) else None
        if not isinstance(kind, str) or not isinstance(where, str):
            raise CheckpointError(f"{path}: module {number} lacks a type or a path")
        parts = PurePosixPath(where).parts
        if where.startswith("/") or ".." in parts or "\\" in where or "\0" in where or ":" in where:
            raise CheckpointError(f"{path}: module {number} is outside the directory: {where[:80]!r}")
        modules.append((kind.rpartition(".")[2], path.parent.joinpath(*parts)))
    if modules[0][1] != path.parent:
        raise UnsupportedError(
            f"{path}: the transformer is in the directory {modules[0][1].name}, which is not supported",
            hint="save it with a current sentence-transformers",
        )
    return modules


def _config(path: Path) -> Config:
    if not path.is_file():
        raise CheckpointError(f"{path} is missing", hint=f"{MODULES} names its directory")
    return Config(read_object(path), str(path))


def _pooling_modes(config: Config) -> tuple[Pooling, ...]:
    pooling_mode = config.values.get("pooling_mode")
    if pooling_mode is None:
        return tuple(mode for flag, mode in _FLAGS.items() if config.flag(flag, False)) or ("mean",)
    modes = [pooling_mode] if isinstance(pooling_mode, str) else pooling_mode
    if not isinstance(modes, list) or not modes or any(mode not in POOLINGS for mode in modes):
        raise UnsupportedError(
            f"{config.where}: pooling_mode {str(pooling_mode)[:60]!r} is not supported",
            hint="use one of " + ", ".join(POOLINGS),
        )
    return tuple(cast("list[Pooling]", modes))


def _dense(homes: list[Path]) -> PooledHead | None:
    """Dense modules as one network on pooled states."""
    if not homes:
        return None
    chain, weights, width = CheckpointNetworkBuilder(), {}, 0
    for i, home in enumerate(homes):
        config = _config(home / "config.json")
        name = str(config.values.get("activation_function") or "torch.nn.modules.activation.Tanh").rpartition(".")[2]
        if name not in _ACTIVATIONS:
            raise UnsupportedError(
                f"{config.where}: activation_function {name[:60]!r} is not supported",
                hint="use one of " + ", ".join(_ACTIVATIONS),
            )
        width = width or config.integer("in_features")
        spec = Dense(
            in_features=config.integer("in_features"),
            out_features=config.integer("out_features", high=MAX_SIZE),
            bias=config.flag("bias", True),
            activation=_ACTIVATIONS[name],
        )
        one = CheckpointNetworkBuilder()
        one.add(spec, "linear")
        chain.add(spec, str(i))
        weights[i] = mount(one.blueprint(context_length=0, features=spec.in_features), open_safetensors(_weights(home)))
    network = chain.blueprint(context_length=0, features=width).network
    stores = {
        f"0.0.0.{i}/{key.partition('/')[2]}": store for i, params in weights.items() for key, store in params.items()
    }
    return PooledHead(network=network, params=Params(stores))


def _weights(home: Path) -> Path:
    names = ("model.safetensors", "pytorch_model.bin")
    path = next((home / name for name in names if (home / name).is_file()), None)
    if path is None:
        raise CheckpointError(f"{home} has neither {names[0]} nor {names[1]}", hint="download the model again")
    return path


def read_head(blueprint: ModelBlueprint, source: TensorSource) -> PooledHead | None:
    """Return the text classification network, with its stored weights."""
    if blueprint.pooled is None:
        return None
    params = mount(blueprint.pooled, source)
    return PooledHead(network=blueprint.pooled.network, params=params, pooling=blueprint.pooling)


def lacks_head(blueprint: ModelBlueprint, config: Config, source: TensorSource) -> bool:
    """Whether a checkpoint was saved without the head of its family."""
    if blueprint.hidden is None:
        return False
    trunk_keys = trunk_of(blueprint).network.param_specs().keys()
    own = [rule.source for rule in blueprint.rules if rule.key not in trunk_keys]
    architectures = config.values.get("architectures")
    plain = isinstance(architectures, list) and all(str(name).endswith("Model") for name in architectures)
    encodes = any(spec.two_way for spec in blueprint.network.layers.values())
    return (encodes or plain) and bool(own) and not any(name in source.entries for name in own)


def read_labels(config: Config) -> tuple[str, ...]:
    """Names of the classes of a head, in the order of its outputs."""
    count = labels(config)
    named = config.section("id2label")
    names = {} if named is None else {str(key): str(name) for key, name in named.values.items()}
    return tuple(names.get(str(i), f"LABEL_{i}") for i in range(count))


_KIND: Final = "sentence_transformers.models."


def new_sentence_files(sentences: SentenceEncoding, width: int, max_length: int) -> dict[str, Any]:
    """Return name → JSON value of the files for `read_sentences` and sentence-transformers.

    Parameters
    ----------
    width : width of a hidden state
    max_length : maximum tokens of a text, unless `sentences` has it
    """
    modules = {"": "Transformer", "1_Pooling": "Pooling"}
    if sentences.normalise:
        modules["2_Normalize"] = "Normalize"
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": _KIND + kind} for i, (path, kind) in enumerate(modules.items())
    ]
    names = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}
    pooling: dict[str, Any] = {"word_embedding_dimension": width, "include_prompt": sentences.include_prompt}
    pooling |= {f"pooling_mode_{name}": mode in sentences.pooling for mode, name in names.items()}
    return {
        MODULES: listed,
        "1_Pooling/config.json": pooling,
        "sentence_bert_config.json": {
            "max_seq_length": sentences.max_length or max_length,
            "do_lower_case": sentences.lower_case,
        },
        PROMPTS: {"prompts": dict(sentences.prompts), "default_prompt_name": sentences.default_prompt},
    }
