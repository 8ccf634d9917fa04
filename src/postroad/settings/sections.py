"""Settings read key by key, with errors that name the key, and the line where it is known.

A table of settings is a dataclass: its fields are the keys, its defaults theirs, and what a value
must be is checked where it is made, so that Python callers and files get the same errors.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from postroad.errors import InputError, choice_of, slip_for

T = TypeVar("T")
_MISSING: Any = object()
_WORDS = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


class Section:
    """One table of a settings file. `take` each known key, then call `done`."""

    def __init__(
        self, values: Any, where: str, path: str = "", lines: Mapping[str, int] | None = None
    ) -> None:
        self.where, self.path = where, path
        self.lines = lines or {}  # on which line each key stands, where that is known
        if not isinstance(values, Mapping):
            raise self._wrong(path or "the file", values, "give a table")
        self.values: dict[str, Any] = dict(values)
        self.known: list[str] = []

    def take(self, key: str, kind: type[T], default: Any = _MISSING, least: Any = None) -> T:
        """The value of a key, of this type (a whole number also passes for a float)."""
        self.known.append(key)
        if key not in self.values:
            if default is _MISSING:
                slip = slip_for(key, self.values)
                if slip is not None:
                    raise InputError(
                        f"{self._key(key)} is missing, and there is {self._key(slip)}",
                        where=self._place(self._key(slip)),
                        remedy=f"did you mean {key!r}?",
                    )
                raise InputError(
                    f"{self._key(key)} is missing",
                    where=self._place(self.path),
                    remedy=f"set it to {_WORDS[kind]}",
                )
            return default  # type: ignore[no-any-return]
        value = self.values.pop(key)
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind and not (kind is dict and isinstance(value, Mapping)):
            raise self._wrong(self._key(key), value, f"give {_WORDS[kind]}")
        if least is not None and not value >= least:
            raise self._wrong(self._key(key), value, f"give {least} or more")
        return value  # type: ignore[return-value]

    def any(self, key: str) -> Any:
        """The value of a key as it is, or None."""
        self.known.append(key)
        return self.values.pop(key, None)

    def choice(self, key: str, choices: list[str], default: Any = _MISSING) -> str:
        value = self.take(key, str, default)
        if value not in choices:
            near = difflib.get_close_matches(value, choices, 1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise self._wrong(self._key(key), value, f"{meant}choose one of: {', '.join(choices)}")
        return value

    def section(self, key: str) -> Section:
        """The table under a key; an empty one if it is absent."""
        return Section(self.take(key, dict, {}), self.where, self._key(key), self.lines)

    def done(self) -> None:
        """Complain of the first key that nobody took."""
        for key, value in self.values.items():
            remedy = choice_of(key, self.known, "known")
            raise InputError(
                f"unknown key {self._key(key)} = {value!r}",
                where=self._place(self._key(key)),
                remedy=remedy,
            )

    def configure(self, config: type[T]) -> T:
        """A dataclass of parameters from this section, field by field."""
        hints = get_type_hints(config)
        values: dict[str, Any] = {}
        for field in dataclasses.fields(config):  # type: ignore[arg-type]
            kind, optional = _plain(hints[field.name])
            default: Any = _MISSING if field.default is dataclasses.MISSING else field.default
            if optional and default is _MISSING:
                default = None
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            values[field.name] = self.take(field.name, kind, default)
        self.done()
        try:
            return config(**values)
        except InputError as error:
            raise error.at(self.place) from None

    @property
    def place(self) -> str:
        """Where this table stands."""
        place = self._place(self.path)
        return f"{place}: {self.path}" if place == self.where and self.path else place

    def wrong(self, key: str, value: Any, remedy: str) -> InputError:
        return self._wrong(self._key(key), value, remedy)

    def _key(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _wrong(self, key: str, value: Any, remedy: str) -> InputError:
        return InputError(f"{key} is {value!r}", where=self._place(key), remedy=remedy)

    def _place(self, key: str) -> str:
        """The file, with the line of the key or else of the table it is in."""
        while key and key not in self.lines:
            key = key.rpartition(".")[0]
        return f"{self.where}:{self.lines[key]}" if key else self.where


def at_least(settings: object, least: float, *names: str) -> None:
    """Each of these settings is at least so large, where it is given."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value >= least:
            raise InputError(f"{name} is {value!r}", remedy=f"give {least} or more")


def at_most(settings: object, most: float, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value <= most:
            raise InputError(f"{name} is {value!r}", remedy=f"give {most} or less")


def above(settings: object, bound: float, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value > bound:
            raise InputError(f"{name} is {value!r}", remedy=f"give a number above {bound}")


def key_lines(text: str) -> dict[str, int]:
    """On which line of a TOML text each key and table stands, for error messages only."""
    lines: dict[str, int] = {}
    table = ""
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if line.startswith("[["):
            name = line.strip("[] ")
            table = f"{name}[{counts.get(name, 0)}]"
            counts[name] = counts.get(name, 0) + 1
            lines.setdefault(table, number)
        elif line.startswith("[") and line.endswith("]") and "=" not in line:
            table = line.strip("[] ").replace('"', "")
            lines.setdefault(table, number)
        elif "=" in line and not line.startswith(("#", '"""', "'")):
            key = line.partition("=")[0].strip().strip('"')
            lines.setdefault(f"{table}.{key}" if table else key, number)
    return lines


def _plain(hint: Any) -> tuple[type, bool]:
    """The type behind a hint, and whether None is allowed too."""
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        assert len(kinds) == 1, hint
        return kinds[0], True
    return get_origin(hint) or hint, False
