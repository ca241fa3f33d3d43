"""Flags and commands of llama.cpp, mlx-lm, vLLM, Ollama and transformers, and their equivalents here.

A flag without effect here is accepted with a note, a flag with another name here is translated, and an unsupported one
is refused with an alternative. `foreign` reads the table; a command's own flags are never looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from volumetric.cli.exits import UsageError

TEXT: Final = frozenset({"generate", "chat"})
SERVE: Final = frozenset({"serve"})
RUNS: Final = frozenset({*TEXT, *SERVE, "embed", "bench", "perplexity", "compare", "warmup"})
"""Commands that run language models."""
OPENS: Final = frozenset({*RUNS, "inspect", "convert"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag of another program.

    Attributes
    ----------
    names : its spellings
    kind : it is accepted without effect, translated, or refused
    says : why it has no effect, or the alternative
    values : number of values that follow it; ``"switch"`` for on, off, auto or nothing
    becomes : for a translated flag: its value → our flags
    commands : commands to which this entry applies
    """

    names: tuple[str, ...]
    kind: Literal["taken", "ours", "refused"]
    says: str = ""
    values: int | Literal["switch"] = 0
    becomes: Callable[[str], list[str]] = lambda value: []
    commands: frozenset[str] = OPENS


def _accepted(names: str, says: str, values: int | Literal["switch"] = 0, verbs: frozenset[str] = RUNS) -> Flag:
    return Flag(names=tuple(names.split()), kind="taken", says=says, values=values, commands=verbs)


def _rejected(names: str, says: str, values: int = 0, verbs: frozenset[str] = OPENS) -> Flag:
    return Flag(names=tuple(names.split()), kind="refused", says=says, values=values, commands=verbs)


def _renamed(
    names: str, becomes: str | Callable[[str], list[str]], values: int = 1, verbs: frozenset[str] = RUNS
) -> Flag:
    """Return a flag with another name here; if `becomes` is a text, it is that name, followed by the value, if any."""
    if isinstance(becomes, str):
        name = becomes
        convert = (lambda value: [name, value]) if values else (lambda value: [name])
    else:
        convert = becomes
    return Flag(names=tuple(names.split()), kind="ours", values=values, becomes=convert, commands=verbs)


_KV_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("f32", "32"), "float32"),
    **dict.fromkeys(("f16", "fp16", "16"), "float16"),
    **dict.fromkeys(("q8_0", "8"), "int8"),
    "auto": "auto",
}


def _kv_dtype(value: str) -> list[str]:
    if value.lower() not in _KV_TYPES:
        raise UsageError(
            f"keys and values cannot be stored as {value}", hint="--kv-dtype float32, float16 or int8 (q8_0)"
        )
    return ["--kv-dtype", _KV_TYPES[value.lower()]]


def _system_file(value: str) -> list[str]:
    return ["--system", Path(value).read_text(encoding="utf-8")]


def _hub(value: str) -> list[str]:
    name, colon, kind = value.partition(":")
    if colon:
        raise UsageError(
            f"{value}: files of a repository cannot be chosen by type",
            hint=f"name the file: {name}/FILE.gguf, whose FILE probably ends with {kind}",
        )
    return ["--model", name]


_ONE_DEVICE = "a model runs on one device as a whole: --device gpu, or cpu"
_WHICH_GPU = "a model runs on one GPU: --device gpu:1 chooses the second, `volumetric devices` lists them"
_NO_SHIFT = "a text ends when the context is full; its beginning is never dropped"
_GUESSES = "the number of draft tokens adapts to the acceptance rate; --draft MODEL sets the draft model"
_ROPE = "RoPE parameters come from the model's configuration"
_SAMPLERS = "the samplers are --temperature, --top-k, --top-p, --min-p and penalties"
_GRAMMARS = "only `volumetric serve` constrains answers to a schema or a grammar (response_format)"
_IMAGES = "multimodal models are loaded as text models"
_THREADS = "--threads N sets their number; use taskset, numactl or nice for placement and priority"
_CHAT = "use volumetric chat MODEL for a conversation; --chat applies the chat template to one message"

SUITES: Final = "suites of layers, training and others need a clone of the repository"

FLAGS: Final[tuple[Flag, ...]] = (
    # Storage of weights and attention: always so, or without effect on results
    _accepted("-fa --flash-attn --flash-attention", "attention never materialises its scores", "switch"),
    _accepted("--mmap --no-mmap --mlock --no-direct-io -dio --direct-io", "the device decides how weights are loaded"),
    _accepted("-b --batch-size -ub --ubatch-size", "the device chooses the chunks of prompts", 1),
    _accepted("--jinja", "chat templates are always rendered with Jinja"),
    _accepted("-co --color --colors", "the output has no colours", "switch"),
    _accepted("--no-warmup --warmup", "kernels are compiled at first use; `volumetric warmup` compiles them now"),
    _accepted("--simple-io -mli --multiline-input", "this is always on", verbs=TEXT),
    _accepted("--no-display-prompt", "the prompt is never printed", verbs=TEXT),
    _accepted("--keep", _NO_SHIFT, 1),
    _accepted("--no-context-shift", _NO_SHIFT),
    _accepted("-tb --threads-batch", "--threads applies to prompts and answers", 1),
    _accepted(
        "--no-perf --perf --show-timings --no-show-timings", "the last line shows the speeds unless --quiet is given"
    ),
    _accepted("--log-colors --log-prefix --log-timestamps", "log output has none", "switch"),
    _accepted("--use-default-chat-template", "the model's own template is used", verbs=TEXT),
    _accepted("--no-mmproj --mmproj-auto --no-mmproj-auto", _IMAGES),
    # Flags with another name here
    _renamed("-ctk --cache-type-k -ctv --cache-type-v --kv-bits --kv-cache-dtype", _kv_dtype),
    _renamed("-md --model-draft --draft-model --spec-draft-model", "--draft", verbs=TEXT | SERVE),
    _renamed("--adapter-path", "--lora", verbs=TEXT | {"perplexity", "convert"}),
    _renamed("-sysf --system-prompt-file", _system_file, verbs=TEXT),
    _renamed("--chat-template-file", "--chat-template", verbs=TEXT | SERVE),
    _renamed("--log-disable", "--quiet", 0),
    _renamed("-hf -hfr --hf-repo", _hub, verbs=frozenset({*TEXT, "bench", "perplexity", "warmup", "inspect"})),
    _renamed("--greedy --no-do-sample", lambda value: ["--temperature", "0"], 0, TEXT),
    _renamed("-st --single-turn", "--chat", 0, frozenset({"generate"})),
    _renamed("-no-cnv --no-conversation", "--no-chat-template", 0, frozenset({"generate"})),
    _renamed("--max-model-len", "--context", verbs=SERVE),
    _renamed("--served-model-name", "--alias", verbs=SERVE),
    _renamed("--reasoning-format", lambda v: ["--reasoning", "none" if v == "none" else "auto"], verbs=SERVE),
    # Conversations
    _accepted(
        "-cnv --conversation -i --interactive -if --interactive-first",
        "chat is a conversation",
        verbs=frozenset({"chat"}),
    ),
    _rejected("-cnv --conversation -i --interactive -if --interactive-first -ins --instruct -cml --chatml", _CHAT),
    _rejected("-st --single-turn", "volumetric generate MODEL --chat --prompt TEXT answers one message"),
    _rejected("-no-cnv --no-conversation", "volumetric generate MODEL --prompt TEXT continues a plain text"),
    _rejected(
        "--in-prefix --in-suffix", "the text around messages comes from the chat template: --chat-template FILE", 1
    ),
    _rejected(
        "--in-prefix-bos --no-jinja", "the text around messages comes from the chat template: --chat-template FILE"
    ),
    # Devices
    _rejected("-sm --split-mode -ts --tensor-split -tp --tensor-parallel-size --pipeline-parallel-size", _WHICH_GPU, 1),
    _rejected("-mg --main-gpu", _WHICH_GPU, 1),
    _rejected("-ot --override-tensor -ncmoe --n-cpu-moe -ngld --gpu-layers-draft -devd --device-draft", _ONE_DEVICE, 1),
    _rejected("-cmoe --cpu-moe -nkvo --no-kv-offload -kvo --kv-offload -nr --no-repack --no-op-offload", _ONE_DEVICE),
    _rejected("-C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll --numa", _THREADS, 1),
    _rejected(
        "--gpu-memory-utilization", "--kv-memory MIB limits the memory of the KV cache; weights are not included", 1
    ),
    # Context and positions
    _rejected("--context-shift", f"{_NO_SHIFT}; --context N sets a larger context"),
    _rejected("--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale -gan -gaw", _ROPE, 1),
    _rejected("--yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast", _ROPE, 1),
    _rejected("--override-kv", "change the configuration in config.json, next to the weights", 1),
    _rejected(
        "--kv-group-size --quantized-kv-start", "--kv-dtype int8 always has a scale for each head of each token", 1
    ),
    _rejected("-cd --ctx-size-draft", "the draft model has the context of the model", 1),
    _accepted("--draft-max --draft-n --draft-min --draft-n-min --num-draft-tokens --draft-p-min", _GUESSES, 1),
    # Sampling and constrained answers
    _rejected("--do-sample", "--temperature above 0 samples, 0 is greedy"),
    _rejected(
        "--samplers --sampler-seq --sampling-seq --mirostat --mirostat-lr --mirostat-ent --typical", _SAMPLERS, 1
    ),
    _rejected(
        "--typical-p --xtc-probability --xtc-threshold --top-nsigma --top-n-sigma --dynatemp-range", _SAMPLERS, 1
    ),
    _rejected("--dynatemp-exp --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n", _SAMPLERS, 1),
    _rejected("--grammar --grammar-file -j --json-schema -jf --json-schema-file", _GRAMMARS, 1, TEXT),
    _rejected(
        "-bf --binary-file --prompt-cache", "--file PATH reads a text, session.save(path) in Python saves a state", 1
    ),
    _rejected("-mm --mmproj -mmu --mmproj-url --image --audio", f"{_IMAGES}, without their encoders", 1),
    # Location of models
    _rejected("-mu --model-url", "download the file and name its path, or name a model of the hub: ORG/NAME", 1),
    _rejected("-hff --hf-file --hf-repo-file", "name a file together with its repository: ORG/NAME/FILE.gguf", 1),
    _rejected("-hft --hf-token", "set the variable HF_TOKEN, which other users cannot see", 1),
    _rejected("--revision --model-revision", "name it with the model: ORG/NAME@REVISION", 1),
    _rejected("--lora-scaled", "--lora PATH:SCALE", 1),
    _rejected("--load-in-4bit --load-in-8bit", "--dtype int4, or int8"),
    _rejected("-lv --verbosity --log-verbosity", "-v logs choices, --debug everything", 1),
    _rejected("--log-file", "log output goes to stderr: 2> FILE", 1),
    _rejected("--verbose-prompt -sp --special", "--debug logs the prompt; special tokens are not printed"),
    # Servers
    _accepted(
        "-cb --cont-batching --enable-prefix-caching --enforce-eager --slots --metrics --props",
        "this is always on",
        verbs=SERVE,
    ),
    _accepted("--embedding --embeddings --webui", "/v1/embeddings and the page at / are always available", verbs=SERVE),
    _accepted("--cache-reuse -sps --slot-prompt-similarity", "common prefixes of prompts are always reused", 1, SERVE),
    _accepted("--threads-http", "one thread reads requests", 1, SERVE),
    _accepted("--enable-auto-tool-choice", "calls are parsed in the format of the model's family", verbs=SERVE),
    _accepted(
        "--tool-call-parser --reasoning-parser", "answers are parsed in the format of the model's family", 1, SERVE
    ),
    _rejected("-nocb --no-cont-batching", "--max-seqs 1 computes one text at a time"),
    _rejected("--no-webui --no-slots", "use a reverse proxy to hide paths"),
    _rejected("-to --timeout", "use --request-timeout and --queue-timeout", 1, SERVE),
    _rejected("--ssl-key-file --ssl-cert-file --ssl-keyfile --ssl-certfile", "use a reverse proxy for TLS", 1, SERVE),
    _rejected("--max-num-batched-tokens", "--max-stall limits how long a prompt may block other requests", 1, SERVE),
    _rejected(
        "--slot-save-path --path --api-prefix --root-path", "use a reverse proxy to move and add paths", 1, SERVE
    ),
    _rejected(
        "--reranking --rerank",
        "there is no endpoint for it; in Python: volumetric.load(RERANKER).score(pairs)",
        0,
        SERVE,
    ),
    _rejected("--disable-log-requests --log-requests", "--quiet turns the log off", 0, SERVE),
    # Suites of earlier versions of `bench`
    _rejected("--only --torch-python", f"{SUITES}: python -m benchmarks layers --help", 1, frozenset({"bench"})),
)

FOREIGN_COMMANDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("pull", "download"), "a model is downloaded when it is first opened: volumetric inspect ORG/NAME"),
    **dict.fromkeys(("list", "ls"), "models are in the Hugging Face cache: `hf cache ls` lists them"),
    **dict.fromkeys(("rm", "delete"), "models are in the Hugging Face cache: `hf cache rm` deletes them"),
    **dict.fromkeys(("ps", "stop"), "there is no background process: stop a server with Ctrl-C in its terminal"),
    "show": "volumetric inspect MODEL shows its structure",
    "quantize": "volumetric convert SOURCE TARGET --dtype q4_k (--bits and --calibrate choose types by tensor)",
    "tokenize": "`volumetric serve` has /tokenize; in Python use volumetric.load(MODEL).tokenizer",
    **dict.fromkeys(("complete", "completion", "cli", "predict"), "volumetric generate MODEL PROMPT"),
    **dict.fromkeys(("server", "api"), "volumetric serve MODEL"),
    **dict.fromkeys(
        ("create", "push", "cp"), "a model is a file or a directory here; volumetric convert writes others"
    ),
    "finetune": "volumetric train FILE.toml",
    **dict.fromkeys(("fit", "learn"), "volumetric train FILE.toml"),
    **dict.fromkeys(("eval", "evaluate", "test"), "volumetric perplexity MODEL --file TEXT, or run MODEL --in ROWS"),
    **dict.fromkeys(("save", "to-onnx"), "volumetric convert MODEL model.onnx"),
    **dict.fromkeys(("install", "update", "upgrade"), "pip install --upgrade volumetric-engine"),
    **dict.fromkeys(("info", "summary"), "volumetric inspect MODEL shows its structure"),
    **dict.fromkeys(
        ("plot", "draw"), "volumetric scope RUN, volumetric evolve plot RUN, or volumetric program draw FILE"
    ),
    "neat": "volumetric evolve FILE.toml",
    **dict.fromkeys(("init", "create-project", "start"), "volumetric new DIRECTORY writes a project to start from"),
    "lora": "volumetric train FILE.toml trains; --lora PATH adds an adapter saved by PEFT",
}
"""Commands of other programs → their equivalents here."""
