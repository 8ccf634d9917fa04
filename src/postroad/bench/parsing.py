"""What reading a filter costs: our reader beside the parser libraries we might have used.

lark and sqlglot are measured only if they are installed. Both stop at a syntax tree, while
ours goes on to the normal form, so their figures are lower bounds. A conjunction is read once from
left to right, so its cost should grow as its length does.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from postroad import draws
from postroad.bench import growth
from postroad.filters import parse

COUNT = 20_000
LENGTHS = (4, 16, 64, 256)  # comparisons in a filter
EACH, ROUNDS = 20, 3

GRAMMAR = r"""
?start: disjunction
?disjunction: conjunction ("OR"i conjunction)*
?conjunction: negation ("AND"i negation)*
?negation: "NOT"i negation | atom
?atom: NAME OPERATOR literal -> compare
     | literal OPERATOR NAME -> mirrored
     | NAME "BETWEEN"i literal "AND"i literal -> between
     | NAME "IN"i "(" literal ("," literal)* ")" -> among
     | NAME "LIKE"i STRING -> like
     | NAME "IS"i "NULL"i -> is_null
     | NAME "IS"i "NOT"i "NULL"i -> is_present
     | NAME -> flag
     | "(" disjunction ")"
literal: STRING | NUMBER | TRUE | FALSE
TRUE.2: "TRUE"i
FALSE.2: "FALSE"i
OPERATOR: "<=" | ">=" | "<>" | "=" | "<" | ">"
NAME: /[A-Za-z_][A-Za-z0-9_]*/
STRING: /'(?:[^'\\]|\\.|'')*'/
NUMBER: /-?[0-9]+(\.[0-9]+)?/
%ignore /[ \t\r\n]+/
"""


def texts(count: int) -> list[str]:
    """Filters as subscribers write them: three or four comparisons, now and then an OR."""
    written = []
    for n in range(count):
        symbol = f"S{draws.below(500, 1, 'bench.symbol', n, 0)}"
        price = draws.below(10_000, 1, "bench.price", n, 0) / 100
        form = draws.below(4, 1, "bench.form", n, 0)
        written.append(
            [
                f"class = 'STOCK' AND symbol = '{symbol}' AND price > {price}",
                f"class = 'STOCK' AND price BETWEEN {price} AND {price + 5} AND volume >= {n}",
                f"class = 'STOCK' AND (symbol LIKE '{symbol}%' OR price < {price})",
                f"symbol IN ('{symbol}', 'A', 'B') AND NOT price <= {price} AND open IS NOT NULL",
            ][form]
        )
    return written


def reading_s(length: int) -> float:
    """CPU seconds to read some conjunctions of so many comparisons, the least of the rounds."""
    took = []
    for turn in range(ROUNDS):
        sample = [
            " AND ".join(f"a{k} > {turn * EACH + n}" for k in range(length)) for n in range(EACH)
        ]
        start = time.process_time()
        for text in sample:
            parse(text)
        took.append(time.process_time() - start)
    return min(took)


def main() -> None:
    readers: dict[str, Callable[[str], Any]] = {"postroad (to normal form)": parse}
    if find_spec("lark"):
        lark = importlib.import_module("lark")
        readers["lark LALR (to tree)"] = lark.Lark(GRAMMAR, parser="lalr").parse
    if find_spec("sqlglot"):
        sqlglot = importlib.import_module("sqlglot")
        readers["sqlglot (to tree)"] = lambda text: sqlglot.parse_one(text, dialect="spark")
    sample = texts(COUNT)
    print(f"Reading {COUNT:,} filters, processor time")
    for name, reader in readers.items():
        start = time.process_time()
        for text in sample:
            reader(text)
        spent = time.process_time() - start
        print(f"  {name:28} {spent / COUNT * 1e6:8.1f} µs per filter")
    costs = [reading_s(length) for length in LENGTHS]
    print("  " + growth.said("cost of reading a filter by comparisons", LENGTHS, costs, "1"))
