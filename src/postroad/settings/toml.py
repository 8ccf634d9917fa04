"""The one reader of TOML files."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from postroad.errors import InputError
from postroad.settings.sections import Section, key_lines


def read(path: Path) -> Section:
    """A file's top table, which knows on which line its keys stand."""
    text = read_text(path)
    return Section(parse(text, str(path)), str(path), lines=key_lines(text))


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error.strerror}", remedy="check the file's name"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start} is not UTF-8", where=str(path), remedy="save the file as UTF-8"
        ) from None


def parse(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not TOML: {error}", where=where, remedy="mend that line") from None
    except RecursionError:
        raise InputError(
            "not TOML: nested too deeply", where=where, remedy="nest fewer lists and tables"
        ) from None
