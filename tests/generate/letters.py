"""A language model that knows the alphabet: a real network whose table says which letter follows which.

The tokens are ``a`` … ``h`` and the end-of-text token ``.``; after ``.`` comes ``a`` again.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import tokenizers

from volumetric.devices.reference_device import ReferenceDevice
from volumetric.generate import Model
from volumetric.layers import LSTM, Dense, Embedding, LayerSpec, MultiHeadAttention
from volumetric.loaders import ChatTemplate, GenerationDefaults, LoadedModel, Tokenizer
from volumetric.loaders.convert_model import save_model
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import Params, WeightStore
from volumetric.run.device import Device, RunOptions

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


def loaded_letters(
    table: np.ndarray, *, context_length: int = 64, text: bool = True, generation: GenerationDefaults = ENDS
) -> LoadedModel:
    size = len(table)
    return LoadedModel(
        name="letters",
        network=Network(grid=Grid(1), layers={Coord(0): Embedding(num_embeddings=size, embedding_dim=size)}),
        params=Params({"0.0.0.0/weight": WeightStore.from_array(table)}),
        tokenizer=tokenizer() if text else None,
        chat_template=ChatTemplate({"default": TEMPLATE}, {}, "letters") if text else None,
        generation=generation,
        context_length=context_length,
        path=Path("letters"),
    )


def letters(
    table: np.ndarray | None = None,
    *,
    context: int = 32,
    context_length: int = 64,
    text: bool = True,
    generation: GenerationDefaults = ENDS,
) -> Model:
    table = next_letter_logits() if table is None else table
    loaded = loaded_letters(table, context_length=context_length, text=text, generation=generation)
    return Model(loaded, ReferenceDevice(), RunOptions(context=context))


def recurrent_letters(device: Device) -> Model:
    """Letters after an LSTM and an attention layer with random weights: what comes next depends on all before."""
    return deep_letters(device, LSTM(input_size=8, hidden_size=8), MultiHeadAttention(embed_dim=8, num_heads=2))


def deep_letters(device: Device, *inner: LayerSpec, context: int = 32) -> Model:
    """Letters after layers of width 8 with random weights."""
    size, width = len(LETTERS), 8
    embedding = Embedding(num_embeddings=size, embedding_dim=width)
    layers = (embedding, *inner, Dense(in_features=width, out_features=size, bias=False))
    network = Network(grid=Grid(len(layers)), layers={Coord(z): spec for z, spec in enumerate(layers)})
    fresh = initialise(network, seed=2)
    params = Params({key: WeightStore.from_array(4 * store.values()) for key, store in fresh.items()})
    loaded = dataclasses.replace(loaded_letters(next_letter_logits()), network=network, params=params)
    return Model(loaded, device, RunOptions(context=context))


def write_letters(directory: Path, *, context_length: int = 64) -> Path:
    """Write the model, its tokenizer and its template where `volumetric.load` finds them."""
    save_model(directory, loaded_letters(next_letter_logits(), context_length=context_length), "native")
    tokenizer().save(directory / "tokenizer.json")
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": END}))
    return directory
