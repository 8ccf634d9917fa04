"""A compiled table in a file that any number of processes read, in one copy of the memory.

`save` writes the arrays of a table one after another, each where a cache line begins, after what
is not an array (attributes, codes, conjunctions that Python must check). `load` maps the file: the
arrays are pages of the file that the operating system holds once for all processes of a host. Only
what a match writes to (the point, candidates, answers) is each process's own. A mapped page that
somebody writes to becomes the writer's own copy, so no process can harm another.

The file is read by the version that wrote it, on a machine of the same byte order; it is no
format to keep. Arrays of the caller's own may lie beside those of the table.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from postroad import __version__
from postroad.matching import kernels, native
from postroad.matching.compiled import Compiled, native_works, ready
from postroad.matching.ids import Ids
from postroad.matching.verdicts import Verdicts

Array = npt.NDArray[Any]
_LINE = 64
_MAGIC = b"postroad table\n"
_MAPPED = (
    "breaks", "lines", "windows", "heads", "couples", "blocks", "rows", "rests", "words",
    "allocator", "homes",
)  # fmt: skip


class Shared(Compiled[int]):
    """A table that was saved: it matches, and nothing is inserted or removed."""

    def __init__(self, arrays: Mapping[str, Array], rest: Mapping[str, Any]) -> None:
        for name in _MAPPED:
            setattr(self, f"_{name}", arrays[name])
        self._attributes = rest["attributes"]
        self._nullable = rest["nullable"]
        self._checks = rest["checks"]
        self._grams = rest["grams"]
        self._channels = rest["channels"]
        self._verdicts = Verdicts(len(arrays["names"]))
        self._ids = Ids()
        self._ids.names = arrays["names"]
        self._pairs = np.zeros((64, 2))
        self._new_scratch()
        self._count = rest["count"]
        self._state = np.zeros(native.STATE, dtype=np.int64)
        self._native = native.matcher(self._state.ctypes.data) if native_works() else None
        self._stale = True

    def __len__(self) -> int:
        return int(self._count)

    def insert(self, id: int, filter: Any) -> None:
        raise AssertionError("a shared table does not change")

    def remove(self, id: int) -> None:
        raise AssertionError("a shared table does not change")


def save(index: Compiled[int], path: Path, beside: Mapping[str, Array] | None = None) -> None:
    """Write a table whose ids are integers, and arrays beside it; whole, or not at all."""
    index._renumber()
    if index._live:
        index._refile()
    allocator = index._allocator
    rows, words, blocks = (
        int(allocator[top]) for top in (kernels.ROWS_TOP, kernels.WORDS_TOP, kernels.BLOCKS_TOP)
    )
    numbers = index._ids.rows
    ends = {"rows": rows, "rests": rows, "words": words, "blocks": blocks, "homes": numbers}
    arrays = {name: getattr(index, f"_{name}")[: ends.get(name)] for name in _MAPPED}
    arrays["names"] = np.array(index._ids.names[:numbers].tolist(), dtype=np.int64)
    rest = {
        "attributes": index._attributes,
        "nullable": index._nullable,
        "checks": index._checks,
        "grams": index._grams,
        "channels": index._channels,
        "count": len(index),
    }
    parts = {f"table.{name}": array for name, array in arrays.items()}
    parts |= {f"beside.{name}": array for name, array in (beside or {}).items()}
    _write(path, parts, rest)


def _write(path: Path, arrays: Mapping[str, Array], rest: Mapping[str, Any]) -> None:
    layout, at = [], 0
    for name, array in arrays.items():
        layout.append((name, array.dtype.str, array.shape, at))
        at += -(-array.nbytes // _LINE) * _LINE
    head = pickle.dumps((__version__, layout, rest), protocol=pickle.HIGHEST_PROTOCOL)
    begin = -(-(len(_MAGIC) + 8 + len(head)) // _LINE) * _LINE
    coming = path.with_name(f".{path.name}.writing")
    with coming.open("wb") as file:
        file.write(_MAGIC + len(head).to_bytes(8, "little") + head)
        for (_, _, _, start), array in zip(layout, arrays.values(), strict=True):
            file.seek(begin + start)
            file.write(np.ascontiguousarray(array).data)
        file.truncate(begin + at)
    os.replace(coming, path)


def load(path: Path) -> tuple[Shared, dict[str, Array]]:
    """The table of a file, and the arrays beside it. The kernels are loaded too."""
    with path.open("rb") as file:
        assert file.read(len(_MAGIC)) == _MAGIC, f"{path} is no table"
        size = int.from_bytes(file.read(8), "little")
        version, layout, rest = pickle.loads(file.read(size))
    assert version == __version__, f"{path} was written by Postroad {version}"
    ready()
    begin = -(-(len(_MAGIC) + 8 + size) // _LINE) * _LINE
    mapped = np.memmap(path, np.uint8, mode="c")
    table: dict[str, Array] = {}
    beside: dict[str, Array] = {}
    for name, kind, shape, at in layout:
        nbytes = int(np.prod(shape)) * np.dtype(kind).itemsize
        array = np.asarray(mapped[begin + at : begin + at + nbytes]).view(kind).reshape(shape)
        part, _, plain = name.partition(".")
        (table if part == "table" else beside)[plain] = array
    return Shared(table, rest), beside
