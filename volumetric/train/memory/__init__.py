"""Memory tasks: each needs another kind of memory, and baselines without memory are known."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from volumetric.base.errors import SpecError
from volumetric.base.registry import Registry
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
from volumetric.train.memory.memory_task import NOT_ASKED as NOT_ASKED
from volumetric.train.memory.memory_task import DrawnSamples, Split
from volumetric.train.memory.memory_task import MemoryTask as MemoryTask
from volumetric.train.memory.n_back import TASK as _N_BACK
from volumetric.train.memory.n_back import n_back as n_back
from volumetric.train.memory.parity import TASK as _PARITY
from volumetric.train.memory.parity import parity as parity
from volumetric.train.memory.selective_copy import TASK as _SELECTIVE_COPY
from volumetric.train.memory.selective_copy import selective_copy as selective_copy
from volumetric.train.memory.sines import TASK as _SINES
from volumetric.train.memory.sines import sines as sines
from volumetric.train.problems import Problem

TASKS: Final[Registry[MemoryTask]] = Registry(
    group="volumetric.memory_tasks",
    own={
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
    },
)
"""Name → task."""
F = TypeVar("F", bound=Callable[..., DrawnSamples])


def memory_task(
    name: str,
    *,
    length: int,
    shortest: int = 2,
    vocabulary: int = 0,
    classes: Sequence[str] = (),
    needs: str = "memory",
) -> Callable[[F], F]:
    """Register a function that draws samples as a memory task, for ``volumetric tasks`` and ``[data] problem``.

    ``f(random, count, length)`` returns inputs and answers of `count` samples. Inputs are token ids below `vocabulary`,
    ``[count, length]``, or rows of numbers ``[count, length, width]``. Answers are class ids ``[count, length]``, and
    `NOT_ASKED` for rows that are not scored; without classes they are values ``[count, length, outputs]``, and NaN.
    The first line of its docstring describes the task.

    Parameters
    ----------
    length : default number of rows of a sample
    shortest : minimum number of rows
    classes : names of the answers; none: answers are values
    needs : required kind of memory, for the list of tasks

    Raises
    ------
    SpecError : the engine has the name
    """

    def declare(draw: F) -> F:
        def make(
            seed: int = 0, samples: int = 1024, length: int = length, *, split: Split = "train", epoch: int = 0
        ) -> Problem:
            return task.problem(seed, samples, length, split, epoch)

        about = (inspect.getdoc(draw) or name).splitlines()[0]
        task = MemoryTask(
            name=name,
            draw=draw,
            shortest=shortest,
            vocabulary=vocabulary,
            classes=tuple(classes),
            about=about,
            needs=needs,
            make=make,
            length=length,
            chance=1 / len(classes) if classes else 0.0,
            regression=not classes,
        )
        if name in TASKS.own:
            raise SpecError(f"the engine has a memory task {name!r}", hint="choose another name")
        TASKS.declare(name, task, draw.__module__)
        return draw

    return declare
