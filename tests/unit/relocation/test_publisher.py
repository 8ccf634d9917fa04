"""The publisher's side of a move, step by step."""

from __future__ import annotations

from dataclasses import replace

from postroad.filters import EVERYTHING
from postroad.model import Advertisement, Publication
from postroad.relocation.publisher import Publisher
from postroad.routing.base import (
    Advertise,
    Migrate,
    Move,
    Paused,
    Publish,
    Resume,
    Unadvertise,
)

HERE = Advertisement("a", EVERYTHING, "p")
S, T = 1, 2


def said(number: int) -> Publish:
    return Publish(Publication("p", str(number), {}))


def moving() -> Publisher:
    publisher = Publisher(HERE, S)
    publisher.on_move(Move("a", T, 1), S)
    return publisher


def test_it_marks_its_last_publication_and_announces_itself_at_the_target() -> None:
    publisher = Publisher(HERE, S)
    assert publisher.give(said(1)) == [(S, said(1))]
    told = publisher.on_move(Move("a", T, 1), S)
    assert told == [(S, Paused("a", 1)), (T, Migrate(replace(HERE, epoch=1)))]
    assert told[1][1].advertisement.epoch == 1  # type: ignore[union-attr]


def test_what_it_is_given_while_it_moves_goes_to_the_target_in_order() -> None:
    publisher = moving()
    assert publisher.give(said(2)) == []
    assert publisher.give(said(3)) == []
    assert publisher.on_resume(Resume("a", 1, False), T) == [(T, said(2)), (T, said(3))]
    assert publisher.give(said(4)) == [(T, said(4))]


def test_orders_of_a_broker_that_is_not_its_own_are_ignored() -> None:
    publisher = Publisher(HERE, S)
    assert publisher.on_move(Move("a", S, 1), T) == []
    publisher = moving()
    assert publisher.on_move(Move("a", 3, 2), S) == []  # one move at a time


def test_after_an_abort_it_speaks_of_a_later_epoch_and_waits_a_grace() -> None:
    publisher = moving()
    publisher.give(said(2))
    told = publisher.on_resume(Resume("a", 1, True), S)
    assert told == [(T, Unadvertise("a")), (S, Advertise(HERE))]
    assert publisher.advertisement.epoch == 2
    assert publisher.give(said(3)) == []
    assert publisher.on_grace(publisher.grace + 1) == []
    assert publisher.on_grace(publisher.grace) == [(S, said(2)), (S, said(3))]


def test_the_other_end_that_claims_it_too_is_told_to_withdraw() -> None:
    publisher = moving()
    publisher.on_resume(Resume("a", 1, True), T)
    assert publisher.on_resume(Resume("a", 1, True), S) == [(S, Unadvertise("a"))]
    assert publisher.on_resume(Resume("a", 1, True), T) == []


def test_a_target_that_cannot_be_reached_is_given_up() -> None:
    publisher = moving()
    assert publisher.on_lost(3) == []
    assert publisher.on_lost(T) == [(T, Unadvertise("a")), (S, Advertise(HERE))]
    assert publisher.on_lost(T) == []


def test_a_broker_that_is_back_gets_its_publisher_back() -> None:
    publisher = Publisher(HERE, S)
    assert publisher.on_back(T) == []
    assert publisher.on_back(S) == [(S, Advertise(HERE))]
    assert publisher.advertisement.epoch == 1


def test_a_move_ordered_during_a_grace_is_made_after_it() -> None:
    publisher = Publisher(HERE, S)
    publisher.on_back(S)
    assert publisher.on_move(Move("a", T, 2), S) == []
    publisher.give(said(1))
    told = publisher.on_grace(publisher.grace)
    assert told[:2] == [(S, said(1)), (S, Paused("a", 2))]
    assert publisher.target == T


def test_a_publisher_that_withdraws_during_a_grace_does_not_move_after_it() -> None:
    publisher = Publisher(HERE, S)
    publisher.on_back(S)
    publisher.on_move(Move("a", T, 2), S)
    publisher.give(Unadvertise("a"))
    assert publisher.on_grace(publisher.grace) == [(S, Unadvertise("a"))]
