"""A plug-in of pytest that begins each kernel with workgroup memory full of NaN.

It is used by ``pytest -p tests.gpu.uninitialised_memory``. WebGPU fills workgroup memory with zeros before a kernel,
which costs time in each workgroup. Where tests pass with this plug-in, no kernel relies on it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from volumetric.devices.gpu import dispatch_binding
from volumetric.devices.gpu.shaders import LinkedShader

_VARIABLE = re.compile(r"\bvar<workgroup>\s+(\w+)\s*:\s*(?:array<([\w<>]+),\s*([^;]+)>|([\w<>]+))\s*;")
_ALIAS = re.compile(r"\balias\s+(\w+)\s*=\s*([\w<>]+)\s*;")
_MAIN = re.compile(r"(\bfn\s+main\s*\()((?:[^()]|\([^()]*\))*)(\)\s*\{)")
_INDEX = re.compile(r"@builtin\(local_invocation_index\)\s*(\w+)")
_SIZE = re.compile(r"@workgroup_size\(([^)]*)\)")


def _garbage(element: str, at: str) -> str:
    word = f"(0x7fc00000u + {at})"
    kind = re.sub(r"vec\d<(\w+)>", r"\1", element)
    value = {"u32": word, "f16": f"f16(bitcast<f32>({word}))"}.get(kind, f"bitcast<{kind}>({word})")
    return value if kind == element else f"{element}({value})"


def soiled(linked: LinkedShader) -> LinkedShader:
    """Return a module whose entry point begins with writing garbage to all workgroup memory."""
    text, main = linked.text, _MAIN.search(linked.text)
    variables = _VARIABLE.findall(text)
    if not variables or main is None:
        return linked
    index, parameters = _INDEX.search(main[2]), main[2]
    at = index[1] if index else "soil_index"
    if index is None:
        parameters = f"@builtin(local_invocation_index) {at}: u32, {parameters}"
    sizes = [size.strip() for size in re.findall(_SIZE, text)[0].split(",")]
    aliases, lines = dict(_ALIAS.findall(text)), []
    for name, element, length, scalar in variables:
        element, target = element or scalar, f"{name}[soil]" if length else name
        element = aliases.get(element, element)
        if element.startswith("atomic<"):
            write = f"atomicStore(&{target}, {_garbage(element[7:-1], at)});"
        else:
            write = f"{target} = {_garbage(element, at)};"
        count = length or "1u"
        lines.append(f"for (var soil = {at}; soil < {count}; soil += {' * '.join(sizes)}) {{ {write} }}")
    body = "\n".join([main[1] + parameters + main[3], *lines, "workgroupBarrier();\n"])
    return replace(linked, text=text[: main.start()] + body + text[main.end() :])


def pytest_configure(config: Any) -> None:
    """Let every context compile soiled modules."""
    link = dispatch_binding.link
    dispatch_binding.link = lambda *args, **options: soiled(link(*args, **options))
