"""What `import postroad` gives to Python takes content as it comes, nested or not."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

import postroad

ORDER = {"city": "x", "items": [{"sku": "a", "qty": 1}, {"sku": "b", "qty": 9}]}


@pytest.mark.parametrize(
    ("text", "content", "wanted"),
    [
        ("order.city = 'x'", {"order": ORDER}, True),
        ("order.city = 'y'", {"order": ORDER}, False),
        ("order.items.sku = 'b' AND order.items.qty > 5", {"order": ORDER}, True),
        ("order.items.sku = 'a' AND order.items.qty > 5", {"order": ORDER}, False),
        ("tags = 'a' AND price > 5", {"tags": ["b", "a"], "price": 6}, True),
        ("tags = 'a'", {"tags": []}, False),
        ("tags IS NULL", {"tags": [], "price": None}, True),
        ("price > 5", {"price": 6}, True),
    ],
)
def test_nested_content_matches_by_its_fields(
    text: str, content: dict[str, Any], wanted: bool
) -> None:
    filter = postroad.parse(text)
    index: postroad.Index[str] = postroad.Index()
    index.insert("one", filter)
    for given in (content, MappingProxyType(content)):
        assert postroad.matches(filter, given) is wanted
        assert index.match(given) == (["one"] if wanted else [])
    index.compile()
    assert index.match(content) == (["one"] if wanted else [])
