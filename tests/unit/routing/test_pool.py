"""What a pool remembers of publications: by identity, until its filters change."""

from __future__ import annotations

from postroad.filters import parse
from postroad.model import Publication
from postroad.routing.pool import FilterPool


def test_a_filter_that_comes_or_goes_counts_for_a_publication_that_was_asked_about() -> None:
    pool = FilterPool()
    first, second = parse("x > 1"), parse("x > 2")
    pool.enter(first)
    publication = Publication("p", "1", {"x": 3})
    assert pool.match(publication) == [first]
    pool.enter(second)
    assert pool.match(publication) == [first, second]
    pool.leave(first)
    assert pool.match(publication) == [second]


def test_a_publication_is_not_taken_for_another_that_had_its_identity() -> None:
    """As in a pool that was sent to another process, where the numbers it has mean nothing."""
    pool = FilterPool()
    wanted = parse("x = 1")
    pool.enter(wanted)
    other, publication = Publication("p", "1", {"x": 1}), Publication("p", "2", {"x": 2})
    assert pool.match(other) == [wanted]
    pool._recent[id(publication)] = pool._recent.pop(id(other))
    assert pool.match(publication) == []


def test_publications_of_the_last_generations_are_remembered_and_no_more() -> None:
    pool = FilterPool()
    pool.recent_max = 2
    publications = [Publication("p", str(n), {"x": n}) for n in range(9)]
    for publication in publications:
        pool.match(publication)
    kept = [each for each, _ in (*pool._elder.values(), *pool._recent.values())]
    assert kept == publications[6:]


def test_a_filter_goes_with_the_last_table_that_holds_it() -> None:
    pool = FilterPool()
    wanted = parse("x = 1")
    publication = Publication("p", "1", {"x": 1})
    for _ in range(3):
        pool.enter(wanted)
    for _ in range(2):
        pool.leave(wanted)
        assert pool.match(publication) == [wanted]
    pool.enter(wanted)
    pool.leave(wanted)
    assert pool.match(publication) == [wanted]
    pool.leave(wanted)
    assert not pool.uses
    assert pool.match(publication) == []
