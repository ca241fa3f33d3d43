"""Speed of training: six small networks, beside a plain loop in PyTorch where that can be imported."""

from volumetric.bench.training.cases import CASES as CASES
from volumetric.bench.training.cases import TrainingCase as TrainingCase
from volumetric.bench.training.report import render_training as render_training
from volumetric.bench.training.run import TrainingRow as TrainingRow
from volumetric.bench.training.run import measure_training as measure_training
