"""Which module holds the rule of which layer kind, so that those of other kinds need not be imported."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

DECLARED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "agalite": "agalite",
        "attention": "multi_head_attention",
        "axon": "axon axon_linear",
        "cells": "slstm",
        "channels": "group_norm batch_norm1d batch_norm2d batch_norm3d",
        "chunks": "mlstm",
        "column": "column",
        "containers": "residual sequential parallel",
        "convolved": "causal_conv1d short_conv",
        "fabric": "fabric",
        "images": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
        "noise": "dropout",
        "pooling": (
            "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d "
            "adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
            "adaptive_max_pool3d reshape flatten last_step"
        ),
        "program": "program",
        "recurrent": "rnn lstm gru",
        "rowwise": (
            "dense mlp swiglu rms_norm layer_norm embedding position_embedding softcap scale clamp discrete gate kmeans"
        ),
        "scaffolds": "pass_through pre_up pre_up_gated post_up post_up_gated adapter",
        "softmaxes": (
            "softmax masked_softmax sparsemax entmax grid_softmax hierarchical_softmax adaptive_softmax "
            "mixture_softmax gumbel_softmax"
        ),
        "state_space": "mamba mamba2",
        "xl_attention": "xl_attention",
    }
)
"""Module of rules → the kinds of layers that it declares."""
