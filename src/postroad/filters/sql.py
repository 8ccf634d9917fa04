"""The SQL reader: one scan into tokens, then a loop with a stack of its own.

The stack is a list, so deep nesting costs memory in proportion and never Python's own stack.
NOT is pushed down as the text is read: inside a negated group AND and OR change places and
every comparison is replaced by its opposite.
"""

from __future__ import annotations

import re
from functools import lru_cache
from string import ascii_letters, digits
from sys import intern

from postroad.errors import FilterError
from postroad.filters import like as patterns
from postroad.filters.constraints import (
    Constraint,
    Flags,
    Null,
    Number,
    NumberRange,
    NumberSet,
    Present,
    TextRange,
    TextSet,
    text_range,
)
from postroad.filters.language import (
    PATTERNS_MAX,
    RESERVED,
    Disjunction,
    Filter,
    Steps,
    bounded,
    normal_form,
    too_many_patterns,
)
from postroad.model import Scalar

TEXT_MAX = 1_000_000
DEPTH_MAX = 1_000
SHORT_MAX = 1_000  # characters: a text that cannot hold much,
SHORT_CONJUNCTIONS = 8  # and if it did not grow to more than these, is within all bounds
DIGITS_MAX = 38
NUMBER_MAX = 400  # characters

_TOKEN = re.compile(
    # Possessive, so that no text is looked through again; what is never closed ends the text.
    r"""'(?:[^'\\]|\\.|'')*+'"""
    r"|'.*"
    r"|`(?:[^`]|``)*+`"
    r"|`.*"
    r"|(?>[0-9]+\.?[0-9]*|\.[0-9]+)(?>(?:[eE][+-]?[0-9]+)?)(?![A-Za-z0-9_.])"
    r"|[A-Za-z0-9_]+"
    r"|<=>|<=|>=|<>|!=|==|[^ \t\r\n]",
    re.DOTALL,
)
_CLOSED = re.compile(r"""'(?:[^'\\]|\\.|'')*+'|`(?:[^`]|``)*+`""", re.DOTALL)
_LETTERS = frozenset(ascii_letters + "_")
_DIGITS = frozenset(digits)
_ESCAPE = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "%": "\\%", "_": "\\_"}

COMPARISONS = {
    "=": "=",
    "==": "=",
    "<>": "<>",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_BOTH = frozenset((False, True))
_SHORT = 256  # characters of a text that is kept to be shared
_NULL, _PRESENT = Null(), Present()


def parse(text: str) -> Filter:
    """The filter that a SQL boolean expression describes."""
    disjunction = _Reader(text).expression()
    if len(text) <= SHORT_MAX and len(disjunction) <= SHORT_CONJUNCTIONS:
        return normal_form(disjunction)
    return bounded(disjunction)


class _Reader:
    """One filter text being read; `at` is the number of the next token."""

    def __init__(self, text: str) -> None:
        if len(text) > TEXT_MAX:
            raise FilterError(
                f"the filter has {len(text):,} characters",
                remedy=f"a filter may have {TEXT_MAX:,}; split it into several",
            )
        refuse_surrogates(text)
        self.text = text
        self.tokens = _TOKEN.findall(text)
        if self.tokens and self.tokens[-1][0] in "'`" and not _CLOSED.fullmatch(self.tokens[-1]):
            self.tokens[-1] = self.tokens[-1][0]
        self.tokens.append("")
        self.at = self.patterns = 0
        self.steps = Steps(len(text) <= SHORT_MAX)

    def expression(self) -> Disjunction:
        tokens, steps = self.tokens, self.steps
        # A frame is an open group: is it negated, its finished OR operands, its AND operands.
        stack: list[tuple[bool, list[Disjunction], list[Disjunction]]] = []
        negated = False
        ors: list[Disjunction] = []
        ands: list[Disjunction] = []
        while True:
            negate = negated
            token = tokens[self.at]
            while token.upper() == "NOT":
                negate = not negate
                self.at += 1
                token = tokens[self.at]
            if token == "(":
                self.at += 1
                stack.append((negated, ors, ands))
                if len(stack) > DEPTH_MAX:
                    raise FilterError(
                        f"the filter is nested more than {DEPTH_MAX:,} deep",
                        remedy="leave out parentheses that change nothing",
                    )
                negated, ors, ands = negate, [], []
                continue
            ands.append(self.comparison(negate))
            while True:
                token = tokens[self.at]
                word = token.upper()
                if word == "AND":
                    break
                # Inside a negated group AND joins alternatives and OR joins demands.
                ors.append(steps.any_of(ands) if negated else steps.all_of(ands))
                ands = []
                if word == "OR":
                    break
                whole = steps.all_of(ors) if negated else steps.any_of(ors)
                if token == ")" and stack:
                    negated, ors, ands = stack.pop()
                    ands.append(whole)
                elif token == "" and not stack:
                    return whole
                else:
                    raise self.unexpected("AND, OR or the end" if not stack else "AND, OR or )")
                self.at += 1
            self.at += 1

    def comparison(self, negate: bool) -> Disjunction:
        """One comparison, or its opposite."""
        name = self.attribute()
        if name is None:
            return self.literal_first(negate)
        token = self.tokens[self.at]
        operator = COMPARISONS.get(token)
        if operator is not None:
            self.at += 1
            value = self.literal()
            return _single(name, compare(_OPPOSITE[operator] if negate else operator, value))
        word = token.upper()
        if word == "IS":
            self.at += 1
            negate ^= self.skip("NOT")
            if not self.skip("NULL"):
                raise self.unexpected("NULL or NOT NULL")
            return [{name: _PRESENT if negate else _NULL}]
        if word == "NOT":
            self.at += 1
            negate = not negate
            word = self.tokens[self.at].upper()
            if word not in ("IN", "BETWEEN", "LIKE"):
                raise self.unexpected("IN, BETWEEN or LIKE")
        if word == "IN":
            self.at += 1
            return [{name: part} for part in among(self.literal_list(), negate)]
        if word == "BETWEEN":
            self.at += 1
            low = self.literal()
            if not self.skip("AND"):
                raise self.unexpected("AND and the upper bound of BETWEEN")
            high = self.literal()
            if negate:
                return _single(name, compare("<", low)) + _single(name, compare(">", high))
            return self.steps.all_of(
                [_single(name, compare(">=", low)), _single(name, compare("<=", high))]
            )
        if word == "LIKE":
            self.at += 1
            token = self.tokens[self.at]
            pattern = self.literal()
            if pattern is not None and not isinstance(pattern, str):
                raise FilterError(
                    f"LIKE {token} is not a pattern", remedy="write the pattern in single quotes"
                )
            demand = None if pattern is None else resembles(pattern, negate)
            if isinstance(demand, TextRange) and (demand.like or demand.unlike):
                self.patterns += 1
                if self.patterns > PATTERNS_MAX:
                    raise too_many_patterns()
            return _single(name, demand)
        return [{name: Flags(frozenset((not negate,)))}]

    def attribute(self) -> str | None:
        """The attribute name at hand, with the names of a path; None if there is something else."""
        name = self.name()
        if name is None or self.tokens[self.at] != ".":
            return name
        parts = [name]
        while self.tokens[self.at] == ".":
            self.at += 1
            part = self.name(True)
            if part is None:
                raise self.unexpected("a name after the dot")
            parts.append(part)
        return intern(".".join(parts))

    def name(self, any_word: bool = False) -> str | None:
        """The name at hand; within a path it may be a reserved word."""
        token = self.tokens[self.at]
        if token[:1] in _LETTERS:
            if token.upper() in RESERVED and not any_word:
                return None
        elif token[:1] == "`" and len(token) > 1:
            token = token[1:-1].replace("``", "`")
            if not token:
                raise FilterError("`` names no attribute", remedy="put a name in the backticks")
        else:
            return None
        self.at += 1
        return intern(token)

    def literal_first(self, negate: bool) -> Disjunction:
        """TRUE, FALSE, NULL, or a comparison with the literal on the left."""
        token = self.tokens[self.at]
        value = self.literal("an attribute, a literal or (")
        operator = COMPARISONS.get(self.tokens[self.at])
        if operator is None:
            if value is None:
                return []
            if isinstance(value, bool):
                return [{}] if value is not negate else []
            raise FilterError(
                f"{token} is not a condition", remedy="compare it with an attribute, as in a = 1"
            )
        self.at += 1
        name = self.attribute()
        if name is None:
            raise self.unexpected("an attribute: one side of a comparison must be one")
        operator = _MIRRORED[operator]
        return _single(name, compare(_OPPOSITE[operator] if negate else operator, value))

    def literal(self, wanted: str = "a literal") -> Scalar | None:
        """The literal at hand; None is NULL."""
        token = self.tokens[self.at]
        first = token[:1]
        if first == "'" and len(token) > 1:
            self.at += 1
            return unquote(token)
        if first in _DIGITS or (first == "." and len(token) > 1):
            self.at += 1
            return number(token)
        if first in ("-", "+"):
            following = self.tokens[self.at + 1]
            if following[:1] in _DIGITS or (following[:1] == "." and len(following) > 1):
                self.at += 2
                value = number(following)
                return -value if first == "-" else value
        word = token.upper()
        if word in ("TRUE", "FALSE", "NULL"):
            self.at += 1
            return None if word == "NULL" else word == "TRUE"
        raise self.unexpected(wanted)

    def literal_list(self) -> list[Scalar | None]:
        if not self.skip("("):
            raise self.unexpected("( after IN")
        values = [self.literal()]
        while self.skip(","):
            values.append(self.literal())
        if not self.skip(")"):
            raise self.unexpected(", or ) in the IN list")
        return values

    def skip(self, word: str) -> bool:
        if self.tokens[self.at].upper() != word:
            return False
        self.at += 1
        return True

    def unexpected(self, wanted: str) -> FilterError:
        """An error about the token at hand, with its place in the text."""
        token = self.tokens[self.at]
        if not token:
            return FilterError(f"the filter ends where {wanted} is needed", remedy="complete it")
        for number, match in enumerate(_TOKEN.finditer(self.text)):
            if number == self.at:
                place = match.start() + 1
        remedy = f"write {wanted} there"
        if token == '"':
            remedy = "write strings in '…' and unusual attribute names in `…`"
        elif token in "'`":
            remedy = f"close the {token} with another one"
        elif token.upper() in RESERVED:
            remedy += f"; an attribute of that name is written `{token}`"
        shown = token if len(token) <= 40 else token[:40] + "…"
        return FilterError(f"{shown} at character {place} is not {wanted}", remedy=remedy)


@lru_cache(maxsize=1 << 12)
def _equal(text: str) -> TextSet:
    """One for all filters that ask for this text: many ask for the same topic."""
    return TextSet(frozenset((text,)))


def compare(operator: str, value: Scalar | None) -> Constraint | None:
    """The constraint `attribute operator value`; None when it is never TRUE."""
    if isinstance(value, bool):
        kept = frozenset(flag for flag in _BOTH if _ordered(flag, operator, value))
        return Flags(kept) if kept else None
    if isinstance(value, str):
        if operator == "=":
            return _equal(value) if len(value) <= _SHORT else TextSet(frozenset((value,)))
        if operator == "<>":
            return text_range("", None, frozenset((value,)), frozenset(), frozenset())
        if operator in (">", ">="):
            return TextRange(value if operator == ">=" else value + "\0")
        return text_range(
            "", value if operator == "<" else value + "\0", frozenset(), frozenset(), frozenset()
        )
    if value is None:
        return None
    if operator == "=":
        return NumberSet(frozenset((value,)))
    if operator == "<>":
        return NumberRange(excluded=frozenset((value,)))
    if operator in (">", ">="):
        return NumberRange(low=value, low_open=operator == ">")
    return NumberRange(high=value, high_open=operator == "<")


def among(values: list[Scalar | None], negate: bool) -> list[Constraint]:
    """The constraints of `IN (values)`, one per type, or of `NOT IN (values)`: at most one."""
    flags = frozenset(value for value in values if isinstance(value, bool))
    texts = frozenset(value for value in values if isinstance(value, str))
    numbers: frozenset[Number] = frozenset(
        value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)
    )
    if not negate:
        sets: list[Constraint] = []
        if flags:
            sets.append(Flags(flags))
        if numbers:
            sets.append(NumberSet(numbers))
        if texts:
            sets.append(TextSet(texts))
        return sets
    if None in values or bool(flags) + bool(numbers) + bool(texts) > 1:
        return []
    rest: Constraint | None
    if flags:
        rest = Flags(_BOTH - flags) if flags != _BOTH else None
    elif numbers:
        rest = NumberRange(excluded=numbers)
    else:
        rest = text_range("", None, texts, frozenset(), frozenset())
    return [] if rest is None else [rest]


def resembles(pattern: str, negate: bool) -> Constraint | None:
    """The constraint `LIKE pattern` or `NOT LIKE pattern`."""
    pattern = patterns.canonical(pattern)
    only = patterns.literal(pattern)
    if only is not None:
        return compare("<>" if negate else "=", only)
    begins, whole = patterns.prefix(pattern)
    if negate:
        if whole and not begins:
            return None
        return TextRange(unlike=frozenset((pattern,)))
    like: frozenset[str] = frozenset() if whole else frozenset((pattern,))
    return TextRange(begins, patterns.after_prefix(begins), like=like)


def unquote(token: str) -> str:
    """The text of a quoted SQL string."""
    inner = token[1:-1]
    if "'" not in inner and "\\" not in inner:
        return inner
    return _ESCAPE.sub(_unescape, inner)


def number(token: str) -> Number:
    """The value of a number; a whole one is an int, so that 5.0 and 5 are spelled alike."""
    if len(token) > NUMBER_MAX:
        raise _too_large(token)
    try:
        if token.isdigit() and len(token) <= DIGITS_MAX:
            return int(token)
        whole, _, fraction = token.partition(".")
        if whole.isdigit() and not fraction.strip("0") and len(whole) <= DIGITS_MAX:
            return int(whole)
        value = float(token.replace("_", "?"))  # Python's 1_000 is not SQL's.
    except ValueError:
        raise FilterError(f"{token[:40]} is not a number", remedy="write it as in 10.5") from None
    if value == float("inf"):
        raise _too_large(token)
    return int(value) if value.is_integer() and abs(value) <= 2**53 else value


def _too_large(token: str) -> FilterError:
    return FilterError(
        f"the number {token[:40]} is too large", remedy="numbers go up to 1.7976931348623157e308"
    )


def _unescape(match: re.Match[str]) -> str:
    char = match.group(1)
    if char is None:
        return "'"
    if char in _ESCAPED:
        return _ESCAPED[char]
    if char.isalnum():
        raise FilterError(
            f"\\{char} in a string is not an escape",
            remedy="write the character itself, or \\\\ for a backslash",
        )
    return str(char)


def refuse_surrogates(text: str) -> None:
    """Only whole characters have a place in the order of strings."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FilterError(
            f"character {error.start + 1} of the filter is half of a surrogate pair",
            remedy="give the filter as valid Unicode",
        ) from None


def _ordered(flag: bool, operator: str, value: bool) -> bool:
    return {
        "=": flag == value,
        "<>": flag != value,
        "<": flag < value,
        "<=": flag <= value,
        ">": flag > value,
        ">=": flag >= value,
    }[operator]


def _single(name: str, constraint: Constraint | None) -> Disjunction:
    return [] if constraint is None else [{name: constraint}]
