"""Builders: functions that return whole networks from a few numbers, or combine existing networks."""

from collections.abc import Callable
from typing import Final

from volumetric.base.registry import Registry
from volumetric.builders.cnn import cnn as cnn
from volumetric.builders.cube import cube as cube
from volumetric.builders.fold_batchnorm import fold_batchnorm as fold_batchnorm
from volumetric.builders.graft import around as around
from volumetric.builders.graft import as_layer as as_layer
from volumetric.builders.graft import graft as graft
from volumetric.builders.insert import insert as insert
from volumetric.builders.prune_experts import prune_experts as prune_experts
from volumetric.builders.random_grid import random_grid as random_grid
from volumetric.builders.sequential import chain as chain
from volumetric.builders.sequential import sequential as sequential
from volumetric.builders.sequential import sequential_of_data
from volumetric.builders.stack import auto_stack as auto_stack
from volumetric.builders.stack import stack as stack
from volumetric.builders.stack import stack_of_data
from volumetric.builders.transformer import transformer as transformer
from volumetric.network import Network

BUILDERS: Final[Registry[Callable[..., Network]]] = Registry(
    group="volumetric.builders",
    own={
        "sequential": sequential_of_data,
        "cnn": cnn,
        "transformer": transformer,
        "random_grid": random_grid,
        "stack": stack_of_data,
    },
)
"""Name in configuration files → function; higher packages and plug-ins register their own."""
