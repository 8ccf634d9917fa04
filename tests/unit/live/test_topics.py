from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import InputError
from postroad.filters import matches, parse
from postroad.live.edge import topics

levels = st.sampled_from(["a", "b", "", "a%", "x_y", "é'"])
names = st.lists(levels, min_size=1, max_size=5).map("/".join).filter(topics.valid_topic)
patterns = st.builds(
    lambda body, tail: "/".join([*body, *tail]),
    st.lists(levels | st.just("+"), min_size=1, max_size=4),
    st.sampled_from([[], ["#"]]),
).filter(bool)


@given(pattern=patterns, topic=names)
def test_filter_of_a_pattern_is_what_the_standard_says(pattern: str, topic: str) -> None:
    says = topics.matcher(pattern).fullmatch(topic) is not None
    found = matches(topics.as_filter(pattern), {"class": topic})
    if topics.exact(pattern):
        assert found == says
    else:
        assert found or not says


@given(pattern=patterns, topic=names)
def test_content_filter_narrows_a_pattern(pattern: str, topic: str) -> None:
    filter = topics.as_filter(pattern, "x > 1 OR y = 'u'")
    for content in ({"x": 2}, {"x": 1}, {"y": "u"}, {}):
        both = matches(topics.as_filter(pattern), {"class": topic}) and matches(
            parse("x > 1 OR y = 'u'"), content
        )
        assert matches(filter, {"class": topic, **content}) == both


LONG = "x" * (topics.TOPIC_MAX + 1)
DEEP = "/".join("x" * (topics.LEVELS_MAX + 1))


@pytest.mark.parametrize("pattern", ["", "a#", "#/a", "a+/b", "a/#/b", "a\0", LONG, DEEP])
def test_wrong_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(InputError):
        topics.check_pattern(pattern)


def test_a_publisher_may_not_use_wildcards_or_the_brokers_own_topics() -> None:
    assert all(map(topics.valid_topic, ["a/b", LONG[1:], DEEP[2:]]))
    assert not any(map(topics.valid_topic, ["", "a/+", "#", "$SYS/x", "a\0", LONG, DEEP]))
