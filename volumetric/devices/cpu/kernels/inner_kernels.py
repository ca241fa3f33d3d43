"""Kernels as parts of others: compiled only as far as linking needs, and made callable only if Python calls one.

Numba compiles every function as if Python called it: it writes a wrapper that takes Python objects, and machine code of
both. Of a kernel inside others only the optimised LLVM module is ever read, which is linked into its callers and
becomes machine code there. So compilation of a part ends with that module, which is also all that is cached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding
from numba.core import compiler, dispatcher
from numba.core.codegen import JITCodeLibrary
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import InlineOverloads, NopythonRewrites
from numba.core.untyped_passes import InlineClosureLikes

_NEVER = {InlineClosureLikes, InlineOverloads, NopythonRewrites}


class _InnerModule(JITCodeLibrary):
    """An optimised LLVM module to link into others, never compiled to machine code by itself."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class KernelPasses(compiler.Compiler):
    """Numba's passes, without three for features that kernels never use: closures, inlined overloads, arrays.

    Each traverses a function's whole code, and Numba repeats its analysis afterwards.
    """

    def define_pipelines(self) -> list[Any]:
        """Return Numba's pipeline without the passes in `_NEVER`."""
        (manager,) = super().define_pipelines()
        manager.passes = [each for each in manager.passes if each[0] not in _NEVER]
        manager.finalize()
        return [manager]


class _InnerPasses(KernelPasses):
    """The same passes, ending with that module."""

    def compile_extra(self, func: Callable[..., Any]) -> Any:
        """Compile a function into a separate module."""
        self.state.library = _InnerModule(self.state.targetctx.codegen(), func.__qualname__)
        return super().compile_extra(func)


class _InnerCompiler(dispatcher._FunctionCompiler):  # pyright: ignore[reportAttributeAccessIssue] - stubs leave it out
    def _customize_flags(self, flags: Any) -> Any:
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
        return flags

    def _compile_core(self, args: Any, return_type: Any) -> Any:
        return register_inner_kernel(super()._compile_core(args, return_type))


class InnerKernel(CPUDispatcher):
    """A kernel for other kernels to call. If Python calls it, it is compiled once more, by `callable_of`."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], callable_of: Callable[..., Any]) -> None:
        super().__init__(function, targetoptions={**options, "nopython": True}, pipeline_class=_InnerPasses)
        self._compiler = _InnerCompiler(function, self.targetdescr, self.targetoptions, self.locals, _InnerPasses)
        self._callable_of = callable_of
        self._called: Any = None

    def add_overload(self, cres: Any) -> None:
        """Keep the compiled module, without offering it to Python."""
        self.overloads[tuple(cres.signature.args)] = cres

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self._called is None:
            self._called = self._callable_of(self.py_func)
        return self._called(*arguments, **named)


def register_inner_kernel(result: Any) -> Any:
    """Tell Numba what to link for a call of the part; a call refers to it by a placeholder for its address."""
    result = result._replace(entry_point=object())
    result.target_context.insert_user_function(result.entry_point, result.fndesc, [result.library])
    return result


def reduce_inner_kernel(result: Any) -> Any:
    """Return the data cached for a part."""
    result.fndesc.typemap = result.fndesc.calltypes = None
    name, _, bitcode = result.library.serialize_using_bitcode()
    return name, bitcode, result.fndesc, result.signature


def rebuild_inner_kernel(target: Any, stored: Any) -> Any:
    """Return a part from its cached data."""
    name, bitcode, description, signature = stored
    library = _InnerModule(target.codegen(), name)
    library._final_module = llvmlite.binding.parse_bitcode(bitcode)
    library._finalize_final_module()
    return compiler.compile_result(
        typing_context=target.typing_context,
        target_context=target,
        library=library,
        entry_point=object(),
        fndesc=description,
        signature=signature,
        objectmode=False,
        lifted=(),
    )
