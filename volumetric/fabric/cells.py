"""Cells of populations."""

from volumetric.fabric.layer.declared import GRU, LSTM, RNN, SLSTM, Axon

__all__ = ["GRU", "LSTM", "RNN", "SLSTM", "Axon"]
