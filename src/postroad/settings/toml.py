"""The one reader of TOML files."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from postroad.errors import InputError
from postroad.overlay.files import readable
from postroad.settings.sections import Section, key_lines

DEPTH_MAX = 32  # tables and lists within each other


def read(path: Path) -> Section:
    """A file's top table, which knows on which line its keys stand."""
    text = read_text(path)
    return Section(parse(text, str(path)), str(path), lines=key_lines(text))


def read_text(path: Path) -> str:
    with readable(path) as file:
        return file.read()


def parse(text: str, where: str) -> dict[str, Any]:
    try:
        values = tomllib.loads(text)
        deep = _depth(values) > DEPTH_MAX
    except RecursionError:
        deep = True
    except ValueError as error:  # also a number of too many digits
        raise InputError(f"not TOML: {error}", where=where, remedy="mend that line") from None
    if deep:
        raise InputError(
            f"tables and lists lie more than {DEPTH_MAX} deep within each other",
            where=where,
            remedy="write what this file is for, which is never so deep",
        )
    return values


def _depth(values: Any) -> int:
    depth, level = 0, [values]
    while level:
        depth += 1
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
    return depth
