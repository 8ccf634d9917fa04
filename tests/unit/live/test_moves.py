"""What moves of publishers ask for, without a broker: inputs in, orders out."""

from __future__ import annotations

import msgspec
import pytest

from postroad.filters import parse
from postroad.live.edge.moves import (
    ARRIVE_US,
    LEAVE_US,
    After,
    Close,
    Moves,
    Order,
    Redirect,
    Release,
    Step,
    Ticket,
)
from postroad.live.edge.mqtt import V5, Malformed
from postroad.live.edge.session import Connection, Room, Session
from postroad.live.network import Limits
from postroad.model import Advertisement
from postroad.relocation.publisher import GRACE_US
from postroad.routing.base import Advertise, Migrate, Move, Paused, Resume, Unadvertise

ADVERTISEMENT = Advertisement("a", parse("x > 0"), "ann", 0)


def connected(follows: bool = True) -> tuple[Session, Connection]:
    limits = Limits()
    session = Session("ann", "ann.1", limits, Room(limits.sessions_bytes))
    connection = Connection("here", 0)
    connection.level, connection.follows = V5, follows
    session.connection, connection.session = connection, session
    return session, connection


def after(orders: list[Order], wait_us: int) -> list[Order]:
    """What the one order for later asks for then."""
    (later,) = (order for order in orders if isinstance(order, After))
    assert later.wait_us == wait_us
    return later.then()


def test_a_publisher_is_redirected_and_its_leaving_ends_what_it_advertised() -> None:
    moves = Moves()
    session, connection = connected()
    session.advertised = {"t": "a"}
    moves.advertised(session, ADVERTISEMENT)
    order = Move("a", 2, 1)
    orders = after(moves.move(order), 1)
    ticket = Ticket("a", str(ADVERTISEMENT.filter), "ann", 1, ["t"])
    assert orders[0] == Redirect(connection, 2, ticket)
    assert after(orders, LEAVE_US) == [Close(connection)]
    assert after(moves.move(order), 1) == []  # it is on its way already
    orders = moves.left(session, order)
    assert orders[0] == Step(Paused("a", 1))
    assert after(orders, ARRIVE_US) == [Step(Unadvertise("a"))]


def test_a_publisher_that_cannot_follow_stays() -> None:
    moves = Moves()
    session, _ = connected(follows=False)
    session.advertised = {"t": "a"}
    moves.advertised(session, ADVERTISEMENT)
    assert after(moves.move(Move("a", 2, 1)), 1) == []


def test_one_that_arrives_is_held_until_the_routers_agree() -> None:
    moves = Moves()
    session, connection = connected()
    ticket = Ticket("a", "x > 0", "ann", 1, ["t"])
    orders = moves.arrived(session, msgspec.json.encode(ticket).decode())
    assert isinstance(orders[0], Step)
    assert isinstance(orders[0].input, Migrate)
    assert connection.held
    assert moves.go_on(Resume("a", 0, cut=False)) == []  # of an earlier epoch
    assert after(moves.go_on(Resume("a", 1, cut=True)), GRACE_US) == [Release(connection)]
    assert not connection.held


def test_routers_that_do_not_agree_in_time_are_told_where_it_is() -> None:
    moves = Moves()
    session, connection = connected()
    ticket = Ticket("a", "x > 0", "ann", 1, ["t"])
    late = after(moves.arrived(session, msgspec.json.encode(ticket).decode()), ARRIVE_US)
    assert late[0] == Step(Advertise(Advertisement("a", parse("x > 0"), "ann", 2)))
    assert after(late, GRACE_US) == [Release(connection)]


def test_nobody_arrives_in_the_name_of_another() -> None:
    session, _ = connected()
    ticket = Ticket("a", "x > 0", "bob", 1, ["t"])
    with pytest.raises(Malformed, match="another client's"):
        Moves().arrived(session, msgspec.json.encode(ticket).decode())
