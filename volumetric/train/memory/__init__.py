"""Memory tasks: each needs another kind of memory, and baselines without memory are known."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from volumetric.train.memory.assoc_recall import TASK as _ASSOC_RECALL
from volumetric.train.memory.assoc_recall import assoc_recall as assoc_recall
from volumetric.train.memory.copy import TASK as _COPY
from volumetric.train.memory.copy import copy as copy
from volumetric.train.memory.delayed_recall import TASK as _DELAYED_RECALL
from volumetric.train.memory.delayed_recall import delayed_recall as delayed_recall
from volumetric.train.memory.dyck2 import TASK as _DYCK2
from volumetric.train.memory.dyck2 import dyck2 as dyck2
from volumetric.train.memory.flip_flop import TASK as _FLIP_FLOP
from volumetric.train.memory.flip_flop import flip_flop as flip_flop
from volumetric.train.memory.majority import TASK as _MAJORITY
from volumetric.train.memory.majority import majority as majority
from volumetric.train.memory.memory_baselines import baseline as baseline
from volumetric.train.memory.memory_baselines import baselines_of as baselines_of
from volumetric.train.memory.memory_baselines import score as score
from volumetric.train.memory.memory_task import MemoryTask as MemoryTask
from volumetric.train.memory.n_back import TASK as _N_BACK
from volumetric.train.memory.n_back import n_back as n_back
from volumetric.train.memory.parity import TASK as _PARITY
from volumetric.train.memory.parity import parity as parity
from volumetric.train.memory.selective_copy import TASK as _SELECTIVE_COPY
from volumetric.train.memory.selective_copy import selective_copy as selective_copy
from volumetric.train.memory.sines import TASK as _SINES
from volumetric.train.memory.sines import sines as sines

TASKS: Final = MappingProxyType(
    {
        task.name: task
        for task in (
            _DELAYED_RECALL,
            _COPY,
            _SELECTIVE_COPY,
            _N_BACK,
            _FLIP_FLOP,
            _MAJORITY,
            _PARITY,
            _ASSOC_RECALL,
            _DYCK2,
            _SINES,
        )
    }
)
"""Name → task."""
