"""A publication that one filter matches and another does not: found, ruled out, or left open.

Per attribute only some values matter: the bounds that both filters name, and one value on either
side of each. Among values that the same conjunctions refuse, one is as good as another. So the
search over them is complete, and a filter that it finds no witness against covers the other also
where `covers` cannot see it. LIKE patterns other than prefixes have no bounds: texts are made from
their pieces, and when none of those will do, the question is left open.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from postroad.filters import Filter, covers, matches
from postroad.filters.constraints import (
    Constraint,
    Number,
    NumberRange,
    NumberSet,
    TextRange,
    TextSet,
)
from postroad.filters.language import Conjunction
from postroad.filters.like import segments
from postroad.model import Scalar

STEPS_MAX = 20_000  # of looking at the values of one attribute, and of choosing among them
PATTERNS_MAX = 8  # of one attribute, whose pieces are put together
FILLS = ("a", "", "/", "a/a", "b")  # what a wildcard may stand for
NOTHING = Filter(())


@dataclass(frozen=True, slots=True)
class Witness:
    """`attributes` of a publication; without them, `certain` says whether there is none."""

    attributes: dict[str, Scalar] | None
    certain: bool = True


def witness(wanted: Filter, unwanted: Filter = NOTHING) -> Witness:
    """A publication that `wanted` matches and `unwanted` does not."""
    if covers(unwanted, wanted):
        return Witness(None)
    certain = True
    for conjunction in wanted.conjunctions:
        search = _Search(conjunction, unwanted.conjunctions)
        attributes = search.run()
        if attributes is not None:
            assert matches(wanted, attributes), (wanted, attributes)
            assert not matches(unwanted, attributes), (unwanted, attributes)
            return Witness(attributes)
        certain = certain and search.complete
    return Witness(None, certain)


def compare(old: Filter, new: Filter) -> tuple[str, Witness, Witness]:
    """How what `new` matches differs from what `old` matches, in a word, and an example of what it
    matches besides and of what it no longer does."""
    more, less = witness(new, old), witness(old, new)
    if more.attributes is not None and less.attributes is not None:
        return "other", more, less
    if more.attributes is not None or less.attributes is not None:
        word, rest, open_word = (
            ("more", less, "less") if more.attributes is not None else ("less", more, "more")
        )
        return word if rest.certain else f"{word}, perhaps {open_word}", more, less
    if more.certain and less.certain:
        return "same", more, less
    word = "more" if less.certain else "less" if more.certain else "other"
    return f"perhaps {word}", more, less


class _Search:
    """For attributes that satisfy one conjunction and none of several others."""

    def __init__(self, conjunction: Conjunction, others: Sequence[Conjunction]) -> None:
        self.complete = True
        self.steps = 0
        self.others = [dict(other) for other in others]
        demands = dict(conjunction)
        names = dict.fromkeys([*demands, *(name for other in others for name, _ in other)])
        # Per attribute, values that satisfy the conjunction, and which of the others each refutes.
        self.choices: dict[str, list[tuple[Scalar | None, frozenset[int]]]] = {}
        for name in names:
            own = demands.get(name)
            self.choices[name] = self._choices(name, own)

    def _choices(
        self, name: str, own: Constraint | None
    ) -> list[tuple[Scalar | None, frozenset[int]]]:
        asking = [(n, other[name]) for n, other in enumerate(self.others) if name in other]
        constraints = [constraint for _, constraint in asking]
        if any(isinstance(c, TextRange) and (c.like or c.unlike) for c in (own, *constraints)):
            self.complete = False
        values = _values([*([] if own is None else [own]), *constraints])
        # An attribute that need not be there is left out first of all.
        candidates: list[Scalar | None] = [None, *values] if own is None else [*values, None]
        steps = 0
        best: dict[frozenset[int], Scalar | None] = {}
        for value in candidates:
            if own is not None and not own.accepts(value):
                continue
            steps += 1 + len(asking)
            if best and steps > STEPS_MAX:
                self.complete = False
                break
            refuted = frozenset(n for n, constraint in asking if not constraint.accepts(value))
            best.setdefault(refuted, value)
        return [
            (value, refuted)
            for refuted, value in best.items()
            if not any(refuted < other for other in best)
        ]

    def run(self) -> dict[str, Scalar] | None:
        if not all(self.choices.values()):
            return None
        chosen = self._refute(frozenset(range(len(self.others))), {})
        if chosen is None:
            return None
        values = {name: chosen.get(name, several[0][0]) for name, several in self.choices.items()}
        return {name: value for name, value in values.items() if value is not None}

    def _refute(
        self, left: frozenset[int], chosen: dict[str, Scalar | None]
    ) -> dict[str, Scalar | None] | None:
        """Choose values until none of the others that are left can match."""
        if not left:
            return chosen
        first = min(left)
        for name in self.others[first]:
            if name in chosen:
                continue
            for value, refuted in self.choices[name]:
                self.steps += 1
                if self.steps > STEPS_MAX:
                    self.complete = False
                    return None
                if first in refuted:
                    result = self._refute(left - refuted, {**chosen, name: value})
                    if result is not None:
                        return result
        return None


def _values(constraints: Sequence[Constraint]) -> list[Scalar]:
    """One value at least of every set that these bounds can tell apart; plain ones first."""
    numbers: set[Number] = set()
    texts: dict[str, None] = {}
    patterns: dict[str, None] = {}
    for constraint in constraints:
        if isinstance(constraint, NumberSet):
            numbers |= constraint.values
        elif isinstance(constraint, NumberRange):
            numbers |= constraint.excluded
            numbers |= {bound for bound in (constraint.low, constraint.high) if bound is not None}
        elif isinstance(constraint, TextSet):
            texts.update(dict.fromkeys(sorted(constraint.values)))
        elif isinstance(constraint, TextRange):
            texts[constraint.low] = None
            if constraint.high is not None:
                texts[constraint.high] = None
            texts.update(dict.fromkeys(sorted(constraint.excluded)))
            patterns.update(dict.fromkeys(sorted(constraint.like | constraint.unlike)))
    return [*_texts(list(texts), list(patterns)), *_numbers(sorted(numbers)), True, False]


def _texts(bounds: list[str], patterns: list[str]) -> list[str]:
    texts: dict[str, None] = {}
    patterns = patterns[:PATTERNS_MAX]
    for fill in FILLS:
        for pattern in patterns:
            texts[_filled(pattern, fill)] = None
    for pattern in patterns:
        for other in patterns:
            for fill in FILLS[:2] if pattern != other else ():
                texts[_filled(pattern, _filled(other, fill))] = None
                texts[_filled(pattern, fill) + _filled(other, fill)] = None
    plain = [bound for bound in bounds if not bound.endswith("\0")]
    for text in (*plain, *(f"{bound}{more}" for more in ("a", "0", "/a") for bound in plain)):
        texts[text] = None
    texts["a"] = None
    # With the least text of all, and the least above each bound, no set is left out.
    for text in ("", *bounds, *(f"{bound}\0" for bound in bounds)):
        texts[text] = None
    return list(texts)


def _filled(pattern: str, fill: str) -> str:
    return fill.join("".join(char or "a" for char in piece) for piece in segments(pattern))


def _numbers(bounds: list[Number]) -> Iterator[Number]:
    if not bounds:
        yield 0
        return
    yield from bounds
    for low, high in pairwise(bounds):
        between = _between(low, high)
        if between is not None:
            yield between
    for bound, step in ((bounds[0], -1), (bounds[-1], 1)):
        beyond: Number = math.floor(bound) + step if step < 0 else math.ceil(bound) + step
        yield beyond


def _between(low: Number, high: Number) -> Number | None:
    """A number strictly between two, a whole one if there is one."""
    whole = math.floor(low) + 1
    if whole < high:
        return whole
    if isinstance(low, int) and abs(low) > 2**53:
        return None
    for number in ((low + high) / 2, math.nextafter(low, math.inf)):
        if low < number < high:
            return number
    return None
