"""Sizes of state-space layers, from names and shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from volumetric.detect.config_values import KnownValue
from volumetric.loaders.gguf_states import expansion
from volumetric.loaders.tensor_source import TensorEntry

GROUPED: Final = "width of groups"
"""Not a configuration value: total width of b, and of c, over all groups."""
_DECAY: Final = re.compile(r"(.*\blayers\.0\.(?:mixer|mamba)\.)A_log")
_GROUPS, _SIZES = ("n_groups", "mamba_n_groups"), ("state_size", "mamba_d_state")


def state_space_values(entries: Mapping[str, TensorEntry]) -> dict[str, KnownValue]:
    """Return the configuration values that the first state-space layer shows; empty if there is none."""
    match = next((candidate for name in entries if (candidate := _DECAY.fullmatch(name))), None)
    if match is None:
        return {}
    start = match[1]
    shapes = {name.removeprefix(start): entry.shape for name, entry in entries.items() if name.startswith(start)}
    conv, out = shapes.get("conv1d.weight", ()), shapes.get("out_proj.weight", ())
    if len(conv) != 3 or len(out) != 2:
        return {}
    hidden, inner = out
    values: dict[str, tuple[Any, str]] = {
        "conv_kernel": (conv[2], "taps of the convolution"),
        "use_conv_bias": ("conv1d.bias" in shapes, "the convolution's tensors"),
        "use_bias": ("in_proj.bias" in shapes, "the tensors of the projection"),
        "expand": (expansion(inner, hidden), "columns of out_proj"),
    }
    decay = shapes["A_log"]
    if len(decay) == 2:
        values |= {
            "intermediate_size": (decay[0], "rows of the decays"),
            "state_size": (decay[1], "columns of the decays"),
        }
        if len(steps := shapes.get("dt_proj.weight", ())) == 2:
            values["time_step_rank"] = (steps[1], "columns of dt_proj")
    elif len(decay) == 1 and inner % decay[0] == 0:
        values |= {
            "num_heads": (decay[0], "one decay for each head"),
            "head_dim": (inner // decay[0], "columns of out_proj divided by the heads"),
            GROUPED: ((conv[0] - inner) // 2, "channels of the convolution beyond those of out_proj"),
        }
        if start.endswith(".mamba."):
            values = _falcon_values(values, shapes, inner)
    return {name: KnownValue(value, reason) for name, (value, reason) in values.items()}


def _falcon_values(
    values: Mapping[str, tuple[Any, str]], shapes: Mapping[str, tuple[int, ...]], inner: int
) -> dict[str, tuple[Any, str]]:
    """The same values under Falcon-H1's names: it uses the plain names for attention."""
    names = {"mamba_n_heads": "num_heads", "mamba_d_head": "head_dim", "mamba_d_conv": "conv_kernel"}
    names |= {"mamba_conv_bias": "use_conv_bias", "mamba_proj_bias": "use_bias"}
    return {
        **{own: values[name] for own, name in names.items()},
        GROUPED: values[GROUPED],
        "mamba_d_ssm": (inner, "columns of out_proj"),
        "mamba_rms_norm": ("norm.weight" in shapes, "whether there is a norm before out_proj"),
        "projectors_bias": ("out_proj.bias" in shapes, "the tensors of out_proj"),
    }


def complete_groups(values: dict[str, Any], known: Mapping[str, KnownValue]) -> dict[str, str]:
    """Compute groups or state size from the other, as shapes give only the product; return what is missing."""
    if GROUPED not in known:
        return {}
    width = known[GROUPED].value
    groups = next((values[name] for name in _GROUPS if name in values), None)
    size = next((values[name] for name in _SIZES if name in values), None)
    missing = {}
    if type(groups) is not int or groups < 1:
        size_known = type(size) is int and size > 0
        groups = max(width // size, 1) if size_known else 1
        name = _GROUPS["mamba_d_ssm" in known]
        missing = {} if size_known else {name: f"a width of {width} fits any number of groups"}
    values |= dict.fromkeys(_GROUPS, groups) | {name: values.get(name, width // groups) for name in _SIZES}
    return missing
