"""LIKE patterns: `%` is any run of characters, `_` any one character, backslash escapes both.

A pattern is cut at its `%` into segments. Between two `%` the leftmost occurrence of a segment
is always the right one, so matching walks the text once and never backtracks: the time is at
most text length times pattern length, and about the text length without `_`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from postroad.errors import FilterError

_LAST = chr(0x10FFFF)


def escape(text: str) -> str:
    """The pattern that matches exactly `text`."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def segments(pattern: str) -> list[list[str | None]]:
    """The pattern cut at each `%`; in a segment, a `_` is None and the rest are characters."""
    cut: list[list[str | None]] = [[]]
    i = 0
    while i < len(pattern):
        char = pattern[i]
        if char == "%":
            cut.append([])
        elif char == "_":
            cut[-1].append(None)
        elif char == "\\":
            i += 1
            if i == len(pattern) or pattern[i] not in "%_\\":
                raise FilterError(
                    f"the backslash in LIKE pattern '{pattern}' escapes nothing",
                    remedy="in a pattern write \\\\ for a backslash, \\% and \\_ for those signs",
                )
            cut[-1].append(pattern[i])
        else:
            cut[-1].append(char)
        i += 1
    return cut


def canonical(pattern: str) -> str:
    """One spelling per pattern: runs of wildcards become all their `_`, then one `%`."""
    cut = segments(pattern)
    out: list[str] = []
    gap, any_run = 0, False

    def close_run() -> None:
        nonlocal gap, any_run
        out.append("_" * gap + ("%" if any_run else ""))
        gap, any_run = 0, False

    for number, segment in enumerate(cut):
        any_run = any_run or number > 0
        for char in segment:
            if char is None:
                gap += 1
            else:
                close_run()
                out.append(escape(char))
    close_run()
    return "".join(out)


@lru_cache(maxsize=4096)
def prefix(pattern: str) -> tuple[str, bool]:
    """The characters every match begins with, and whether the pattern says nothing more."""
    cut = segments(pattern)
    head = cut[0]
    plain = head.index(None) if None in head else len(head)
    text = "".join(char for char in head[:plain] if char is not None)
    return text, plain == len(head) and len(cut) == 2 and not cut[1]


def literal(pattern: str) -> str | None:
    """The only text the pattern matches, if it has no wildcard."""
    cut = segments(pattern)
    if len(cut) > 1 or None in cut[0]:
        return None
    return "".join(char for char in cut[0] if char is not None)


def after_prefix(text: str) -> str | None:
    """The least string above every string that begins with `text`; None if there is none.

    Surrogates are skipped: they are code points but no characters, and no UTF-8 holds them.
    """
    stripped = text.rstrip(_LAST)
    if not stripped:
        return None
    following = ord(stripped[-1]) + 1
    return stripped[:-1] + chr(0xE000 if following == 0xD800 else following)


@lru_cache(maxsize=4096)
def cost(pattern: str) -> int:
    """How much longer a text takes to be asked than to be looked through once.

    A segment with `_` may be compared in full at every place; others are searched for.
    """
    cut = segments(pattern)
    return 1 + sum(len(segment) for segment in cut[1:] if None in segment) + len(pattern) // 64


@lru_cache(maxsize=4096)
def matcher(pattern: str) -> Callable[[str], bool]:
    """A function that says whether a text matches the pattern."""
    cut = segments(pattern)
    if len(cut) == 3 and not cut[0] and not cut[2] and None not in cut[1]:
        part = "".join(char or "" for char in cut[1])
        return lambda text: part in text
    steps = [
        re.compile("".join("." if c is None else re.escape(c) for c in segment), re.DOTALL)
        for segment in cut
    ]
    first, middle, last = steps[0], steps[1:-1], steps[-1]
    last_length = len(cut[-1])
    if len(steps) == 1:
        return lambda text: first.fullmatch(text) is not None

    def walk(text: str) -> bool:
        match = first.match(text)
        if match is None:
            return False
        position = match.end()
        for step in middle:
            match = step.search(text, position)
            if match is None:
                return False
            position = match.end()
        start = len(text) - last_length
        return start >= position and last.match(text, start) is not None

    return walk
