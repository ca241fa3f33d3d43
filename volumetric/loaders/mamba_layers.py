"""Decoders of state-space layers alone: a norm and a mixer in each layer, without positions."""

from __future__ import annotations

from volumetric.layers import Dense, Embedding, LayerSpec, RMSNorm
from volumetric.loaders.chain import Chain
from volumetric.loaders.hf_config import Config
from volumetric.loaders.names import Blueprint

CONTEXT = 1 << 20
"""Tokens of a sequence: states do not grow with it, and configurations name no limit."""
MIXER_NAMES = {
    "in": "in_proj",
    "out": "out_proj",
    "x": "x_proj",
    "dt": "dt_proj",
    "conv": "conv1d",
    "a_log": "A_log",
    "d": "D",
}


def state_space_decoder(config: Config, mixer: LayerSpec, *, tied: bool) -> Blueprint:
    """Build a decoder with the same mixer in each layer.

    Parameters
    ----------
    tied : whether embedding and head share weights where the configuration does not say
    """
    hidden, vocabulary = config.integer("hidden_size"), config.integer("vocab_size")
    config.require("hidden_act", "silu", "swish")
    norm = RMSNorm(num_features=hidden, eps=config.number("layer_norm_epsilon", 1e-5))
    chain = Chain()
    stream = embedding = chain.add(Embedding(num_embeddings=vocabulary, embedding_dim=hidden), "backbone.embeddings")
    for i in range(config.layers()):
        chain.plane()
        chain.add(norm, f"backbone.layers.{i}.norm")
        chain.add(mixer, f"backbone.layers.{i}.mixer", MIXER_NAMES)
        stream = chain.residual(stream)
    chain.plane()
    hidden_states = chain.add(norm, "backbone.norm_f")
    head = chain.add(Dense(in_features=hidden, out_features=vocabulary, bias=False), "lm_head")
    if config.flag("tie_word_embeddings", tied):
        chain.tie(embedding, head)
    return chain.blueprint(
        context_length=config.integer("max_position_embeddings", CONTEXT), prefix="backbone.", hidden=hidden_states
    )


def step_bounds(config: Config) -> tuple[float, float | None]:
    """Bounds of the steps of a Mamba-2 layer, of which the upper one may be infinite, spelled as JSON spells it."""
    given = config.items("time_step_limit", 2)
    if given is None:
        return 0.0, None
    high = given[1]
    endless = high is None or high == float("inf") or high in ("inf", "Infinity")
    # transformers writes what JSON has no number for as an object with its name
    endless = endless or (isinstance(high, dict) and high.get("__float__") == "Infinity")
    low = Config({"time_step_limit": given[0]}, config.where).number("time_step_limit")
    return low, None if endless else Config({"time_step_limit": high}, config.where).number("time_step_limit")
