"""Pursuit: a ball in noisy frames that hides, turns and goes home, and programs that track it."""

from volumetric.train.pursuit.agent import always_on as always_on
from volumetric.train.pursuit.agent import triggered as triggered
from volumetric.train.pursuit.reference_answers import BASELINES as BASELINES
from volumetric.train.pursuit.reference_answers import exact as exact
from volumetric.train.pursuit.world import at_home as at_home
from volumetric.train.pursuit.world import pursuit as pursuit
