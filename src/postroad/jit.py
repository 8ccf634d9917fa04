"""Numba's `njit` and `cfunc`, for processes that share the cache of what was compiled.

Numba keeps compiled functions in files beside their source, and a list of which file has the code
for which argument types. To save, a process reads the list, takes the next free name, writes the
list, then the file (0.68). Of two processes that save the same function for different types at
once, both take the same name, and from then on the list gives code for other types: a loop that was
compiled for a count of zero, for instance, which skips what it should look at and says nothing.
Here one process at a time saves in a folder, and nobody reads meanwhile.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from numba import cfunc, njit
from numba.core import caching

__all__ = ["cfunc", "inner", "njit"]

# For functions that compiled ones alone call. Python cannot: the code that would unpack its values
# is left out, which for functions of many arrays is half of what is compiled.
inner = partial(njit, cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


class _Locked(caching.IndexDataCacheFile):  # type: ignore[misc]
    """The files of one function, saved and read under a lock of their folder."""

    def save(self, key: Any, data: Any) -> None:
        with self._lock(fcntl.LOCK_EX):
            super().save(key, data)

    def load(self, key: Any) -> Any:
        if not Path(self._index_path).exists():
            return None
        with self._lock(fcntl.LOCK_SH):
            return super().load(key)

    @contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        try:
            file = (Path(self._cache_path) / ".compiling").open("ab")
        except OSError:  # a folder that cannot be written to: nobody saves there
            yield
            return
        with file:
            fcntl.flock(file, kind)
            yield


caching.IndexDataCacheFile = _Locked


def is_cached(function: Any) -> bool:
    """Whether the cache has code of the function as its file is now, for some argument types."""
    return bool(function._cache._cache_file._load_index())
