"""PADRES predicate lists mean what their SQL counterparts mean."""

from __future__ import annotations

import pytest

from postroad.errors import FilterError
from postroad.filters import parse, parse_predicates


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        (
            "[class,=,'STOCK'],[symbol,=,'YHOO'],[volume,>,1000000]",
            "class = 'STOCK' AND symbol = 'YHOO' AND volume > 1000000",
        ),
        (" [ class , eq , 'STOCK' ] , [price,<=,-1.5] ", "class = 'STOCK' AND price <= -1.5"),
        ("[a,neq,'x'],[b,<>,3],[c,>=,0],[d,<,1]", "a <> 'x' AND b <> 3 AND c >= 0 AND d < 1"),
        ("[a,str-prefix,'50%']", r"a LIKE '50\%%'"),
        ("[a,str-suffix,'a_b']", r"a LIKE '%a\_b'"),
        ("[a,str-contains,'c']", "a LIKE '%c%'"),
        ("[a,str-contains,'']", "a LIKE '%'"),
        ("[openClose%Diff,>,0.5]", "`openClose%Diff` > 0.5"),
        ("[a,isPresent,'any'],[b,isPresent]", "a IS NOT NULL AND b IS NOT NULL"),
        ("[a,=,true],[b,=,'it''s, [ok]']", r"a AND b = 'it\'s, [ok]'"),
        ("[a,>,1],[a,<,1]", "FALSE"),
    ],
)
def test_lists_mean_their_sql(text: str, sql: str) -> None:
    assert parse_predicates(text) == parse(sql)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no predicate at character 1"),
        ("[a,=,1],", "no predicate at character 9"),
        ("[a,=,1][b,=,2]", "'[' at character 8"),
        ("[a,~,1]", "~ is not an operator"),
        ("[a,=]", "operator = has no value"),
        ("[a,=,]", "operator = has no value"),
        ("[a,=,STOCK]", "STOCK is neither a number nor a string"),
        ("[a,eq,5]", "operator eq compares strings, and 5 is none"),
        ("[a,=,'x]", "no predicate at character 1"),
        ("[a,=,1.2.3]", "is not a number"),
        ("a = 1", "no predicate at character 1"),
        ("[a,=,'\ud800']", "surrogate"),
        ("[" * 1_500_000, "characters"),
    ],
    ids=lambda text: text[:20],
)
def test_mistakes_are_told(text: str, complaint: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_predicates(text)
    assert complaint in str(caught.value)
    assert caught.value.remedy
