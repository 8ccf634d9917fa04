"""MQTT topics as classes: which names are valid, and what a topic pattern means as a filter.

`+` stands for one level and `#` for the rest. As a filter on `class`, `a/+/c` is a LIKE pattern
together with the demand that there be no further slash, which is exact. Only a `+` before a
fixed level in a pattern that ends in `#` cannot be said that way: there the filter lets a
little more through, and the subscriber's broker compares level by level.
"""

from __future__ import annotations

import re

from postroad.errors import InputError
from postroad.filters import EVERYTHING, Filter, conjoin, parse, sharing
from postroad.filters.constraints import Constraint
from postroad.filters.language import normal_form
from postroad.filters.like import escape
from postroad.filters.sql import compare, resembles

TOPIC_MAX = 1_024  # characters: each pattern with a `+` is asked of all of them
LEVELS_MAX = 64


def valid_topic(topic: str) -> bool:
    """Whether a client may publish to this topic. `$…` is the broker's own."""
    if not topic or topic[0] == "$":
        return False
    if len(topic) > TOPIC_MAX or topic.count("/") >= LEVELS_MAX:
        return False
    return not ("+" in topic or "#" in topic or "\0" in topic)


def check_topic(topic: str) -> None:
    """Raise `InputError` unless a client may publish to this topic."""
    if not valid_topic(topic):
        raise InputError(
            f"{topic[:60]!r} is no topic to publish to",
            remedy="name one without + and #, without $ in front, of at most "
            f"{TOPIC_MAX:,} characters and {LEVELS_MAX} levels",
        )


def check_pattern(pattern: str) -> None:
    """Raise `InputError` unless this is a topic filter of the standard."""
    levels = pattern.split("/")
    if not pattern or "\0" in pattern:
        raise InputError(f"{pattern[:60]!r} is no topic filter", remedy="name a topic")
    if len(pattern) > TOPIC_MAX or len(levels) > LEVELS_MAX:
        raise InputError(
            f"the topic filter {pattern[:60]!r}… is too long",
            remedy=f"use at most {TOPIC_MAX:,} characters and {LEVELS_MAX} levels",
        )
    for number, level in enumerate(levels):
        if "#" in level and (level != "#" or number != len(levels) - 1):
            raise InputError(
                f"# in {pattern[:60]!r} is not the last level", remedy="write # alone, at the end"
            )
        if "+" in level and level != "+":
            raise InputError(
                f"+ in {pattern[:60]!r} is not a whole level", remedy="write + alone between /"
            )


SHARE = "$share/"


def split_share(pattern: str) -> tuple[str, str]:
    """The name of a shared subscription and its topic filter; no name if it is not shared."""
    if not pattern.startswith(SHARE):
        return "", pattern
    name, slash, rest = pattern.removeprefix(SHARE).partition("/")
    if not name or not slash or not rest or "+" in name or "#" in name:
        raise InputError(
            f"{pattern[:60]!r} is no shared subscription", remedy="write $share/GROUP/TOPIC"
        )
    return name, rest


def exact(pattern: str) -> bool:
    """Whether `as_filter` says all that the pattern says."""
    levels = pattern.split("/")
    return not (levels[-1] == "#" and "+" in levels[: _plain_from(levels)])


def _plain_from(levels: list[str]) -> int:
    """Before which level a `+` would have a fixed level after it."""
    fixed = [number for number, level in enumerate(levels) if level not in ("+", "#")]
    return fixed[-1] if fixed else 0


def as_filter(pattern: str, content: Filter | str | None = None) -> Filter:
    """The filter for a topic pattern, narrowed to publications with such content."""
    if not isinstance(content, Filter):
        content = EVERYTHING if content is None else parse(content)
    alternatives = [{} if demand is None else {"class": demand} for demand in _demands(pattern)]
    topics = normal_form(alternatives)
    if EVERYTHING in (topics, content):
        return sharing(content if topics == EVERYTHING else topics)
    return sharing(conjoin(topics, content))


def _demands(pattern: str) -> list[Constraint | None]:
    levels = pattern.split("/")
    open_ended = levels[-1] == "#"
    if open_ended:
        levels.pop()
    if not levels:
        return [None]
    text = "/".join("%" if level == "+" else escape(level) for level in levels)
    if "+" not in levels:
        here: Constraint | None = compare("=", "/".join(levels))
        if not open_ended:
            return [here]
        return [here, resembles(f"{text}/%", False)]
    deeper = resembles("/".join(["%"] * (len(levels) + 1)), True)
    shallow = resembles(text, False)
    if open_ended:
        least = "/".join(["%"] * len(levels))
        return [_both(shallow, resembles(least, False)), resembles(f"{text}/%", False)]
    return [_both(shallow, deeper)]


def _both(first: Constraint | None, second: Constraint | None) -> Constraint | None:
    if first is None or second is None:
        return first or second
    return first.meet(second)


def matcher(pattern: str) -> re.Pattern[str]:
    """A regular expression that `fullmatch`es the topics of a pattern."""
    levels = pattern.split("/")
    open_ended = levels[-1] == "#"
    if open_ended:
        levels.pop()
    text = "/".join("[^/]*" if level == "+" else re.escape(level) for level in levels)
    if open_ended:
        text = f"{text}(/.*)?" if levels else ".*"
    return re.compile(text, re.DOTALL)
