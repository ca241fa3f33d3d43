"""What hostile chat templates and damaged model files do: time, memory, and errors that are not this package's own.

    python benchmarks/hostile_input.py                    # 10,000 mutations and all templates, some minutes
    python benchmarks/hostile_input.py --mutations 500 --only templates

Every input runs in a child process that is watched from outside: one that takes longer than ten seconds counts as a
hang and is killed. Printed are counts for each reader, the slowest inputs, and the largest resident memory of a child.
The exit status is 1 if there was a foreign exception, a hang, or more than 1 GiB.
"""

from __future__ import annotations

import argparse
import collections
import json
import logging
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1]))

from volumetric.errors import VolumetricError
from volumetric.loaders import ChatTemplate, open_model
from volumetric.loaders.convert import convert_model

ROOT = Path(__file__).parents[1]
TEMPLATES = Path(__file__).parent / "data" / "hostile_templates.txt"
TINY = ROOT / "tests" / "fixtures" / "hf_tiny"
ENCODERS = ROOT / "tests" / "fixtures" / "hf_encoders"
QUANTISED = ROOT / "tests" / "fixtures" / "quantised"
HANG_SECONDS, MOST_BYTES = 10.0, 2**30
MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
Outcome = tuple[str, str]
"""Kind of what happened (``"ok"``, the name of an own error, or ``"FOREIGN …"``), and the first words of it."""


def read_templates() -> dict[str, str]:
    """Name → source: those of the file, and some that are made here because of their length."""
    found: dict[str, str] = {}
    name = ""
    for line in TEMPLATES.read_text(encoding="utf-8").splitlines():
        if line.startswith("@ "):
            name = line[2:]
        elif not line.startswith("#"):
            found[name] = line.replace("LONG", "x" * 50_000).replace("COUNTS", "{% set y = x.count('a') %}" * 2000)
    return found | {
        "many outputs": "{{ a }}" * 9_000,
        "many branches": "{% if a == 1 %}b{% endif %}" * 3_000,
        "many loops": "{% for i in range(99999) %}{% endfor %}" * 2_500,
        "many numbers as keys": "{{ {" + ",".join(f"{i * (2**61 - 1)}: 1" for i in range(6000)) + "} | length }}",
        "many brackets": "{{ " + "(" * 100_000 + ")" * 100_000 + " }}",
        "many lists": "{{ " + "[" * 90 + "1" + "]" * 90 + " }}",
        "many concatenations": "{{ " + "~".join(["'a'"] * 19_000) + " }}",
        "many sums": "{{ " + "+".join(["1"] * 300) + " }}",
        "many filters": "{{ 'a' " + "| upper " * 300 + "}}",
        "many attributes": "{{ a" + ".b" * 300 + " }}",
        "nested conditions": "{% if a %}" * 10_000 + "{% endif %}" * 10_000,
        "nested loops of all depths": "{% for i in [1, 2] %}" * 60 + "x" + "{% endfor %}" * 60,
        "nested macros": "{% macro f0() %}a{% endmacro %}" + "".join(map(_doubling, range(1, 60))) + "{{ f59() }}",
        "long text": "x" * 249_000,
        "too long text": "x" * 300_000,
        "not closed": "{{ 'a" * 50_000,
        "many comments": "{#" * 50_000,
    }


def _doubling(number: int) -> str:
    """Source of a macro that calls the one before it twice."""
    before = f"{{{{ f{number - 1}() }}}}"
    return f"{{% macro f{number}() %}}{before}{before}{{% endmacro %}}"


def render(source: str) -> None:
    """Render a template as `Model.chat` would."""
    ChatTemplate({"default": source}, {"bos_token": "<s>"}, "hostile").render(MESSAGES)


def outcome_of(call: Callable[[], object]) -> Outcome:
    """Say how a call ended."""
    try:
        call()
    except VolumetricError as error:
        return type(error).__name__, ascii(str(error))[:100]
    except BaseException as error:  # PanicException of Rust is none of Exception's
        return f"FOREIGN {type(error).__name__}", ascii(str(error))[:200]
    return "ok", ""


class Readers:
    """One model for each reader, and what is tried with a damaged one."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.directories = {"hf": home / "hf", "neox": home / "neox", "native": home / "native", "loom": home / "loom"}
        shutil.copytree(TINY / "llama", home / "hf")
        shutil.copytree(TINY / "gpt_neox", home / "neox")
        self._add_texts(home / "hf")
        weight_map = dict.fromkeys(_tensor_names(home / "neox" / "model.safetensors"), "model.safetensors")
        index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
        (home / "neox" / "model.safetensors.index.json").write_text(json.dumps(index))
        convert_model(home / "hf", home / "native")
        for name in ("gguf", "gguf4", "gemma3", "cohere2", "bert"):
            (home / name).mkdir()
            self.directories[name] = home / name
        convert_model(home / "hf", home / "gguf" / "m.gguf")
        convert_model(home / "hf", home / "gguf4" / "m.gguf", dtype="int4")
        for family in ("gemma3", "cohere2"):
            convert_model(TINY / family, home / family / "m.gguf")
        convert_model(ENCODERS / "sentences_mean", home / "bert" / "m.gguf")
        self._add_loom(home / "loom")
        for method in sorted(path.parent.name for path in QUANTISED.glob("*/config.json")):
            self.directories[method] = home / method
            shutil.copytree(QUANTISED / method, home / method)
        self.files = [
            (kind, path.relative_to(directory))
            for kind, directory in self.directories.items()
            for path in sorted(directory.rglob("*"))
            if path.is_file() and path.name != "expected.json"
        ]

    @staticmethod
    def _add_texts(directory: Path) -> None:
        """Give a model without words a tokenizer of bytes, a chat template and defaults."""
        from volumetric.loaders.byte_tokenizer import byte_tokenizer_json

        tokenizer = json.loads(byte_tokenizer_json())
        tokenizer["pre_tokenizer"]["use_regex"] = True  # so that GGUF has a name for it
        (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
        template = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}"
        texts = {"chat_template": template, "bos_token": "a", "eos_token": {"content": "b"}, "add_bos_token": True}
        (directory / "tokenizer_config.json").write_text(json.dumps(texts))
        (directory / "special_tokens_map.json").write_text(json.dumps({"pad_token": "c"}))
        defaults = {"eos_token_id": [1, 2], "do_sample": True, "temperature": 0.5, "top_k": 5, "max_new_tokens": 3}
        (directory / "generation_config.json").write_text(json.dumps(defaults))

    @staticmethod
    def _add_loom(directory: Path) -> None:
        directory.mkdir()
        for name in ("attention", "cnn2", "lstm", "sequential", "swiglu"):
            cases = json.loads((ROOT / "tests" / "fixtures" / "loom" / f"{name}.json").read_text())["cases"]
            for number, case in enumerate((cases[0], cases[-1])):
                (directory / f"{name}{number}.json").write_text(json.dumps(case["file"]))

    def mutated(self, number: int) -> tuple[str, Path]:
        """Directory with one damaged file, and the name of what was damaged."""
        rng = random.Random(number)
        kind, file = self.files[number % len(self.files)]
        target = self.home / "try"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.directories[kind], target)
        path = target / file
        data = bytearray(path.read_bytes())
        structured = path.suffix == ".json" and rng.random() < 0.7
        path.write_bytes(_json_damage(data, rng) if structured else _byte_damage(data, rng))
        source = path if kind in ("gguf", "gguf4", "loom") else target
        return f"{kind}/{file}", source


def _tensor_names(path: Path) -> list[str]:
    head = path.read_bytes()
    names = json.loads(head[8 : 8 + int.from_bytes(head[:8], "little")])
    return [name for name in names if name != "__metadata__"]


def _byte_damage(data: bytearray, rng: random.Random) -> bytes:
    """Flip, cut, repeat or overwrite bytes; half of the time near the start, where lengths and names are."""
    for _ in range(rng.choice((1, 1, 2, 8))):
        reach = min(len(data), rng.choice((64, 4096, len(data)))) or 1
        at, length = rng.randrange(reach), rng.choice((1, 1, 2, 4, 8, 64))
        match rng.randrange(6):
            case 0:
                data[at : at + 1] = bytes([data[at] ^ 1 << rng.randrange(8)]) if data else b"x"
            case 1:
                data[at : at + length] = rng.randbytes(length)
            case 2:
                del data[at : at + length]
            case 3:
                data[at:at] = data[at : at + length] * rng.choice((1, 2, 100))
            case 4:
                data[at : at + 8] = rng.choice((0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)).to_bytes(8, "little")
            case _:
                del data[rng.randrange(len(data) + 1) :]
    return bytes(data)


ODD: tuple[Any, ...] = (
    None,
    0,
    -1,
    1,
    4096,
    2**31,
    2**63,
    10**30,
    1e308,
    float("nan"),
    True,
    "",
    "x",
    "\ud800",
    "a" * 5000,
)
ODD += ([], {}, [[]], [1], {"a": 1}, "../x", "9" * 5000, "\0")


def _json_damage(data: bytearray, rng: random.Random) -> bytes:
    """Replace, delete, rename or repeat values of a JSON text."""
    value = json.loads(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            break
        where, key = rng.choice(places)
        match rng.randrange(5):
            case 0 | 1:
                where[key] = rng.choice(ODD)
            case 2:
                del where[key]
            case 3:
                other, name = rng.choice(places)
                where[key] = other.get(name) if isinstance(other, dict) else other[name] if name < len(other) else None
            case _:
                if isinstance(where, dict):
                    where[str(rng.choice(ODD))] = where.pop(key)
                else:
                    where.extend(where[:50] * 3)
    try:
        return json.dumps(value).encode()
    except (ValueError, RecursionError):  # a value that holds itself
        return b"{}"


def _places(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Containers and keys of a JSON value, no more than some of each container."""
    keys = list(value)[:40] if isinstance(value, dict) else range(min(len(value), 8)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        if depth < 6:
            yield from _places(value[key], depth + 1)


def use(source: Path) -> None:
    """Open a model, and go on to what a user does next as far as it lets us."""
    import numpy as np

    from volumetric.generate import load

    model = open_model(str(source))
    if model.tokenizer is not None:
        ids = model.tokenizer.encode("Hello <s> wörld 12")
        decoder = model.tokenizer.decoder()
        for id in (*ids, 5, 10**6):
            decoder.push(id)
        decoder.flush()
    if model.chat_template is not None:
        model.chat_template.render(MESSAGES)
    with load(source, device="reference", context=8) as opened:
        first = opened.plan.values[opened.plan.inputs[0]]
        if any(spec.two_way for spec in model.network.layers.values()):
            opened.embed(["Hello wörld 12"])
        elif first.dtype == "int32":
            opened.generate([1, 2, 3], max_tokens=2)
        else:
            rows = np.zeros((2, *first.shape[1:]), np.float32)
            opened.executable.forward(opened.executable.new_state(), rows, last_only=False)


def worker(link: Connection, what: str, begin: int, end: int) -> None:
    """Child: run inputs ``begin … end-1`` and report each."""
    logging.disable(logging.CRITICAL)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # Rust writes of its panics there
    templates = list(read_templates().items())
    with tempfile.TemporaryDirectory() as home:
        readers = Readers(Path(home)) if what == "mutations" else None
        for number in range(begin, end):
            if readers is None:
                name, source = templates[number]
                link.send((number, name))
                outcome = outcome_of(lambda source=source: render(source))
            else:
                name, path = readers.mutated(number)
                link.send((number, name))
                outcome = outcome_of(lambda path=path: use(path))
            link.send((outcome, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))
    link.send(None)


class Tally:
    """What happened to all inputs of one kind."""

    def __init__(self) -> None:
        self.outcomes: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.times: list[tuple[float, str]] = []
        self.bad: list[str] = []
        self.peak = 0

    def add(self, name: str, number: int, outcome: Outcome, seconds: float, peak: int) -> None:
        """Take note of one input."""
        group = name if "/" in name else "templates"
        self.outcomes[group][outcome[0]] += 1
        self.times.append((seconds, f"{name} #{number}"))
        if outcome[0].startswith("FOREIGN") or seconds > HANG_SECONDS or (peak > max(self.peak, MOST_BYTES)):
            self.bad.append(f"{name} #{number}: {outcome[0]} {outcome[1]} after {seconds:.1f} s, peak {peak >> 20} MiB")
        self.peak = max(self.peak, peak)

    def show(self) -> None:
        """Print it."""
        for name, counts in sorted(self.outcomes.items()):
            print(f"  {name:44}", ", ".join(f"{kind} {count}" for kind, count in counts.most_common()))
        slowest = sorted(self.times, reverse=True)[:5]
        print("  slowest:", "; ".join(f"{name} {seconds:.2f} s" for seconds, name in slowest))
        print(f"  inputs {len(self.times)}, largest resident memory {self.peak >> 20} MiB, faults {len(self.bad)}")
        for text in self.bad[:50]:
            print("  FAULT", text)


def run(what: str, begin: int, end: int) -> Tally:
    """Run inputs in children, a new one after a hang or a crash."""
    tally = Tally()
    context = multiprocessing.get_context("spawn")
    while begin < end:
        ours, theirs = context.Pipe()
        child = context.Process(target=worker, args=(theirs, what, begin, end), daemon=True)
        child.start()
        theirs.close()
        begin = _follow(cast("Connection", ours), child, tally, begin)
    return tally


def _follow(link: Connection, child: Any, tally: Tally, begin: int) -> int:
    """Read a child's reports to its end; return the number of the input to go on with."""
    number, name = begin, ""
    try:
        while (told := link.recv()) is not None:
            number, name = told
            started = time.perf_counter()
            if not link.poll(3 * HANG_SECONDS):
                child.kill()
                tally.add(name, number, ("HANG", ""), time.perf_counter() - started, 0)
                return number + 1
            outcome, peak = link.recv()
            tally.add(name, number, outcome, time.perf_counter() - started, peak)
    except EOFError:
        child.join()
        if not name:
            sys.exit("a child cannot start")
        tally.add(name, number, (f"FOREIGN death with status {child.exitcode}", ""), 0.0, 0)
    return number + 1


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--from", dest="first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--only", choices=["templates", "mutations"])
    given = parser.parse_args()
    bad = False
    for what in ("templates", "mutations"):
        if given.only in (None, what):
            start, count = (0, len(read_templates())) if what == "templates" else (given.first, given.mutations)
            began = time.perf_counter()
            tally = run(what, start, start + count)
            print(f"{what}: {time.perf_counter() - began:.0f} s")
            tally.show()
            bad = bad or bool(tally.bad)
    sys.exit(bad)


if __name__ == "__main__":
    main()
