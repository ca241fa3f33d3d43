"""Models for `hostile_input.py`: one for each form that a reader of this package takes, and what is tried with it.

A kind is made when the first of its files is to be damaged. Most are the fixtures of the tests, as they are and as what
`convert_model` makes of them; others are made here, from random numbers of a fixed seed.
"""

from __future__ import annotations

import functools
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from benchmarks.damage import damage
from benchmarks.hostile_uses import (
    TINY,
    TOLD,
    use,
    use_adapter,
    use_directory,
    use_each,
    use_file,
    use_guess,
    use_session,
)
from volumetric.base.errors import UnsupportedError
from volumetric.generate import load
from volumetric.loaders import archs, open_model, save_native
from volumetric.loaders.convert_model import convert_model
from volumetric.loaders.generation_config import read_generation
from volumetric.loaders.gguf import GGUFFile
from volumetric.loaders.gguf_export import save_gguf
from volumetric.loaders.gguf_types import BLOCK_TYPES, DECODED_TYPES, GGUF_TYPES, TYPE_NUMBERS
from volumetric.loaders.gguf_write import GGUFTensorOut, write_gguf
from volumetric.loaders.hf_config import Config
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.network import initialise

FIXTURES = Path(__file__).parents[1] / "tests" / "fixtures"
ENCODERS = FIXTURES / "hf_encoders"
ANSWERS = frozenset({"expected.json", "answers.json", "embeddings.json", "README.md"})
"""Files of the fixtures that no reader opens."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A form of models: `make` writes one into an empty directory, `use` reads it there as a user would."""

    make: Callable[[Path], object]
    use: Callable[[Path], object]


def copy_of(source: Path) -> Callable[[Path], object]:
    """Return a maker that copies a fixture."""
    return lambda home: shutil.copytree(source, home, dirs_exist_ok=True)


def encoder(source: Path) -> Callable[[Path], object]:
    """Return a maker that copies an encoder, and gives it a tokenizer if it has none."""

    def make(home: Path) -> None:
        copy_of(source)(home)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            if not (home / name).is_file():
                shutil.copy(ENCODERS / "sentences_mean" / name, home)

    return make


SAYABLE: dict[str, dict[str, Any]] = {
    "smollm3": {"no_rope_layers": [1, 1]},
    "starcoder2": {"sliding_window": 256},
    "qwen3_moe_free": {"norm_topk_prob": True},
    "gemma": {"tie_word_embeddings": True},
}
"""What the configuration of a fixture says instead, so that a GGUF file can say it."""


def as_gguf(given: Callable[[Path], object], **options: Any) -> Callable[[Path], object]:
    """Return a maker that writes what another one makes as a GGUF file."""

    def make(home: Path) -> None:
        with tempfile.TemporaryDirectory(dir=home.parent) as kept:
            source = Path(kept)
            given(source)
            convert_model(source, home / "m.gguf", **options)

    return make


def sayable(source: Path) -> Callable[[Path], object]:
    """Return a maker that copies a fixture, changed so that a GGUF file can say it."""

    def make(home: Path) -> None:
        copy_of(source)(home)
        config = home / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | SAYABLE.get(source.name, {})))
        if source.name == "gemma":
            tensors = load_file(home / "model.safetensors")
            save_file({k: v for k, v in tensors.items() if k != "lm_head.weight"}, home / "model.safetensors")

    return make


def with_texts(home: Path) -> None:
    """Make a Llama that has a tokenizer of bytes, a chat template and defaults."""
    from volumetric.loaders.byte_tokenizer import byte_tokenizer_json

    copy_of(TINY / "llama")(home)
    tokenizer = json.loads(byte_tokenizer_json())
    tokenizer["pre_tokenizer"]["use_regex"] = True  # so that GGUF has a name for it
    (home / "tokenizer.json").write_text(json.dumps(tokenizer))
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}"
    texts = {"chat_template": template, "bos_token": "a", "eos_token": {"content": "b"}, "add_bos_token": True}
    (home / "tokenizer_config.json").write_text(json.dumps(texts))
    (home / "special_tokens_map.json").write_text(json.dumps({"pad_token": "c"}))
    defaults = {"eos_token_id": [1, 2], "do_sample": True, "temperature": 0.5, "top_k": 5, "max_new_tokens": 3}
    (home / "generation_config.json").write_text(json.dumps(defaults))


def calibrated(home: Path) -> None:
    """Make a native directory of weights rounded for a text."""
    with tempfile.TemporaryDirectory(dir=home.parent) as kept:
        with_texts(Path(kept))
        convert_model(kept, home, format="native", dtype="int4:g32", calibrate=list(range(20)))


def in_shards(home: Path) -> None:
    """Make a model with an index of shards."""
    copy_of(TINY / "gpt_neox")(home)
    data = (home / "model.safetensors").read_bytes()
    names = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    weight_map = {name: "model.safetensors" for name in names if name != "__metadata__"}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (home / "model.safetensors.index.json").write_text(json.dumps(index))


def with_vocabulary_file(home: Path) -> None:
    """Make a BERT whose tokenizer is vocab.txt."""
    copy_of(ENCODERS / "sentences_mean")(home)
    words = json.loads((home / "tokenizer.json").read_text())["model"]["vocab"]
    (home / "tokenizer.json").unlink()
    (home / "vocab.txt").write_text("\n".join(sorted(words, key=words.__getitem__)), encoding="utf-8")


def with_pieces(name: str) -> Callable[[Path], object]:
    """Return a maker of a Llama with one of SentencePiece's vocabularies."""

    def make(home: Path) -> None:
        copy_of(TINY / "llama")(home)
        tensors = load_file(home / "model.safetensors")
        table = "model.embed_tokens.weight"
        save_file({**tensors, table: np.concatenate([tensors[table]] * 2)}, home / "model.safetensors")
        config = home / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "vocab_size": 2 * len(tensors[table])}))
        for kind in ("tokenizer", "tokenizer_config"):
            shutil.copy(FIXTURES / "sentencepiece" / f"{name}.{kind}.json", home / f"{kind}.json")

    return make


def with_loom(home: Path) -> None:
    """Write networks of the Go engine, a file for each."""
    for name in ("attention", "cnn2", "lstm", "sequential", "swiglu"):
        cases = json.loads((FIXTURES / "loom" / f"{name}.json").read_text())["cases"]
        for number, case in enumerate((cases[0], cases[-1])):
            (home / f"{name}{number}.json").write_text(json.dumps(case["file"]))


def native_layers(home: Path) -> None:
    """Make a native directory of layers that no language model has."""
    case = json.loads((FIXTURES / "loom" / "lstm.json").read_text())["cases"][0]["file"]
    home.mkdir(exist_ok=True)
    (home / "lstm.json").write_text(json.dumps(case))
    model = open_model(home / "lstm.json")
    (home / "lstm.json").unlink()
    save_native(home, model.network, model.params)


def in_blocks(kind: str) -> Callable[[Path], object]:
    """Return a maker of a Llama whose rows fill blocks of a GGUF type."""

    def make(home: Path) -> None:
        values = json.loads((TINY / "llama" / "config.json").read_text())
        values |= {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1, "vocab_size": 40}
        values |= {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64}
        blueprint = archs.build(Config(values, "blocks"))
        model = LoadedModel(
            name="blocks",
            network=blueprint.network,
            params=initialise(blueprint.network, seed=1),
            tokenizer=None,
            chat_template=None,
            generation=read_generation([], [], 40, "blocks"),
            context_length=blueprint.context_length,
            path=home,
            config=values,
        )
        save_gguf(home / "m.gguf", model)
        if kind not in DECODED_TYPES:
            plain = home.with_name(home.name + ".gguf")
            (home / "m.gguf").rename(plain)
            scheme = {"Q8_0": "int8:g32", "Q4_0": "int4:g32", "Q4_1": "uint4:g32"}.get(kind, kind.lower())
            convert_model(plain, home / "m.gguf", dtype=scheme)
            plain.unlink()
        else:
            _overwrite(home / "m.gguf", kind)

    return make


def _overwrite(path: Path, kind: str) -> None:
    """Give all matrices of a file random blocks of a type that is only read."""
    rng, file = np.random.default_rng(1), GGUFFile(path)
    sizes, tensors = GGUF_TYPES[TYPE_NUMBERS[kind]], {}
    for name, entry in file.entries.items():
        raw, named = file.raw(name).copy(), entry.type
        if len(entry.shape) > 1:
            blocks = entry.shape[0] * entry.shape[1] // sizes.block
            raw, named = rng.integers(0, 60, blocks * sizes.block_bytes, np.uint8), kind
        tensors[name] = GGUFTensorOut(type=named, shape=entry.shape, read=lambda raw=raw: raw)
    numbers = {int: np.uint32, float: np.float32}
    metadata = {key: numbers.get(type(value), lambda same: same)(value) for key, value in file.metadata.items()}
    write_gguf(path, metadata, tensors)  # pyright: ignore[reportArgumentType]  (the file has no lists)


def with_session(home: Path) -> None:
    """Save a session."""
    with load(TINY / "gpt2", device="reference", context=16) as model:
        session = model.session()
        list(session.stream([1, 2, 3], max_tokens=2))
        session.save(home / "s.state")


def without_configuration(source: Path) -> Callable[[Path], object]:
    """Return a maker that takes the weights of a model alone."""
    return lambda home: shutil.copy(source / "model.safetensors", home)


def kinds() -> dict[str, Kind]:
    """Return all kinds by their names."""
    tiny, encoders, images = _models(TINY), _models(ENCODERS), _models(FIXTURES / "hf_multimodal")
    adapters = sorted(path.parent for path in (FIXTURES / "peft").glob("*/adapter_config.json"))
    weights = sorted(path.parent for path in (FIXTURES / "detect").glob("*/model.safetensors"))
    return {
        **{f"hf {path.name}": Kind(copy_of(path), use) for path in (*tiny, *images)},
        **{f"hf {path.name}": Kind(encoder(path), use) for path in encoders},
        **{f"gguf {path.name}": Kind(as_gguf(sayable(path)), use_file) for path in tiny},
        **{f"gguf {path.name}": Kind(as_gguf(encoder(path)), use_file) for path in encoders},
        **{f"blocks {kind}": Kind(in_blocks(kind), use_file) for kind in sorted(BLOCK_TYPES | DECODED_TYPES)},
        **{f"quantised {path.name}": Kind(copy_of(path), use_directory) for path in _models(FIXTURES / "quantised")},
        **{f"lora {path.name}": Kind(copy_of(path), use_adapter) for path in adapters},
        **{
            f"guess {path.name}": Kind(
                without_configuration(path), functools.partial(use_guess, guess=TOLD.get(path.name, True))
            )
            for path in (*weights, *tiny[::4])
        },
        "texts hf": Kind(with_texts, use_directory),
        "texts gguf": Kind(as_gguf(with_texts), use_file),
        "texts native": Kind(calibrated, use_directory),
        "tokenizer vocab.txt": Kind(with_vocabulary_file, use_directory),
        "tokenizer unigrams": Kind(with_pieces("xlm_roberta"), use_directory),
        "tokenizer unigrams gguf": Kind(as_gguf(with_pieces("t5")), use_file),
        "tokenizer pieces": Kind(with_pieces("llama"), use_directory),
        "tokenizer pieces gguf": Kind(as_gguf(with_pieces("llama")), use_file),
        "shards": Kind(in_shards, use_directory),
        "native layers": Kind(native_layers, use),
        "loom": Kind(with_loom, use_each),
        "session": Kind(with_session, use_session),
    }


def _models(home: Path) -> list[Path]:
    return sorted(path.parent for path in home.glob("*/config.json"))


class Damaged:
    """Models of all kinds in a directory, one file of which is damaged at a time.

    Parameters
    ----------
    home : an empty directory
    only : kinds that are tried, all by default
    """

    def __init__(self, home: Path, only: list[str] | None = None) -> None:
        self.home = home
        known = kinds()
        self.kinds = {name: known[name] for name in only or known}
        self.made: dict[str, list[Path]] = {}

    def files(self, kind: str) -> list[Path]:
        """Return the files of a kind, relative to its directory; none for a model that has no such form."""
        if kind not in self.made:
            directory = self.home / kind
            directory.mkdir()
            try:
                self.kinds[kind].make(directory)
            except UnsupportedError:
                shutil.rmtree(directory)
                directory.mkdir()
            found = sorted(path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
            self.made[kind] = [path for path in found if path.name not in ANSWERS]
        return self.made[kind]

    def attempt(self, number: int) -> tuple[str, Callable[[], object]]:
        """Name of the file that mutation `number` damages, and what a user does with it then."""
        rng = random.Random(number)
        name = list(self.kinds)[number % len(self.kinds)]
        files = self.files(name)
        if not files:
            return f"{name}/-", lambda: None
        target = self.home / "try"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.home / name, target)
        file = files[number // len(self.kinds) % len(files)]
        damage(target / file, rng)

        def call() -> None:
            with np.errstate(all="ignore"):  # damaged weights are no numbers
                self.kinds[name].use(target)

        return f"{name}/{file}", call
