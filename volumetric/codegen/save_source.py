"""Writes a network as one file of Python or C that needs nothing else."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Final

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.atomic import write_atomic
from volumetric.base.errors import UnsupportedError
from volumetric.codegen.network_code import MAX_WEIGHTS, NetworkCode, network_code
from volumetric.codegen.source_language import PYTHON, C, SourceLanguage
from volumetric.network import Network
from volumetric.network.weight_store import WeightStore

__all__ = ["MAX_WEIGHTS", "save_c", "save_python"]

_WIDE: Final = 112


def save_python(
    path: str | os.PathLike[str],
    network: Network,
    params: Mapping[str, WeightStore],
    *,
    classes: Sequence[str] = (),
) -> None:
    """Write a network as a Python file that imports ``math`` alone.

    The file has a function ``predict(input)``, from a list of numbers to a list of numbers (row-major), with further
    inputs of the network as further arguments; a network with states has a class ``State``, and ``predict(input,
    state)`` is one row of a sequence. Run as a script it reads a row of numbers a line from stdin and prints a line for
    each. It computes in double precision with the stored weights.

    Parameters
    ----------
    path : ends in ``.py``
    params : weights; packed ones are written as the numbers that they stand for
    classes : names of the classes of the output; the file has ``classify(input)``, too

    Raises
    ------
    UnsupportedError
        The network is too large (`MAX_WEIGHTS`), or has a layer that cannot be written; the message names it.
    """
    _check_suffix(path, ".py")
    code = network_code(network, params, PYTHON)
    write_atomic(path, python_text(code, _about(code, network), classes).encode())


def save_c(
    path: str | os.PathLike[str],
    network: Network,
    params: Mapping[str, WeightStore],
    *,
    classes: Sequence[str] = (),
) -> None:
    """Write a network as a C file (C99) that includes ``<math.h>`` and ``<stdio.h>`` alone.

    The file has ``void predict(const double *input, double *output)``, with the further inputs and outputs as further
    arguments; a network with states has a struct ``State`` (zeros at the start), whose address comes last. ``main``
    reads rows of numbers from stdin: ``cc -O2 out.c -o out -lm``. With ``-DNO_MAIN`` there is no ``main``. Parameters
    and errors as for `save_python`.
    """
    _check_suffix(path, ".c")
    code = network_code(network, params, C)
    write_atomic(path, c_text(code, _about(code, network), classes).encode())


def _check_suffix(path: str | os.PathLike[str], suffix: str) -> None:
    if Path(path).suffix != suffix:
        raise UnsupportedError(f"{path}: the name must end in {suffix}", hint=f"name it {Path(path).stem}{suffix}")


def _about(code: NetworkCode, network: Network) -> str:
    """Return what the network is, in a sentence without its verb."""
    count = sum(values.size for values in code.weights.values())
    return f"A network of {len(network.layers)} layers and {count:,} weights"


def _first_lines(code: NetworkCode, about: str) -> list[str]:
    from volumetric import __version__

    def rows(ports: Mapping[str, Shape]) -> str:
        return ", ".join(f"{name} {list(shape) or 'one number'}" for name, shape in ports.items())

    states = f" It keeps {sum(map(prod, code.states.values()))} numbers from row to row." if code.states else ""
    return [
        f"{about}, written by volumetric {__version__}.",
        f"A row of inputs: {rows(code.inputs)}. A row of outputs: {rows(code.outputs)}.{states}",
    ]


def _number(value: float, language: SourceLanguage) -> str:
    """Return a number with the digits that determine a float32; in C its array rounds to exactly that."""
    if not np.isfinite(value):
        return language.number(float(value))
    if value.is_integer() and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.9g}"


def _literals(values: Array, language: SourceLanguage, left: str, right: str) -> str:
    lines, line = list[str](), "   "
    for value in values.astype(np.float64).tolist():
        text = f" {_number(value, language)},"
        if len(line) + len(text) > _WIDE:
            lines.append(line)
            line = "   "
        line += text
    return "\n".join([left, *lines, line, right])


def python_text(code: NetworkCode, about: str, classes: Sequence[str] = ()) -> str:
    """Return the text of a Python file; `about` says what the network is."""
    parts = [
        '"""' + "\n".join(_first_lines(code, about)).replace("\\", "\\\\").replace('"', "'") + '\n"""\n',
        "import math\n",
    ]
    parts += [PYTHON.helpers[name] for name in code.helpers]
    parts += [f"{name} = " + _literals(values, PYTHON, "[", "]") + "\n" for name, values in code.weights.items()]
    arguments = [*code.inputs, *(["state"] if code.states else [])]
    if classes:
        parts.append(f"CLASSES = {list(classes)!r}\n")
    if code.states:
        parts.append(
            'class State:\n    """What the network keeps from row to row; a new one starts a sequence."""\n\n'
            "    def __init__(self):\n"
            + "".join(f"        self.{name} = [0.0] * {max(prod(shape), 1)}\n" for name, shape in code.states.items())
        )
    results = [*code.results.values()]
    sizes = [
        f"    if len({name}) != {max(prod(shape), 1)}:\n"
        f'        raise ValueError("{name}: expected {max(prod(shape), 1)} numbers, got %d" % len({name}))\n'
        for name, shape in code.inputs.items()
    ]
    returned = results[0] if len(results) == 1 else f"{', '.join(results)}"
    says = "Return " + ", ".join(code.outputs) + " for a row of " + ", ".join(code.inputs)
    body = "\n".join(code.lines)
    parts.append(
        f'def predict({", ".join(arguments)}):\n    """{says}, as lists of numbers."""\n{"".join(sizes)}{body}\n'
        f"    return {returned}\n"
    )
    if classes:
        parts.append(
            f'def classify({", ".join(arguments)}):\n    """Return the name of the most likely class."""\n'
            f"    scores = predict({', '.join(arguments)})\n"
            + ("    scores = scores[0]\n" if len(results) > 1 else "")
            + "    return CLASSES[max(range(len(scores)), key=scores.__getitem__)]\n"
        )
    parts.append(_python_main(code, classes))
    return "\n\n".join(part.rstrip("\n") + "\n" for part in parts).replace("\n\n\n\n", "\n\n\n")


def _python_main(code: NetworkCode, classes: Sequence[str]) -> str:
    """Return the `main` of a Python file."""
    cuts, at = list[str](), 0
    for shape in code.inputs.values():
        cuts.append(f"numbers[{at}:{at + max(prod(shape), 1)}]")
        at += max(prod(shape), 1)
    call = ", ".join([*cuts, *(["state"] if code.states else [])])
    lines = [
        "def main():",
        '    """Read a row of numbers a line from stdin, and print its outputs."""',
        *(["    state = State()"] if code.states else []),
        "    number = 0",
        "    while True:",
        "        try:",
        '            words = input().replace(",", " ").split()',
        "        except EOFError:",
        "            return",
        "        number += 1",
        "        if not words:",
        "            continue",
        "        try:",
        "            numbers = [float(word) for word in words]",
        "        except ValueError as error:",
        '            raise SystemExit("line %d: %s" % (number, error))',
        f"        if len(numbers) != {at}:",
        f'            raise SystemExit("line %d: expected {at} numbers, got %d" % (number, len(numbers)))',
        f"        rows = predict({call})",
        *(["        rows = [number for row in rows for number in row]"] if len(code.results) > 1 else []),
        *(["        print(CLASSES[max(range(len(rows)), key=rows.__getitem__)], end=' ')"] if classes else []),
        '        print(*("%.9g" % number for number in rows))',
        "",
        "",
        'if __name__ == "__main__":',
        "    main()",
    ]
    return "\n".join(lines)


def c_text(code: NetworkCode, about: str, classes: Sequence[str] = ()) -> str:
    """Return the text of a C file; `about` says what the network is."""
    first = [*_first_lines(code, about), "cc -O2 THIS.c -o net -lm; a row of numbers a line goes to its stdin."]
    parts = ["\n".join(f"// {line}" for line in first), "#include <math.h>\n#include <stdio.h>\n"]
    parts += [C.helpers[name] for name in code.helpers]
    parts += [
        f"static const float {name}[{max(values.size, 1)}] = " + _literals(values, C, "{", "};")
        for name, values in code.weights.items()
    ]
    if code.states:
        fields = "".join(f"    double {name}[{max(prod(shape), 1)}];\n" for name, shape in code.states.items())
        parts.append(
            "// What the network keeps from row to row; zeros start a sequence.\ntypedef struct {\n"
            + fields
            + "} State;\n"
        )
    if classes:
        plain = (re.sub(r"[\x00-\x1f\x7f]", " ", name) for name in classes)
        names = ", ".join(json.dumps(name, ensure_ascii=False).replace("?", "\\?") for name in plain)
        parts.append(f"static const char *const CLASSES[{len(classes)}] = {{{names}}};\n")
    targets = [f"{name}_out" for name in code.outputs]
    arguments = [f"const double *{name}" for name in code.inputs] + [f"double *{name}" for name in targets]
    arguments += ["State *state"] if code.states else []
    copies = [
        f"    for (int i = 0; i < {max(prod(shape), 1)}; i++) {target}[i] = {result}[i];"
        for target, result, shape in zip(targets, code.results.values(), code.outputs.values(), strict=True)
    ]
    parts.append(f"void predict({', '.join(arguments)}) {{\n" + "\n".join([*code.lines, *copies]) + "\n}\n")
    parts.append(_c_main(code, classes))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _c_main(code: NetworkCode, classes: Sequence[str]) -> str:
    """Return the `main` of a C file."""
    inputs = [max(prod(shape), 1) for shape in code.inputs.values()]
    outputs = [max(prod(shape), 1) for shape in code.outputs.values()]
    starts = [sum(inputs[:i]) for i in range(len(inputs))]
    ends = [sum(outputs[:i]) for i in range(len(outputs))]
    call = [f"x + {at}" for at in starts] + [f"y + {at}" for at in ends] + (["&state"] if code.states else [])
    best = [
        "            int top = 0;",
        f"            for (int i = 1; i < {len(classes)}; i++) if (y[i] > y[top]) top = i;",
        '            printf("%s ", CLASSES[top]);',
    ]
    lines = [
        "#ifndef NO_MAIN",
        "int main(void) {",
        f"    static double x[{sum(inputs)}], y[{sum(outputs)}];",
        *(["    static State state;"] if code.states else []),
        "    int n = 0;",
        "    for (long line = 1;;) {",
        "        int c = getchar();",
        "        if (c == ' ' || c == ',' || c == '\\t' || c == '\\r') continue;",
        "        if (c != '\\n' && c != EOF) {",
        "            double number;",
        "            ungetc(c, stdin);",
        '            if (scanf("%lf", &number) != 1) {',
        '                fprintf(stderr, "line %ld: expected numbers\\n", line);',
        "                return 1;",
        "            }",
        f"            if (n < {sum(inputs)}) x[n] = number;",
        "            n++;",
        "            continue;",
        "        }",
        f"        if (n && n != {sum(inputs)}) {{",
        f'            fprintf(stderr, "line %ld: expected {sum(inputs)} numbers, got %d\\n", line, n);',
        "            return 1;",
        "        }",
        "        if (n) {",
        f"            predict({', '.join(call)});",
        *(best if classes else []),
        f'            for (int i = 0; i < {sum(outputs)}; i++) printf(i ? " %.9g" : "%.9g", y[i]);',
        '            printf("\\n");',
        "        }",
        "        if (c == EOF) return 0;",
        "        n = 0;",
        "        line++;",
        "    }",
        "}",
        "#endif",
    ]
    return "\n".join(lines)
