"""Flags and verbs of llama.cpp, mlx-lm, vLLM, Ollama and transformers, and what each of them is here.

A flag that changes nothing here is taken with a word, one that has another name here becomes that, and what cannot be
done is refused with what to do instead. `foreign` reads the table; flags that a verb has itself are never looked up.
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
"""Verbs that run language models."""
OPENS: Final = frozenset({*RUNS, "inspect", "convert"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag of another program.

    Attributes
    ----------
    names : its spellings
    kind : it is taken without effect, becomes flags of ours, or is refused
    says : why it has no effect, or what to do instead
    values : words that follow it; ``"switch"`` for on, off, auto or nothing
    becomes : of one that becomes ours: its value → our flags
    verbs : where this holds
    """

    names: tuple[str, ...]
    kind: Literal["taken", "ours", "refused"]
    says: str = ""
    values: int | Literal["switch"] = 0
    becomes: Callable[[str], list[str]] = lambda value: []
    verbs: frozenset[str] = OPENS


def _taken(names: str, says: str, values: int | Literal["switch"] = 0, verbs: frozenset[str] = RUNS) -> Flag:
    return Flag(names=tuple(names.split()), kind="taken", says=says, values=values, verbs=verbs)


def _refused(names: str, says: str, values: int = 0, verbs: frozenset[str] = OPENS) -> Flag:
    return Flag(names=tuple(names.split()), kind="refused", says=says, values=values, verbs=verbs)


def _ours(names: str, becomes: str | Callable[[str], list[str]], values: int = 1, verbs: frozenset[str] = RUNS) -> Flag:
    """One that has another name here; a text is that name, behind which the value stands if there is one."""
    if isinstance(becomes, str):
        name = becomes
        convert = (lambda value: [name, value]) if values else (lambda value: [name])
    else:
        convert = becomes
    return Flag(names=tuple(names.split()), kind="ours", values=values, becomes=convert, verbs=verbs)


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
            f"{value}: a file of a repository is not found by its type",
            hint=f"name it: {name}/FILE.gguf, where FILE ends with {kind} or so",
        )
    return ["--model", name]


_ONE_DEVICE = "a model runs on one device as a whole: --device gpu, or cpu"
_WHICH_GPU = "one GPU runs a model: --device gpu:1 chooses the second, `volumetric devices` lists them"
_NO_SHIFT = "a text ends where the context does, and nothing of its beginning is given away"
_GUESSES = "how many tokens are guessed follows from how often guesses are right; --draft MODEL says who guesses"
_ROPE = "the rotation of positions is what the model's configuration says"
_SAMPLERS = "--temperature, --top-k, --top-p, --min-p and penalties are what there is to draw by"
_GRAMMARS = "`volumetric serve` holds answers to a schema or a grammar (response_format); this verb does not"
_IMAGES = "models of images and sounds are read as text models"
_THREADS = "--threads N is how many run, and the system's tools (taskset, numactl, nice) say where"
_CHAT = "volumetric chat MODEL is a conversation; here --chat applies the chat template to one message"

SUITES: Final = "suites of layers, training and the like are run from a clone of the repository"

FLAGS: Final[tuple[Flag, ...]] = (
    # How weights and attention are held: always so, or of no effect on numbers
    _taken("-fa --flash-attn --flash-attention", "attention never stores its scores", "switch"),
    _taken("--mmap --no-mmap --mlock --no-direct-io -dio --direct-io", "weights become resident as the device wants"),
    _taken("-b --batch-size -ub --ubatch-size", "prompts are computed in pieces that the device chooses", 1),
    _taken("--jinja", "chat templates are always run as Jinja"),
    _taken("-co --color --colors", "what is written has no colours", "switch"),
    _taken("--no-warmup --warmup", "kernels are compiled when they are first needed"),
    _taken("--simple-io -mli --multiline-input", "lines are read so anyway", verbs=TEXT),
    _taken("--no-display-prompt", "the prompt is never shown again", verbs=TEXT),
    _taken("--keep", _NO_SHIFT, 1),
    _taken("--no-context-shift", _NO_SHIFT),
    _taken("-tb --threads-batch", "--threads is for prompts and answers alike", 1),
    _taken(
        "--no-perf --perf --show-timings --no-show-timings", "speeds stand in the last line unless --quiet is given"
    ),
    _taken("--log-colors --log-prefix --log-timestamps", "the commentary has none", "switch"),
    _taken("--use-default-chat-template", "the model's own template is used", verbs=TEXT),
    _taken("--no-mmproj --mmproj-auto --no-mmproj-auto", _IMAGES),
    # What has another name here
    _ours("-ctk --cache-type-k -ctv --cache-type-v --kv-bits --kv-cache-dtype", _kv_dtype),
    _ours("-md --model-draft --draft-model --spec-draft-model", "--draft", verbs=TEXT | SERVE),
    _ours("--adapter-path", "--lora", verbs=TEXT | {"perplexity", "convert"}),
    _ours("-sysf --system-prompt-file", _system_file, verbs=TEXT),
    _ours("--chat-template-file", "--chat-template", verbs=TEXT | SERVE),
    _ours("--log-disable", "--quiet", 0),
    _ours("-hf -hfr --hf-repo", _hub, verbs=frozenset({*TEXT, "bench", "perplexity", "warmup", "inspect"})),
    _ours("--greedy --no-do-sample", lambda value: ["--temperature", "0"], 0, TEXT),
    _ours("-st --single-turn", "--chat", 0, frozenset({"generate"})),
    _ours("-no-cnv --no-conversation", "--no-chat-template", 0, frozenset({"generate"})),
    _ours("--max-model-len", "--context", verbs=SERVE),
    _ours("--served-model-name", "--alias", verbs=SERVE),
    _ours("--reasoning-format", lambda v: ["--reasoning", "none" if v == "none" else "auto"], verbs=SERVE),
    # Conversations
    _taken("-cnv --conversation -i --interactive -if --interactive-first", "chat is one", verbs=frozenset({"chat"})),
    _refused("-cnv --conversation -i --interactive -if --interactive-first -ins --instruct -cml --chatml", _CHAT),
    _refused("-st --single-turn", "volumetric generate MODEL --chat --prompt TEXT answers one message"),
    _refused("-no-cnv --no-conversation", "volumetric generate MODEL --prompt TEXT goes on with a plain text"),
    _refused("--in-prefix --in-suffix", "a template says what stands around messages: --chat-template FILE", 1),
    _refused("--in-prefix-bos --no-jinja", "a template says what stands around messages: --chat-template FILE"),
    # Devices
    _refused("-sm --split-mode -ts --tensor-split -tp --tensor-parallel-size --pipeline-parallel-size", _WHICH_GPU, 1),
    _refused("-mg --main-gpu", _WHICH_GPU, 1),
    _refused("-ot --override-tensor -ncmoe --n-cpu-moe -ngld --gpu-layers-draft -devd --device-draft", _ONE_DEVICE, 1),
    _refused("-cmoe --cpu-moe -nkvo --no-kv-offload -kvo --kv-offload -nr --no-repack --no-op-offload", _ONE_DEVICE),
    _refused("-C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll --numa", _THREADS, 1),
    _refused("--gpu-memory-utilization", "--kv-memory MIB bounds what is kept of texts, weights come on top", 1),
    # Context and positions
    _refused("--context-shift", f"{_NO_SHIFT}: --context N holds more"),
    _refused("--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale -gan -gaw", _ROPE, 1),
    _refused("--yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast", _ROPE, 1),
    _refused("--override-kv", "a configuration is changed in its file, config.json beside the weights", 1),
    _refused("--kv-group-size --quantized-kv-start", "--kv-dtype int8 has a scale for each head of each token", 1),
    _refused("-cd --ctx-size-draft", "what guesses has the context of the model", 1),
    _taken("--draft-max --draft-n --draft-min --draft-n-min --num-draft-tokens --draft-p-min", _GUESSES, 1),
    # Sampling and forms of answers
    _refused("--do-sample", "--temperature above 0 draws, 0 takes the most likely token"),
    _refused("--samplers --sampler-seq --sampling-seq --mirostat --mirostat-lr --mirostat-ent --typical", _SAMPLERS, 1),
    _refused("--typical-p --xtc-probability --xtc-threshold --top-nsigma --top-n-sigma --dynatemp-range", _SAMPLERS, 1),
    _refused("--dynatemp-exp --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n", _SAMPLERS, 1),
    _refused("--grammar --grammar-file -j --json-schema -jf --json-schema-file", _GRAMMARS, 1, TEXT),
    _refused("-bf --binary-file --prompt-cache", "--file PATH reads a text, session.save(path) keeps a state", 1),
    _refused("-mm --mmproj -mmu --mmproj-url --image --audio", f"{_IMAGES}: there is nothing to see them with", 1),
    # Where models are
    _refused("-mu --model-url", "download the file and name its path, or name a model of the hub: ORG/NAME", 1),
    _refused("-hff --hf-file --hf-repo-file", "a file of a repository is named with it: ORG/NAME/FILE.gguf", 1),
    _refused("-hft --hf-token", "the variable HF_TOKEN is read, and no other user sees it there", 1),
    _refused("--revision --model-revision", "name it with the model: ORG/NAME@REVISION", 1),
    _refused("--lora-scaled", "--lora PATH:SCALE", 1),
    _refused("--load-in-4bit --load-in-8bit", "--dtype int4, or int8"),
    _refused("-lv --verbosity --log-verbosity", "-v tells what was chosen, --debug all there is", 1),
    _refused("--log-file", "the commentary goes to stderr: 2> FILE", 1),
    _refused("--verbose-prompt -sp --special", "--debug shows what is read; special tokens are not written"),
    # Servers
    _taken(
        "-cb --cont-batching --enable-prefix-caching --enforce-eager --slots --metrics --props", "it is so", verbs=SERVE
    ),
    _taken("--embedding --embeddings --webui", "/v1/embeddings and the page at / are always there", verbs=SERVE),
    _taken("--cache-reuse -sps --slot-prompt-similarity", "what prompts begin with is reused anyway", 1, SERVE),
    _taken("--threads-http", "requests are read by one thread", 1, SERVE),
    _taken("--enable-auto-tool-choice", "calls are read as the model's family writes them", verbs=SERVE),
    _taken("--tool-call-parser --reasoning-parser", "answers are read as the model's family writes them", 1, SERVE),
    _refused("-nocb --no-cont-batching", "--max-seqs 1 computes one text after the other"),
    _refused("--no-webui --no-slots", "a proxy in front can hide paths"),
    _refused("-to --timeout", "--request-timeout and --queue-timeout say which", 1, SERVE),
    _refused("--ssl-key-file --ssl-cert-file --ssl-keyfile --ssl-certfile", "a proxy in front does TLS", 1, SERVE),
    _refused("--max-num-batched-tokens", "--max-stall says how long a prompt may keep others waiting", 1, SERVE),
    _refused("--slot-save-path --path --api-prefix --root-path", "a proxy in front can move and add paths", 1, SERVE),
    _refused(
        "--reranking --rerank", "there is no such endpoint; in Python: volumetric.load(JUDGE).score(pairs)", 0, SERVE
    ),
    _refused("--disable-log-requests --log-requests", "--quiet leaves the log out", 0, SERVE),
    # Suites, which `bench` had once
    _refused("--only --torch-python", f"{SUITES}: python -m benchmarks layers --help", 1, frozenset({"bench"})),
)

VERBS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("pull", "download"), "a model is downloaded when it is first opened: volumetric inspect ORG/NAME"),
    **dict.fromkeys(("list", "ls"), "models lie in the cache of Hugging Face: `hf cache ls` lists them"),
    **dict.fromkeys(("rm", "delete"), "models lie in the cache of Hugging Face: `hf cache rm` deletes them"),
    **dict.fromkeys(("ps", "stop"), "nothing runs behind: a server ends with Ctrl-C where it was started"),
    "show": "volumetric inspect MODEL shows what it is made of",
    "quantize": "volumetric convert SOURCE TARGET --dtype q4_k (--bits and --calibrate choose types by tensor)",
    "tokenize": "`volumetric serve` has /tokenize, and volumetric.load(MODEL).tokenizer is one in Python",
    **dict.fromkeys(("complete", "completion", "cli", "predict"), "volumetric generate MODEL PROMPT"),
    **dict.fromkeys(("server", "api"), "volumetric serve MODEL"),
    **dict.fromkeys(
        ("create", "push", "cp"), "a model is a file or a directory here; volumetric convert writes others"
    ),
    "finetune": "volumetric train FILE.toml",
    "lora": "volumetric train FILE.toml trains; --lora PATH adds an adapter that PEFT has saved",
}
"""Verbs of other programs → what does the same here."""
