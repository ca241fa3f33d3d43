"""Learners as tests open them."""

from __future__ import annotations

import numpy as np

from volumetric.graph import NumpyGraphs
from volumetric.network import Network
from volumetric.network.weight_store import Params
from volumetric.train.device_learner import DeviceLearner
from volumetric.train.learner import LearnerOptions


def reference_learner(
    network: Network, params: Params, options: LearnerOptions, dtype: type[np.float32] | type[np.float64] = np.float32
) -> DeviceLearner:
    """Train by the interpreter."""
    return DeviceLearner(network, params, options, NumpyGraphs(dtype))
