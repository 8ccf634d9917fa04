"""Nested content: filters against an evaluator of its own that knows rows and nothing else."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from postroad.filters import covers, intersects, matches, parse
from postroad.filters.nested import DEPTH_MAX, FIELDS_MAX, ROWS, ROWS_MAX, flatten
from postroad.matching import Index
from postroad.matching.linear import LinearScan
from postroad.sim.run import run
from postroad.sim.scenario import from_dict

NAMES = ("a", "b", "c")
VALUES: tuple[Any, ...] = (0, 1, 2.5, "x", "y", True, None)
Expression = tuple[Any, ...]


def draw_content(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.random()
    if depth == 0 or (kind < 0.35 and depth < 3):
        return {name: draw_content(draw, depth + 1) for name in NAMES if draw.random() < 0.8}
    if kind < 0.6 and depth < 4:
        return [draw_content(draw, depth + 1) for _ in range(draw.randint(0, 3))]
    return draw.choice(VALUES)


def rows(value: Any, name: str = "") -> list[dict[str, Any]]:
    """What a content says: one row for each element of each array."""
    if isinstance(value, dict):
        result: list[dict[str, Any]] = [{}]
        for inner, part in value.items():
            path = f"{name}.{inner}" if name else inner
            result = [{**row, **more} for row in result for more in rows(part, path)]
        return result
    if isinstance(value, list):
        return [row for element in value for row in rows(element, name)] or [{}]
    return [{}] if value is None else [{name: value}]


def draw_expression(draw: random.Random, depth: int = 0) -> Expression:
    kind = draw.random()
    if depth < 3 and kind < 0.5:
        word = draw.choice(("AND", "OR", "NOT"))
        count = 1 if word == "NOT" else 2
        return (word, *(draw_expression(draw, depth + 1) for _ in range(count)))
    path = ".".join(draw.choice(NAMES) for _ in range(draw.randint(1, 3)))
    if kind > 0.9:
        return ("IS NULL", path)
    literals = [value for value in VALUES if value is not None]
    return (draw.choice(("=", "<>", "<", ">=")), path, draw.choice(literals))


def text(expression: Expression) -> str:
    word, *rest = expression
    if word == "NOT":
        return f"NOT ({text(rest[0])})"
    if word in ("AND", "OR"):
        return f"({text(rest[0])} {word} {text(rest[1])})"
    if word == "IS NULL":
        return f"{rest[0]} IS NULL"
    value = rest[1]
    shown = f"'{value}'" if isinstance(value, str) else str(value).upper()
    return f"{rest[0]} {word} {shown}"


def truth(expression: Expression, row: dict[str, Any]) -> bool | None:
    """SQL's three values; None is UNKNOWN."""
    word, *rest = expression
    if word == "NOT":
        inner = truth(rest[0], row)
        return None if inner is None else not inner
    if word in ("AND", "OR"):
        both = [truth(each, row) for each in rest]
        decisive = word == "OR"
        if decisive in both:
            return decisive
        return None if None in both else not decisive
    value = row.get(rest[0])
    if word == "IS NULL":
        return value is None
    wanted = rest[1]
    kinds = [str if isinstance(v, str) else bool if isinstance(v, bool) else float
             for v in (value, wanted)]  # fmt: skip
    if value is None or kinds[0] is not kinds[1]:
        return None
    result: bool = {
        "=": value == wanted, "<>": value != wanted, "<": value < wanted, ">=": value >= wanted,
    }[word]  # fmt: skip
    return result


@pytest.mark.parametrize("seed", range(3))
def test_a_filter_matches_content_if_it_is_true_of_one_of_its_rows(seed: int) -> None:
    draw = random.Random(seed)
    small, linear, compiled = Index[int](), LinearScan[int](), Index[int]()
    expressions = [draw_expression(draw) for _ in range(120)]
    filters = [parse(text(expression)) for expression in expressions]
    for number, filter in enumerate(filters):
        assert parse(str(filter)) == filter
        for table in (small, linear, compiled):
            table.insert(number, filter)
    compiled.compile()
    several = 0
    for _ in range(150):
        content = draw_content(draw)
        true_rows = rows(content)
        if len(true_rows) > ROWS_MAX:
            continue
        attributes = flatten(content)
        several += ROWS in attributes
        wanted = {
            number
            for number, expression in enumerate(expressions)
            if any(truth(expression, row) for row in true_rows)
        }
        assert {n for n, filter in enumerate(filters) if matches(filter, attributes)} == wanted
        for table in (small, linear, compiled):
            matching = table.match(attributes)
            assert set(matching) == wanted
            assert len(matching) == len(wanted)
        for first, second in ((draw.randrange(120), draw.randrange(120)) for _ in range(60)):
            if second in wanted and covers(filters[first], filters[second]):
                assert first in wanted
            # Of a publisher that keeps to what it advertises every row does.
            if second in wanted and all(truth(expressions[first], row) for row in true_rows):
                assert intersects(filters[first], filters[second])
    assert several > 20


def test_rows_depth_and_fields_are_bounded() -> None:
    many = flatten({"a": [{"b": n} for n in range(1000)], "c": list(range(1000))})
    assert matches(parse("a.b = 0 AND c = 63"), many)
    assert not matches(parse("a.b = 999"), many)
    deep: Any = 1
    for _ in range(DEPTH_MAX + 5):
        deep = {"a": deep}
    assert flatten({"a": deep}) == {}
    wide = {"x": {str(n): n for n in range(100_000)}, "y": [{str(n): n} for n in range(100_000)]}
    assert sum(len(row) for row in (flatten(wide), flatten({"z": [wide] * 9}))) < 2 * FIELDS_MAX
    assert flatten({ROWS: "[{}]", "a": 1}) == {"a": 1}
    assert not matches(parse("a = 1"), {ROWS: "[{", "a": 2})


def test_two_conditions_on_elements_are_about_one_element() -> None:
    order = flatten({"order": {"items": [{"sku": "x", "qty": 1}, {"sku": "y", "qty": 9}]}})
    assert matches(parse("order.items.sku = 'x'"), order)
    assert matches(parse("NOT order.items.sku = 'x'"), order)  # there is another
    assert matches(parse("order.items.sku = 'y' AND order.items.qty > 5"), order)
    assert not matches(parse("order.items.sku = 'x' AND order.items.qty > 5"), order)
    assert matches(parse("order.`items`.`sku` IN ('z', 'y')"), order)
    assert str(parse("`order.items`.sku = 'x'")) == "order.items.sku = 'x'"


@pytest.mark.parametrize("scheme", ["kyra", "mbr", "scribe", "beaconvey"])
def test_content_is_not_divided_by_an_array(scheme: str, tmp_path: Path) -> None:
    """Such a publication is dropped and noted; one with the array elsewhere is delivered."""
    parameters: dict[str, Any] = {"kyra": {"attributes": "a"}, "mbr": {"attributes": "a"}}.get(
        scheme, {"cells": 4, "topic": "a"}
    )
    wanted = [{"id": f"s{n}", "broker": str(n % 5), "client": f"c{n}", "filter": f"a = {n}"}
              for n in range(8)]  # fmt: skip
    scenario = {
        "scheme": scheme,
        "parameters": parameters,
        "overlay": {"kind": "wide_area", "brokers": 5},
        "workload": {
            "subscriptions": wanted,
            "publications": [
                {"time": 1.0, "broker": "0", "publisher": "p", "attributes": attributes}
                for attributes in ({"a": [1, 6]}, {"a": 6, "b": [1, 2]}, {"a": 2})
            ],
        },
    }
    result = run(from_dict(scenario, "here", tmp_path))
    assert sorted(subscription for _, subscription, *_ in result.deliveries) == ["s2", "s6"]
    assert [text for *_, text in result.notes] == [
        "dropped: a is an array, and this scheme divides content by it"
    ]
