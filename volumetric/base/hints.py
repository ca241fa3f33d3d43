"""Parts of error messages: shortened values, and known names spelled like an unknown one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from os import PathLike
from pathlib import Path
from stat import filemode
from typing import Final

_LONGEST = 70
"""Maximum characters of a value in a message."""
_MOST = 24
"""Maximum number of names listed."""
_BESIDE = 1_000
"""Maximum number of directory entries compared with a missing name."""

CALLED: Final[Mapping[str, str]] = {
    "optimizer": "optimiser",
    "optim": "optimiser",
    "criterion": "loss",
    "loss_fn": "loss",
    "loss_function": "loss",
    "learning_rate": "lr",
    "learning_rate_init": "lr",
    "rate": "lr",
    "eta": "lr",
    "step_size": "lr",
    "decay": "weight_decay",
    "scheduler": "schedule",
    "lr_scheduler": "schedule",
    "num_epochs": "epochs",
    "n_epochs": "epochs",
    "max_epochs": "epochs",
    "nb_epoch": "epochs",
    "total_steps": "max_steps",
    "num_steps": "max_steps",
    "early_stopping": "patience",
    "grad_clip": "clip",
    "gradient_clip": "clip",
    "gradient_clip_val": "clip",
    "global_clipnorm": "clip",
    "max_grad_norm": "clip",
    "clip_grad_norm": "clip",
    "gradient_accumulation_steps": "accumulate",
    "accumulate_grad_batches": "accumulate",
    "accum_steps": "accumulate",
    "precision": "dtype",
    "random_state": "seed",
    "random_seed": "seed",
    "rng_seed": "seed",
    "batch": "batch_size",
    "train_batch_size": "batch_size",
    "bs": "batch_size",
    "val_split": "validation",
    "validation_split": "validation",
    "validation_data": "validation",
    "val_data": "validation",
    "validation_fraction": "validation",
    "verbose": "progress",
    "enable_progress_bar": "progress",
    "progress_bar": "progress",
    "accelerator": "device",
    "model": "network",
    "X": "x",
    "inputs": "x",
    "features": "x",
    "targets": "y",
    "labels": "y",
    "target": "y",
    "callbacks": "reporters",
    "units": "out_features",
    "pop_size": "population",
    "population_size": "population",
    "popsize": "population",
    "n_generations": "generations",
    "num_generations": "generations",
    "max_generations": "generations",
    "n": "generations",
    "target_fitness": "fitness_threshold",
    "goal_fitness": "fitness_threshold",
    "fitness_function": "fitness",
    "fitness_fn": "fitness",
    "eval_genomes": "fitness",
    "problem": "fitness",
    "num_inputs": "inputs",
    "n_inputs": "inputs",
    "input_size": "inputs",
    "num_outputs": "outputs",
    "n_outputs": "outputs",
    "output_size": "outputs",
    "num_hidden": "hidden",
    "hidden_layers": "hidden",
    "hidden_sizes": "hidden",
    "layers_sizes": "hidden",
    "layers": "hidden",
    "compatibility_threshold": "threshold",
    "env": "id",
    "env_id": "id",
    "neighbors": "neighbours",
    "act": "activation",
    "act_layer": "activation",
    "nonlinearity": "activation",
    "swish": "silu",
    "identity": "linear",
    "none": "linear",
    "logistic": "sigmoid",
    "Linear": "Dense",
    "FullyConnected": "Dense",
    "Conv2D": "Conv2d",
    "Conv1D": "Conv1d",
    "MaxPooling2D": "MaxPool2d",
    "BatchNormalization": "BatchNorm2d",
    "LayerNormalization": "LayerNorm",
    "MultiheadAttention": "MultiHeadAttention",
    "SimpleRNN": "RNN",
    "ctx": "context",
    "n_ctx": "context",
    "ctx_size": "context",
    "max_seq_len": "context",
    "node_add_prob": "add_node",
    "conn_add_prob": "add_connection",
    "node_delete_prob": "delete_node",
    "conn_delete_prob": "delete_connection",
    "weight_mutate_rate": "weight_rate",
    "weight_mutate_power": "weight_power",
    "weight_replace_rate": "weight_replace",
    "bias_mutate_rate": "bias_rate",
    "activation_mutate_rate": "activation_rate",
    "max_stagnation": "stagnation",
}
"""Name in other packages → name here."""
_INPUTS: Final = ("in_features", "in_channels", "input_size", "num_embeddings", "num_features", "embed_dim", "channels")
_OUTPUTS: Final = ("out_features", "out_channels", "hidden_size", "embedding_dim", "hidden_features")
_WIDTHS: Final = ("num_features", "num_channels", "embed_dim", "embedding_dim", "in_features", "input_size", "channels")
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("in_features", "in_channels", "input_size", "input_dim", "input_dims", "in_size", "in_dim", "d_in"), _INPUTS
    ),
    **dict.fromkeys(
        ("out_features", "out_channels", "output_dim", "output_dims", "out_size", "out_dim", "filters", "d_out"),
        _OUTPUTS,
    ),
    **dict.fromkeys(("units", "hidden_size", "hidden_dim", "hidden_features", "hidden_dims", "width_size"), _OUTPUTS),
    **dict.fromkeys(
        ("dim", "dims", "features", "d_model", "embedding_size", "normalized_shape", "num_features", "num_channels"),
        (*_WIDTHS, "axis"),
    ),
    **dict.fromkeys(("d_ff", "intermediate_size"), ("hidden_features",)),
    **dict.fromkeys(("vocab", "vocab_size", "vocabulary", "n_vocab"), ("num_embeddings",)),
    **dict.fromkeys(("heads", "n_heads", "nhead", "n_head", "num_query_heads"), ("num_heads",)),
    **dict.fromkeys(("n_kv_heads", "kv_heads"), ("num_kv_heads",)),
    **dict.fromkeys(("rate", "prob", "dropout"), ("p",)),
    **dict.fromkeys(("epsilon", "variance_epsilon"), ("eps",)),
    **dict.fromkeys(("pool_size", "kernel", "window_shape"), ("kernel_size",)),
    **dict.fromkeys(("elementwise_affine", "learnable"), ("affine",)),
    **dict.fromkeys(("n_clusters", "k"), ("num_clusters",)),
    "use_bias": ("bias",),
    "strides": ("stride",),
    "groups": ("num_groups",),
    "target_shape": ("shape",),
}
"""Size in other packages → names of such sizes here, those that are meant first."""
_RATE: Final = (
    'lr is of the optimiser: optimiser = { kind = "adam", lr = 0.01 } in a file, optimiser=Adam(lr=0.01) in Python'
)
_BINARY: Final = (
    '"bce" if the network ends with raw numbers (logits); {"kind": "bce", "logits": False} if it ends with a sigmoid'
)
_PATHS: Final = ("file", "path", "filename", "dataset", "source")
_OF_TRAINING: Final = ("epochs", "loss", "optimiser", "patience", "max_steps", "clip", "accuracy", "schedule")
_ELSEWHERE: Final[Mapping[tuple[str, str], str]] = {
    ("lr", "optimiser"): _RATE,
    ("lr", "config"): _RATE,
    ("lr", "network"): _RATE,
    ("weight_decay", "optimiser"): "it is of the optimiser, as AdamW(weight_decay=0.01)",
    ("momentum", "optimiser"): 'it is of an optimiser: optimiser = "momentum" in a file, Momentum() in Python',
    (
        "batch_size",
        "optimiser",
    ): "it is of the data: [data] batch_size in a file, ArrayData(batch_size=…)",
    ("batch_size", "config"): "it is of the data: ArrayData(…, batch_size=32)",
    ("shuffle", "optimiser"): "it is of the data: [data] shuffle in a file, ArrayData(…, shuffle=True) in Python",
    ("validation", "optimiser"): "it is of the data: [data] validation in a file, train(…, validation=0.1) in Python",
    ("metrics", "optimiser"): "accuracy = true tells how many samples are in their class",
    **{(name, "csv"): 'name it by its kind: csv = "…", npz = "…" or text = "…"' for name in _PATHS},
    **{(name, "columns"): 'target columns of a table are columns = ["…"]' for name in ("target", "label", "y")},
    ("hidden", "builder"): "it is of the builder: options = { hidden = [8] }",
    ("activation", "builder"): 'it is of the builder: options = { activation = "tanh" }',
    ("layers", "builder"): "sizes are of the builder: options = { hidden = [8] }",
    **{
        (name, "fitness_criterion"): "sections of neat-python have other names here: population = 150, "
        "[genome], [species], [mutation]"
        for name in ("NEAT", "DefaultGenome", "DefaultSpeciesSet", "DefaultStagnation", "DefaultReproduction")
    },
    ("neat", "classic"): '"classic" is NEAT;',
    ("softmax", "gelu_tanh"): 'end with "linear" and train by "cross_entropy", which has the softmax in it',
    ("binary_crossentropy", "bce"): _BINARY,
    ("binary_cross_entropy", "bce"): _BINARY,
    ("BCELoss", "bce"): _BINARY,
    ("num_layers", "hidden_size"): "one layer each: sequential(LSTM(8, 16), LSTM(16, 16))",
    ("bidirectional", "hidden_size"): "Parallel([LSTM(8, 16), LSTM(8, 16, reverse=True)]) runs in both directions",
    ("batch_first", "hidden_size"): "sequences are always [samples, T, features]",
    ("return_sequences", "hidden_size"): "the output has every step; LastStep() after it returns the last one",
    ("dropout", "hidden_size"): "it is a layer: Dropout(0.1)",
    ("dropout", "num_heads"): "it is a layer: Dropout(0.1)",
    **{(name, "config"): f"{name} is of the configuration: TrainConfig({name}=…)" for name in _OF_TRAINING},
    **{(name, "network"): f"{name} is of training: [train] {name} = …" for name in _OF_TRAINING},
}
"""(Place where people look, name of what belongs there) → place where it is."""


def format_value(value: object) -> str:
    """Return the text of a value for a message: shortened, and without numbers of thousands of digits."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return "a number of more than 60 digits"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}…"


def suggestion(
    name: object, known: Iterable[str], otherwise: str | None = None, *, most: int = 1, alike: float = 0.6
) -> str:
    """Return "did you mean …?" with the names close to `name`, or the names to choose from.

    Parameters
    ----------
    known : the valid names, in the order in which they are listed
    otherwise : text if no name is close; None: list the known names
    most : maximum number of close names listed
    alike : similarity, from 0 to 1, from which two names count as close
    """
    import difflib  # only errors need it

    names = list(known)
    if isinstance(name, str) and name not in names:
        called = CALLED.get(name)
        if called in names:
            return f"did you mean {called!r}?"
        field = next((here for here in _FIELDS.get(name, ()) if here in names), None)
        if field is not None:
            return f"did you mean {field!r}?"
        if name.lower() in names:
            return f"did you mean {name.lower()!r}?"
        for (of, beside), where in _ELSEWHERE.items():
            if of in (called, name) and beside in names:
                return where
    close: list[str] = []
    if isinstance(name, str):
        close = [one for one in names if one.casefold() == name.casefold() != ""][:most]
        close = close or difflib.get_close_matches(name, names, most, alike)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    if otherwise is not None:
        return otherwise
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return "one of " + ", ".join(names[:_MOST]) + more


def show_path(path: str | PathLike[str]) -> str:
    """Return a path for a message; one with line breaks or tabs is quoted, so that they are seen."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def path_hint(path: str | PathLike[str]) -> str:
    """Return a hint for a file that cannot be opened: how far its path exists, and similar names there."""
    # A name with a null byte or a too long name is no path, and a directory may be unreadable.
    with suppress(OSError, ValueError):
        if any(mark in str(path) for mark in "\n\t\r\b\f"):
            return "a backslash in double quotes begins an escape, as a line break: write / or use single quotes '…'"
        whole = Path(path).absolute()
        if whole.exists():
            mode = whole.stat().st_mode
            if whole.is_dir():
                return "it is a directory: name a file in it"
            return f"it is there, a file with permissions {filemode(mode)}"
        there = next(above for above in whole.parents if above.exists())
        missing = whole.relative_to(there).parts[0]
        beside = sorted(one.name for one in islice(there.iterdir(), _BESIDE))
        return suggestion(missing, beside, f"there is no {format_value(missing)} in {there}")
    return "no file can have this name, or who asks may not look there"


def write_hint(path: str | PathLike[str]) -> str:
    """Return a hint for a file or directory that cannot be written."""
    with suppress(OSError, ValueError):
        home = Path(path).absolute().parent
        in_the_way = next((above for above in (home, *home.parents) if above.is_file()), None)
        if in_the_way is not None:
            return f"{in_the_way.name} is a file: name a directory in its place"
        if not home.exists():
            return f"create the directory first: {path_hint(home)}"
    return "check free space and permissions"
