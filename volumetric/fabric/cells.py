"""What nodes of a population can be."""

from volumetric.layers.fabric.declared import GRU, LSTM, RNN, SLSTM, Axon

__all__ = ["GRU", "LSTM", "RNN", "SLSTM", "Axon"]
