"""Hidden states as an output of a model."""

from __future__ import annotations

import dataclasses
from typing import Final

from volumetric.loaders.model import LoadedModel
from volumetric.network import Network

HIDDEN: Final = "last_hidden_state"
"""Output that has the hidden states, as transformers calls it."""


def with_hidden(loaded: LoadedModel) -> Network:
    """Return the network of a model, with its hidden states as an output beside that of its head, if it has one."""
    network = loaded.network
    if loaded.hidden is None:
        return network
    return dataclasses.replace(network, outputs={**network.outputs, HIDDEN: loaded.hidden})
