"""What nodes of a population can be."""

from volumetric.fabric.layer.declared import GRU, LSTM, RNN, SLSTM, Axon

__all__ = ["GRU", "LSTM", "RNN", "SLSTM", "Axon"]
