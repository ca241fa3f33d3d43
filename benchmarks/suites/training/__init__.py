"""Speed of training: six small networks, beside PyTorch where it is installed: a plain loop, and CUDA graphs."""

from benchmarks.suites.training.cases import CASES as CASES
from benchmarks.suites.training.cases import TrainingCase as TrainingCase
from benchmarks.suites.training.run import TrainingRow as TrainingRow
from benchmarks.suites.training.run import measure_training as measure_training
from benchmarks.suites.training.run import render_training as render_training
