"""Hold what is computed from GGUF files to llama.cpp on the same files: logits, greedy tokens, token ids.

    python -m venv /tmp/peer && /tmp/peer/bin/pip install llama-cpp-python
    python -m benchmarks compare_gguf --llama-python /tmp/peer/bin/python families
    python -m benchmarks compare_gguf --llama-python /tmp/peer/bin/python --torch-python HF odd [FAMILY …]
    python -m benchmarks compare_gguf --llama-python /tmp/peer/bin/python chunks
    python -m benchmarks compare_gguf --llama-python /tmp/peer/bin/python model MODEL.gguf --device cpu
    python -m benchmarks compare_gguf --llama-python /tmp/peer/bin/python model MODEL.gguf --exact
    python -m benchmarks compare_gguf --llama-python /tmp/peer/bin/python embeddings MODEL.gguf
    python -m benchmarks compare_gguf --llama-python /tmp/peer/bin/python table MODEL.Q4_K_M.gguf MODEL.Q6_K.gguf …

`families` writes the tiny models of tests/fixtures/hf_tiny as GGUF files and compares all logits after 25 ids, and
those of hf_encoders, and compares the mean of their hidden states. `odd` makes the models of odd_configurations.py with
transformers, in a Python that has it, and holds both our file's logits, here and in llama.cpp, and those of the
checkpoint to transformers'; what is refused is listed with its reason. `chunks` takes the tiny Llama 4, whose chunks
are of 8192 tokens, beyond the end of two of them. `model` takes a real file that generates: greedy
tokens, the 20 likeliest tokens with their logits, and the token ids of a set of texts. The difference of logits is
relative to the largest of them. llama.cpp runs in a process of its own; there too keys and values are float32. It
rounds activations to 8 bits beside quantised weights, and so does our CPU, so two digits agree then; `--exact` gives
it a copy of the file in float32, made by its own quantiser, and takes our reference device: the weights are the same
numbers, and nothing is rounded. `table` does so for many files, on our CPU without rounding. Its GELU is a table of
float16. `embeddings` takes an encoder: the ids of the texts, and cosines of the embeddings of those ids.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arguments import argument_parser
from benchmarks.workers import run_once

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import volumetric as vo  # noqa: E402 (the line above must come first)
from volumetric.base.errors import UnsupportedError  # noqa: E402
from volumetric.devices.named_devices import open_device  # noqa: E402
from volumetric.loaders import LoadedModel, open_model  # noqa: E402
from volumetric.loaders.convert_model import convert_model, save_model  # noqa: E402
from volumetric.loaders.encoder_layers import network_up_to  # noqa: E402
from volumetric.loaders.sentence_modules import SentenceEncoding  # noqa: E402
from volumetric.loaders.tokenizer import Tokenizer  # noqa: E402
from volumetric.run.device import RunOptions  # noqa: E402
from volumetric.run.lower import lower  # noqa: E402

TINY = ROOT / "tests" / "fixtures" / "hf_tiny"
ENCODERS = ROOT / "tests" / "fixtures" / "hf_encoders"
TEXTS = ROOT / "tests" / "loaders" / "data" / "nasty_texts.json"
IDS = [1, 5, 9, 80, 7, 33, 25, 8, 4, 19, 77, 11, 30, 6, 5, 2, 8, 90, 12, 13, 17, 60, 61, 62, 63]
TOP = 20
PROMPTS = ("The capital of France is", "def fibonacci(n):\n", "Once upon a time")
LIMIT = 1e-3
"""Largest relative difference of logits in tiny models: the float16 table of GELU makes 4e-4, all else 1e-6."""
CONTEXT = 256
"""Tokens of a sequence there, where a context is a multiple of this; longrope depends on it."""
EVERY, FURTHEST = 500, 16_500
MEAN = SentenceEncoding(pooling=("mean",))
MORE = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26, 43, 38, 32, 79, 50, 28, 84, 19]
"""Further ids, so that windows of 8 and contexts of 32 end within the text."""


def our_logits(model: LoadedModel, ids: list[int], device: str) -> np.ndarray:
    """Logits after each of `ids`."""
    executable = open_device(device).compile(lower(model.network, CONTEXT), model.params)
    state = executable.new_state()
    return np.concatenate([executable.forward(state, np.array([id], np.int32)) for id in ids])


def their_logits(python: str, path: Path, ids: list[int], home: Path) -> np.ndarray:
    (home / "ids.json").write_text(json.dumps(ids))
    run_once(python, "llamacpp_worker.py", "logits", str(path), str(home / "ids.json"), str(home / "logits.npy"))
    return np.load(home / "logits.npy")


def compare_families(python: str, device: str, home: Path) -> bool:
    good = True
    for directory in sorted(path for path in TINY.iterdir() if (path / "config.json").is_file()):
        path = home / f"{directory.name}.gguf"
        try:
            convert_model(str(directory), path)
        except UnsupportedError as error:
            print(f"{directory.name:20}  not written: {str(error).splitlines()[0]}")
            continue
        ours, theirs = our_logits(open_model(str(path)), IDS, device), their_logits(python, path, IDS, home)
        error = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
        good &= error < LIMIT
        print(f"{directory.name:20}  {error:.1e}" + ("" if error < LIMIT else "  DIFFERS"))
    return good


def compare_chunks(python: str, home: Path) -> bool:
    """Logits of Llama 4 after every `EVERY` tokens, further than two chunks."""
    path, ids = home / "llama4.gguf", (IDS * FURTHEST)[:FURTHEST]
    convert_model(str(TINY / "llama4_sparse"), path)
    model, options = open_model(str(path)), RunOptions(context=FURTHEST, compute="float32", kv_dtype="float32")
    run = open_device("cpu").compile(lower(model.network, FURTHEST), model.params, options)
    state, pieces = run.new_state(), np.array(ids, np.int32).reshape(-1, EVERY)
    ours = np.concatenate([run.forward(state, piece) for piece in pieces])
    theirs = their_logits(python, path, ids, home)[EVERY - 1 :: EVERY]
    error = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    print(f"llama4 up to token {FURTHEST}: {error:.1e}")
    return error < LIMIT


def compare_encoders(python: str, home: Path) -> bool:
    good = True
    for directory in sorted(path for path in ENCODERS.iterdir() if (path / "config.json").is_file()):
        path = home / f"{directory.name}.gguf"
        try:
            model = dataclasses.replace(open_model(str(directory)), tokenizer=None, sentences=MEAN)
            save_model(path, model, "gguf")
        except UnsupportedError as error:
            print(f"{directory.name:20}  not written: {str(error).splitlines()[0]}")
            continue
        written, ids = open_model(str(path)), [id for id in IDS if id < 60]
        executable = open_device("reference").compile(lower(written.network), written.params)
        rows = executable.forward(executable.new_state(), np.array(ids, np.int32), last_only=False)
        (home / "ids.json").write_text(json.dumps([ids]))
        run_once(python, "llamacpp_worker.py", "embed", str(path), str(home / "ids.json"), str(home / "rows.npy"))
        theirs = np.load(home / "rows.npy")[0]
        error = float(np.abs(rows.mean(0) - theirs).max() / np.abs(theirs).max())
        good &= error < LIMIT
        print(f"{directory.name:20}  {error:.1e}" + ("" if error < LIMIT else "  DIFFERS"))
    return good


def compare_odd(python: str, torch_python: str, families: list[str], home: Path) -> bool:
    """Compare the models of odd_configurations.py; returns whether each is equal, or refused."""
    ids, script = [*IDS, *MORE], Path(__file__).with_name("odd_models_worker.py")
    (home / "odd.json").write_text(json.dumps(ids))
    subprocess.run([torch_python, str(script), str(home), str(home / "odd.json"), *families], check=True)
    told: dict[str, list[str]] = {}
    counts = Counter[str]()
    for record in json.loads((home / "made.json").read_text()):
        outcome, text = ("not made", record["error"]) if record["error"] else odd_one(python, ids, home, record)
        counts[outcome] += 1
        told.setdefault(record["family"], []).append(f"{record['name']}: {outcome} {text}")
        print(f"{record['family']:14} {record['name']:28} {outcome:9} {text}", flush=True)
    print("\n" + ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    return not counts.keys() - {"equal", "refused", "not made"}


def odd_one(python: str, ids: list[int], home: Path, record: dict[str, Any]) -> tuple[str, str]:
    """Return what comes of one model, and differences from transformers or the reason why it is not written."""
    directory, path = home / str(record["number"]), home / "odd.gguf"
    expected = np.load(directory / "expected.npy")
    try:
        model = open_model(str(directory))
    except UnsupportedError as refusal:
        return "refused", f"the checkpoint: {str(refusal).splitlines()[0].partition(': ')[2]}"
    encodes = any(spec.two_way for spec in model.network.layers.values())

    def error(found: np.ndarray) -> float:
        wanted = expected.mean(0) if found.ndim == 1 else expected
        return float(np.abs(found - wanted).max() / np.abs(wanted).max())

    def rows(model: LoadedModel) -> np.ndarray:
        network = model.network if model.hidden is None or not encodes else network_up_to(model.network, model.hidden)
        run = open_device("reference").compile(lower(network, CONTEXT), model.params)
        return run.forward(run.new_state(), np.array(ids, np.int32), last_only=False)

    ours = error(rows(model))
    if ours >= LIMIT:
        return "WRONG", f"checkpoint {ours:.1e}"
    try:
        if encodes:
            model = dataclasses.replace(model, tokenizer=None, sentences=MEAN)
        save_model(path, model, "gguf")
    except UnsupportedError as refusal:
        return "refused", str(refusal).splitlines()[0]
    again = error(rows(open_model(str(path))))
    try:
        if encodes:
            (home / "ids.json").write_text(json.dumps([ids]))
            run_once(python, "llamacpp_worker.py", "embed", str(path), str(home / "ids.json"), str(home / "rows.npy"))
            theirs = error(np.load(home / "rows.npy")[0])
        else:
            theirs = error(their_logits(python, path, ids, home))
    except (subprocess.CalledProcessError, SystemExit) as failure:
        return "FAILS", f"llama.cpp: {str(failure)[-120:]}"
    text = f"checkpoint {ours:.1e}, file {again:.1e}, llama.cpp {theirs:.1e}"
    return "equal" if max(again, theirs) < LIMIT else "DIFFERS", text


def compare_model(python: str, path: Path, device: str, count: int, home: Path) -> None:
    original = path
    if device == "reference":
        run_once(python, "llamacpp_worker.py", "variants", str(path), str(home), "F32")
        path = home / "F32.gguf"
    with vo.load(str(original), device=device) as model:
        tokenizer = model.tokenizer
        if tokenizer is None:
            raise SystemExit(f"error: {path} has no tokenizer")
        compare_texts(python, path, tokenizer, home)
        for prompt in PROMPTS:
            same, theirs, ours = same_tokens(python, path, model, prompt, count, home)
            print(f"{prompt!r}: {same} of {len(theirs)} greedy tokens are the same: {tokenizer.decode(ours)!r}")
    ids = tokenizer.encode(PROMPTS[0])
    ours, theirs = our_logits(open_model(str(original)), ids, device)[-1], their_logits(python, path, ids, home)[-1]
    print(f"logits differ by {np.abs(ours - theirs).max() / np.abs(theirs).max():.1e} of the largest")
    best = np.argsort(-theirs)[:TOP]
    found = set(np.argsort(-ours)[:TOP].tolist())
    print(f"top {TOP}: {len(found & set(best.tolist()))} are the same")
    for id in best:
        print(f"{id:8} {tokenizer.token(int(id))!r:20} {theirs[id]:9.4f} {ours[id]:9.4f} {ours[id] - theirs[id]:+.4f}")


def compare_files(python: str, paths: list[Path], count: int, home: Path) -> None:
    """Print a line of a table for each file: logits and greedy tokens beside llama.cpp, nothing rounded by either.

    Where another token is the likeliest, that follows: by how much the two logits differ, in llama.cpp and here.
    """
    print("| file | top 20 logits differ by at most | of the largest | the same 20 | greedy tokens that are the same |")
    print("| --- | --- | --- | --- | --- |")
    for path in sorted(paths):
        run_once(python, "llamacpp_worker.py", "variants", str(path), str(home), "F32")
        with vo.load(path, device="cpu", compute="float32", kv_dtype="float32", context=CONTEXT) as model:
            ids = model.encode(PROMPTS[0])
            ours, theirs = model.logits(ids)[-1], their_logits(python, home / "F32.gguf", ids, home)[-1]
            same, greedy, made = same_tokens(python, home / "F32.gguf", model, PROMPTS[0], count, home, exact=True)
            gap = ""
            if same < len(greedy):
                before, pair = ids + greedy[:same], [greedy[same], made[same]]
                rows = their_logits(python, home / "F32.gguf", before, home)[-1], model.logits(before)[-1]
                gap = "; then {:.1e} and {:.1e}".format(*(float(row[pair[0]] - row[pair[1]]) for row in rows))
        best = np.argsort(-theirs)[:TOP]
        error, both = np.abs(ours - theirs)[best].max(), len({*best.tolist()} & {*np.argsort(-ours)[:TOP].tolist()})
        share = error / np.abs(theirs).max()
        print(f"| {path.name} | {error:.1e} | {share:.1e} | {both} | {same} of {len(greedy)}{gap} |", flush=True)


def same_tokens(
    python: str, path: Path, model: vo.Model, prompt: str, count: int, home: Path, *, exact: bool = False
) -> tuple[int, list[int], list[int]]:
    """How many greedy tokens after a prompt are the same before the first that is not, and those of both."""
    ids = model.encode(prompt)
    (home / "ids.json").write_text(json.dumps(ids))
    more = [str(count - 1), *(["exact"] if exact else [])]
    theirs = json.loads(run_once(python, "llamacpp_worker.py", "greedy", str(path), str(home / "ids.json"), *more))
    ours = list(model.generate(ids, max_tokens=count, temperature=0.0, ignore_eos=True).token_ids)
    same = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    return same, theirs, ours


def their_ids(python: str, path: Path, texts: list[str], home: Path) -> list[dict[str, Any]]:
    """What llama.cpp's tokenizer makes of texts."""
    (home / "texts.json").write_text(json.dumps(texts))
    return json.loads(run_once(python, "llamacpp_worker.py", "encode", str(path), str(home / "texts.json")))


def compare_texts(python: str, path: Path, tokenizer: Tokenizer, home: Path) -> None:
    texts = json.loads(TEXTS.read_text(encoding="utf-8"))
    records = their_ids(python, path, texts, home)
    wrong = [r["text"] for r in records if tokenizer.encode(r["text"], add_special_tokens=False) != r["ids"]]
    print(f"ids of {len(texts) - len(wrong)} of {len(texts)} texts are the same")
    for text in wrong:
        print(f"  differs: {text[:60]!r}")


def compare_embeddings(python: str, path: Path, device: str, home: Path) -> None:
    texts = json.loads(TEXTS.read_text(encoding="utf-8"))
    records = their_ids(python, path, texts, home)
    with vo.load(path, device=device) as model:
        given = [(text, model.encode(text)) for text in texts]
        given = [(text, ids) for text, ids in given if len(ids) <= model.text_encoder.limit]
        ours = model.embed([text for text, _ in given], normalise=True)
    (home / "ids.json").write_text(json.dumps([ids for _, ids in given]))
    run_once(python, "llamacpp_worker.py", "embed", str(path), str(home / "ids.json"), str(home / "rows.npy"))
    theirs = np.load(home / "rows.npy")
    cosines = (ours * theirs).sum(1) / np.linalg.norm(theirs, axis=1)
    around = {record["text"]: record["around"] for record in records}
    wrong = [text for text, ids in given if around[text] != ids]
    print(f"ids of {len(given) - len(wrong)} of {len(given)} texts are the same")
    for text in wrong:
        print(f"  differs: {text[:60]!r}")
    print(f"cosines of embeddings of the same ids: {cosines.min():.7f} to {cosines.max():.7f}")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--llama-python", required=True, help="a Python that has llama-cpp-python")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--exact", action="store_true", help="round no activations on either side")
    parser.add_argument("what", choices=("families", "chunks", "model", "embeddings", "odd", "table"))
    parser.add_argument("--torch-python", help="a Python that has torch and transformers, for odd")
    parser.add_argument("paths", nargs="*", type=Path, help="files; of odd the families, all unless given")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        if args.what == "embeddings":
            compare_embeddings(args.llama_python, args.paths[0], args.device, Path(home))
        elif args.what == "odd":
            if not compare_odd(args.llama_python, args.torch_python, [str(path) for path in args.paths], Path(home)):
                raise SystemExit(1)
        elif args.what == "chunks":
            if not compare_chunks(args.llama_python, Path(home)):
                raise SystemExit(1)
        elif args.what == "table":
            compare_files(args.llama_python, args.paths, args.tokens, Path(home))
        elif args.what == "model":
            device = "reference" if args.exact else args.device
            compare_model(args.llama_python, args.paths[0], device, args.tokens, Path(home))
        else:
            device = "reference" if args.device == "cpu" else args.device
            decoders = compare_families(args.llama_python, device, Path(home))
            if not compare_encoders(args.llama_python, Path(home)) or not decoders:
                raise SystemExit(1)


if __name__ == "__main__":
    main()
