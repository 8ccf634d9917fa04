"""Everything Postroad raises on purpose.

PostroadError
├── InputError        what the user gave is wrong: file, line or key, value, remedy
│   └── FilterError   a filter text that does not parse, or that grows too large
├── Unsupported       a kernel or scheme was asked for something it states it leaves out
└── RunFailed         a simulation, sweep or job did not finish, or a check did not hold

A bug of ours is an `assert`; a peer's bad message is dropped with a `Note`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PostroadError(Exception):
    """The root: catch this to catch everything Postroad raises on purpose."""


class InputError(PostroadError):
    """The user's input is wrong. The text says where, what value, and what to do."""

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what, self.where, self.remedy = what, where, remedy
        text = f"{where}: {what}" if where else what
        super().__init__(f"{text}; {remedy}" if remedy else text)

    def at(self, where: str) -> InputError:
        """The same complaint, placed in a file and line or under a key."""
        place = f"{where}: {self.where}" if self.where else where
        return type(self)(self.what, where=place, remedy=self.remedy)


class FilterError(InputError):
    """A filter text that does not parse, or whose normal form is too large."""


class Unsupported(PostroadError):
    """Asked of a kernel or scheme what its docstring says it leaves out."""


class RunFailed(PostroadError):
    """A run did not finish, or what it was checked against did not hold."""


def choice_of(word: object, known: Iterable[object], otherwise: str = "choose one of") -> str:
    """A remedy for a word that is none of those known: the nearest one, or all of them."""
    names = [str(name) for name in known]
    near = difflib.get_close_matches(str(word), names, 1)
    return f"did you mean {near[0]!r}?" if near else f"{otherwise}: {', '.join(names) or 'none'}"


def slip_for(word: str, written: Iterable[str]) -> str | None:
    """Which of the words that were written is this one with a letter or two wrong, if one is."""
    near = difflib.get_close_matches(word, [*written], 1, cutoff=0.75)
    return near[0] if near else None
