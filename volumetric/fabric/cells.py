"""Cells of populations."""

from volumetric.fabric.layer.cell_populations import GRU, LSTM, RNN, SLSTM, Axon

__all__ = ["GRU", "LSTM", "RNN", "SLSTM", "Axon"]
