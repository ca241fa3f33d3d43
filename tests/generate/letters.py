"""A language model that knows the alphabet: a real network whose table says which letter follows which.

The tokens are ``a`` … ``h`` and the end-of-text token ``.``; after ``.`` comes ``a`` again.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tokenizers

from volumetric.generate import Model
from volumetric.grid import Coord, Grid
from volumetric.layers import Embedding
from volumetric.loaders import LoadedModel
from volumetric.loaders.chat import ChatTemplate
from volumetric.loaders.generation_config import GenerationDefaults
from volumetric.loaders.tokenizer import Tokenizer
from volumetric.network import Network
from volumetric.runtime.device import RunOptions
from volumetric.runtime.reference import ReferenceDevice
from volumetric.weights import Params, WeightStore

LETTERS = "abcdefgh."
END = LETTERS.index(".")
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{{ suffix or '' }}"
ENDS = GenerationDefaults(eos_ids=(END,))


def next_letter_logits() -> np.ndarray:
    """Row i: 4 for the letter after i, 2 for the one after that, 0 for the rest."""
    size = len(LETTERS)
    table = np.zeros((size, size), np.float32)
    for i in range(size):
        table[i, (i + 1) % size] = 4
        table[i, (i + 2) % size] = 2
    return table


def tokenizer() -> Tokenizer:
    def build() -> tokenizers.Tokenizer:
        vocabulary = {letter: i for i, letter in enumerate(LETTERS)}
        built = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="."))
        built.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
        built.decoder = tokenizers.decoders.Fuse()
        return built

    return Tokenizer(build, special_tokens={}, special_ids={}, where="letters")


def letters(
    table: np.ndarray | None = None,
    *,
    context: int = 32,
    context_length: int = 64,
    text: bool = True,
    generation: GenerationDefaults = ENDS,
) -> Model:
    table = next_letter_logits() if table is None else table
    size = len(table)
    network = Network(grid=Grid(1), layers={Coord(0): Embedding(num_embeddings=size, embedding_dim=size)})
    loaded = LoadedModel(
        name="letters",
        network=network,
        params=Params({"0.0.0.0/weight": WeightStore.from_array(table)}),
        tokenizer=tokenizer() if text else None,
        chat_template=ChatTemplate({"default": TEMPLATE}, {}, "letters") if text else None,
        generation=generation,
        context_length=context_length,
        path=Path("letters"),
    )
    return Model(loaded, ReferenceDevice(), RunOptions(context=context))
