"""Compilation of all CPU kernels: one set of Numba options, and one cache of compiled code.

Numba's own cache checks only the file of the compiled function, so an edit in an imported module (every micro-kernel
here) would leave stale code behind. The kernels of a module are therefore cached in a directory named by a hash of the
module and everything it imports; for a module of another package, of all its modules and what they import from this
one. Set ``VOLUMETRIC_JIT_CACHE=0`` to compile anew in every process.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding
import numba
import numba.extending
import platformdirs
from numba import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.ccallback import CFunc
from numba.core.runtime._nrt_python import c_helpers

import volumetric
from volumetric.base.registry import import_named, on_redefinition
from volumetric.devices.cpu.kernels import inner_kernels
from volumetric.devices.cpu.kernels.kernel_files import KernelFiles

_log = logging.getLogger(__name__)

FASTMATH = frozenset({"contract", "reassoc", "nsz", "arcp"})
"""Never ``nnan`` or ``ninf``: masked attention scores are minus infinity."""

OPERATION = types.void(types.int64, types.int64, types.int64, types.int64)
"""Signature of an operation: (step address, thread, threads, control address)."""

_IMPORT = re.compile(
    r"^(?:from (volumetric(?:\.\w+)*) import (\([^)]*\)|.*)|import (volumetric(?:\.\w+)+).*)$", re.MULTILINE
)

_PACKAGE = Path(volumetric.__file__).resolve().parent
_KERNELS = _PACKAGE / "devices" / "cpu" / "kernels"

_Function = TypeVar("_Function", bound=Callable[..., Any])


@cache
def source_hash(module: Path) -> str:
    """Hash of the source of a kernel module and of everything it imports, and of the compiler's version."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(_sources(module)):
        digest.update(str(path.relative_to(_PACKAGE)).encode() if path.is_relative_to(_PACKAGE) else path.name.encode())
        digest.update(_read(path))
    return digest.hexdigest()[:16]


def _sources(module: Path) -> set[Path]:
    """`module`, the compilation settings, and every file of the package that either needs."""
    files = {module, Path(__file__).resolve(), *_package_of(module)}
    unread = list(files)
    while unread:
        new = _imported_files(unread.pop()) - files
        files |= new
        unread += new
    return files


def _package_of(module: Path) -> set[Path]:
    """All modules of the package of a third-party module, because any of them may affect its kernels."""
    home = module.parent
    if module.is_relative_to(_PACKAGE) or not (home / "__init__.py").exists():
        return set()
    while (home.parent / "__init__.py").exists():
        home = home.parent
    return set(home.rglob("*.py"))


@cache
def _imported_files(path: Path) -> set[Path]:
    """The files of this package that `path` imports at top level; for a package outside the kernels, all files."""
    files = set[Path]()
    for source, what, whole in _IMPORT.findall(_read(path).decode()):
        target = _PACKAGE.joinpath(*(source or whole).split(".")[1:])
        if target.with_suffix(".py").exists():
            files.add(target.with_suffix(".py"))
        elif target.is_relative_to(_KERNELS):
            files |= {each for word in re.findall(r"\w+", what) if (each := target / f"{word}.py").exists()}
        else:
            files |= set(target.glob("*.py"))
    return files


@cache
def _read(path: Path) -> bytes:
    return path.read_bytes()


@cache
def cache_root() -> Path | None:
    """The root folder of compiled kernels, or None if caching is disabled."""
    if os.environ.get("VOLUMETRIC_JIT_CACHE", "1") == "0":
        return None
    root = platformdirs.user_cache_path("volumetric", appauthor=False) / "kernels" / volumetric.__version__
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return root if os.access(root, os.W_OK) else None


def cache_directory(module: Path) -> Path | None:
    """The cache directory of a module's kernels, or None if caching is disabled."""
    root = cache_root()
    return root / source_hash(module) if root else None


class _CacheLocator:
    """Tells Numba's cache where to store a function of this package, and when it is stale."""

    def __init__(self, function: Callable[..., Any], path: str) -> None:
        self._stem = f"{Path(path).stem}-{function.__code__.co_firstlineno}"
        self._module = Path(path).resolve()

    @classmethod
    def from_function(cls, function: Callable[..., Any], path: str) -> _CacheLocator | None:
        """Return a locator, or None if there is no cache directory."""
        return cls(function, path) if cache_root() is not None else None

    def ensure_cache_path(self) -> None:
        """Create the cache directory of the module."""
        Path(self.get_cache_path()).mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        """Return the cache directory of the module."""
        return str(cache_directory(self._module))

    def get_source_stamp(self) -> str:
        """Return the hash of all sources that the kernel is compiled from."""
        return source_hash(self._module)

    def get_disambiguator(self) -> str:
        """Return the file stem and first line of the function, which name its cache file."""
        return self._stem


class _CacheImplementation(CompileResultCacheImpl):
    _locator_classes = [_CacheLocator]  # noqa: RUF012 - the attribute that Numba reads


class _CodeOnlyCache(_CacheImplementation):
    """Caches the machine code of a function that is never part of another.

    Numba also stores the bitcode, to link it into other functions, and parses all of it on loading: three quarters of
    the loading time. Of that module it needs only the names of its definitions.
    """

    def reduce(self, cres: Any) -> Any:
        """Return the data to pickle: the machine code, and bitcode that only declares the defined names."""
        (name, kind, (code, _)), *rest = super().reduce(cres)
        wrappers = cres.fndesc.llvm_cpython_wrapper_name, cres.fndesc.llvm_cfunc_wrapper_name
        defined = (each for each in wrappers if cres.library.get_pointer_to_function(each))
        names = "\n".join(f'define void @"{each}"() {{ ret void }}' for each in defined)
        return (name, kind, (code, llvmlite.binding.parse_assembly(names).as_bitcode())), *rest


class _ModuleOnlyCache(_CacheImplementation):
    """Caches the module of a part in separate files, as the same function may be cached as an entry, too (`kernel`)."""

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        """Return Numba's file name with the prefix ``part-``."""
        return f"part-{super().get_filename_base(fullname, abiflags)}"

    def reduce(self, cres: Any) -> Any:
        """Return the data to pickle of a part, see `parts.reduced`."""
        return inner_kernels.reduce_inner_kernel(cres)

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Return the unpickled part, see `parts.rebuilt`."""
        return inner_kernels.rebuild_inner_kernel(target_context, payload)


class _KernelCache(FunctionCache):
    _impl_class = _CacheImplementation

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = KernelFiles(self._cache_path, self._impl.filename_base)

    def has(self, signature: Any, target_context: Any) -> bool:
        """Whether the function is compiled for `signature`, in memory or on disk."""
        return self._cache_file.has(self._index_key(signature, target_context.codegen()))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load without `target_context.refresh`, which Numba's own method calls first.

        Refreshing reads all of Numba's typing rules and compiles its reference counting, which costs 0.3 s and 30 MiB
        and is needed only for compilation: kernels take and return integers. After a miss, compilation refreshes.
        """
        _offer_symbols()
        overload = None
        with self._guard_against_spurious_io_errors():
            overload = self._load_overload(sig, target_context)
        if overload is None:
            _announce()
        return overload


class _EntryCache(_KernelCache):
    _impl_class = _CodeOnlyCache


class _InnerCache(_KernelCache):
    _impl_class = _ModuleOnlyCache


@cache
def _offer_symbols() -> None:
    """Let loaded code link to Numba's allocator, which is called only if an operation raises."""
    for name, address in c_helpers.items():
        llvmlite.binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


@cache
def _announce() -> None:
    """Log once per process why starting takes so long; the command line shows this."""
    _log.info("compiling kernels (first run)…")


def kernel(function: _Function) -> _Function:
    """Compile `function` on first call, without the GIL and with the options that all kernels share.

    It is compiled for the kernels that call it (`parts`), and, if Python calls it, a second time as an `entry`.
    """
    compiled: Any = inner_kernels.InnerKernel(function, _options(), entry)
    if cache_root() is not None:
        compiled._cache = _InnerCache(function)
    return compiled


def entry(function: _Function) -> _Function:
    """Compile `function`, which only Python calls and no kernel, like `kernel`; it loads in a third of the time."""
    compiled: Any = numba.njit(pipeline_class=inner_kernels.KernelPasses, **_options())(function)
    if cache_root() is not None:
        compiled._cache = _EntryCache(function)
    return compiled


def _options() -> dict[str, Any]:
    """Return Numba's options: only operations are called by address (`compile_operation`) and need a C entry point."""
    return {"nogil": True, "error_model": "numpy", "fastmath": set(FASTMATH), "no_cfunc_wrapper": True}


def intrinsic(function: Callable[..., Any]) -> Any:
    """Make a function of LLVM values callable from kernels; constant strings and integers arrive as Python values."""
    return numba.extending.intrinsic(prefer_literal=True)(function)


def compile_operation(function: Callable[..., None]) -> Any:
    """Compile an operation of the plan executor now, or load it from the cache; steps store its ``.address``.

    `function` may close over strings and integers: they are compile-time constants and part of the cache key.
    Anything else in a closure would have a key that changes with every process.
    """
    compiled = _operation(function)
    compiled.compile()
    return compiled


def _operation(function: Callable[..., None]) -> Any:
    constants = [cell.cell_contents for cell in function.__closure__ or ()]
    if not all(isinstance(value, str | int) for value in constants):
        raise TypeError(f"{function.__qualname__} may only close over strings and integers")
    options = {"error_model": "numpy", "fastmath": set(FASTMATH), "nopython": True}
    operation: Any = CFunc(
        function,
        (OPERATION.args, OPERATION.return_type),
        locals={},
        options=options,
        pipeline_class=inner_kernels.KernelPasses,
    )
    if cache_root() is not None:
        operation._cache = _EntryCache(function)
    return operation


class KernelLibrary:
    """Operations by name, compiled on first use, so that a table compiles only the operations it uses.

    The name of an operation of a package is ``module:function``: the operation, or its factory if there are constants.

    Parameters
    ----------
    home : ``module:name`` of the library, for other processes
    plain : name → operation
    specialised : name → factory of the operation from its constants
    """

    def __init__(
        self,
        home: str,
        plain: Mapping[str, Callable[..., None]],
        specialised: Mapping[str, Callable[..., Callable[..., None]]],
    ) -> None:
        self.home = home
        self._plain = plain
        self._specialised = specialised
        self._compiled: dict[tuple[str, tuple[str | int, ...]], Any] = {}
        self._open: dict[tuple[str, tuple[str | int, ...]], Any] = {}
        self._replaced: list[Any] = []  # steps of existing programs still hold their addresses
        on_redefinition(self._forget_formulas)

    def _forget_formulas(self) -> None:
        """Forget operations that are specialised to formulas by their names."""
        for known in (self._compiled, self._open):
            for key in [key for key in known if any(isinstance(each, str) for each in key[1])]:
                self._replaced.append(known.pop(key))

    def compile(self, name: str, *constants: str | int) -> Any:
        """Return operation `name`, specialised to `constants`; steps store its ``.address``."""
        key = name, constants
        if key not in self._compiled:
            operation = self._operation(key)
            operation.compile()
            self._compiled[key] = self._open.pop(key, operation)
        return self._compiled[key]

    def address(self, name: str, *constants: str | int) -> int:
        """Return the address of operation `name`, specialised to `constants`."""
        return self.compile(name, *constants).address

    def is_ready(self, name: str, *constants: str | int) -> bool:
        """Whether the operation was compiled before, by this process or by one that cached it."""
        if (name, constants) in self._compiled:
            return True
        operation = self._operation((name, constants))
        cache = operation._cache
        return isinstance(cache, _KernelCache) and cache.has(operation._sig, operation._targetdescr.target_context)

    def _operation(self, key: tuple[str, tuple[str | int, ...]]) -> Any:
        """Return an operation that is not compiled yet; the same object until it is compiled."""
        if key not in self._open:
            name, constants = key
            if ":" in name:
                function = import_named(name)
                self._open[key] = _operation(function(*constants) if constants else function)
            else:
                make = self._specialised.get(name)
                self._open[key] = _operation(make(*constants) if make else self._plain[name])
        return self._open[key]
