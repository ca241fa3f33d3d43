"""Hidden states as an output of a model."""

from __future__ import annotations

import dataclasses
from typing import Final

from volumetric.loaders.loaded_model import LoadedModel
from volumetric.network import Network

HIDDEN: Final = "last_hidden_state"
"""Name of the output with the hidden states, as in transformers."""


def with_hidden(loaded: LoadedModel) -> Network:
    """Return the network of a model with its hidden states as a further output."""
    network = loaded.network
    if loaded.hidden is None:
        return network
    return dataclasses.replace(network, outputs={**network.outputs, HIDDEN: loaded.hidden})
