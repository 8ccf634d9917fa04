"""Numba's `njit` and `cfunc`, for processes that share the cache of what was compiled.

Numba keeps compiled functions in files beside their source, and per function a list of which file
has the code for which argument types. It knows nothing of other processes (0.68): two that need the
same function both compile it, and if they do so for different types, both save under the same name,
and from then on the list gives code for other types: a loop that was compiled for a count of zero,
for instance, which skips what it should look at and says nothing.

Here one process at a time loads, compiles and saves a function; another that needs it waits, and
then loads it. Nobody waits for ever: who waits for a function holds only those that call it, so
that two wait for each other only if functions call each other, which the system notices; and it
takes the lock from a process that ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any
from zlib import crc32

from llvmlite import ir
from numba import cfunc, njit, types
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic

__all__ = ["cfunc", "has_columns", "inner", "natural", "njit", "prefetch", "write_prefetch"]

# For functions that compiled ones alone call. Python cannot: the code that would unpack its values
# is left out, which for functions of many arrays is half of what is compiled.
inner = partial(njit, cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)

# By folder, and never closed: to close a file gives up all locks that the process has on it.
_files: dict[Path, int] = {}
_held: set[tuple[Path, int]] = set()


def _alone(compile: Callable[..., Any]) -> Callable[..., Any]:
    """Load or compile, and save, while no other process does so with the same function."""

    @wraps(compile)
    def compile_alone(function: Any, *signature: Any) -> Any:
        cache = function._cache
        if not isinstance(cache, FunctionCache):  # it is not kept: each process needs its own
            return compile(function, *signature)
        with global_compiler_lock, _lock(cache._cache_file):
            return compile(function, *signature)

    return compile_alone


@contextmanager
def _lock(index: Any) -> Iterator[None]:
    """One byte, chosen by the function's name, of a file in the folder of its cache."""
    folder, byte = Path(index._cache_path), crc32(index._index_name.encode())
    if (folder, byte) in _held:  # it calls itself
        yield
        return
    with suppress(OSError):  # a folder that cannot be written to: nobody saves there
        if folder not in _files:
            folder.mkdir(parents=True, exist_ok=True)
            _files[folder] = os.open(folder / ".compiling", os.O_WRONLY | os.O_CREAT, 0o644)
        fcntl.lockf(_files[folder], fcntl.LOCK_EX, 1, byte)
        _held.add((folder, byte))
    try:
        yield
    finally:
        if (folder, byte) in _held:
            _held.remove((folder, byte))
            fcntl.lockf(_files[folder], fcntl.LOCK_UN, 1, byte)


Dispatcher.compile = _alone(Dispatcher.compile)  # type: ignore[method-assign]
CFunc.compile = _alone(CFunc.compile)  # type: ignore[method-assign]


def is_cached(function: Any) -> bool:
    """Whether the cache has code of the function as its file is now, for some argument types."""
    return bool(function._cache._cache_file._load_index())


def write_prefetch(builder: Any, begin: Any) -> None:
    """Write code that has the processor fetch the cache line of a pointer to bytes."""
    flag = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [begin.type, flag, flag, flag])
    fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    builder.call(fetch, [begin, flag(0), flag(3), flag(1)])  # to read, keep it near, it is data


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(_: Any, table: Any, row: Any, column: Any) -> Any:
    """Have the processor fetch a cell that will be read soon; any number may be given for a row."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        steps = cgutils.unpack_tuple(builder, array.strides, 2)
        at = builder.add(builder.mul(arguments[1], steps[0]), builder.mul(arguments[2], steps[1]))
        begin = builder.bitcast(array.data, ir.IntType(8).as_pointer())
        write_prefetch(builder, builder.gep(begin, [at]))
        return context.get_dummy_value()

    return types.void(table, types.intp, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def has_columns(_: Any, table: Any, count: Any) -> Any:
    """A table has so many columns, and the compiler may count on it: it adds to find a row.

    Where one does not, what is read and written is undefined.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        has = cgutils.unpack_tuple(builder, array.shape, 2)[1]
        builder.assume(builder.icmp_signed("==", has, arguments[1]))
        return context.get_dummy_value()

    return types.void(table, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def natural(_: Any, number: Any) -> Any:
    """A number that is not negative, and the compiler may count on it.

    Numba lets an index count from the end if it is negative, which takes four instructions more.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.assume(builder.icmp_signed(">=", arguments[0], arguments[0].type(0)))
        return arguments[0]

    return number(number), generate
