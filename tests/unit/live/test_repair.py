"""The repair of a tree by itself: what it is told, and what it wants done."""

from __future__ import annotations

from pathlib import Path

from live_harness import write_network
from postroad.filters import parse
from postroad.live.links.messages import Codec, Wants, WantsChange, WantsVersions
from postroad.live.links.repair import (
    Choose,
    Hand,
    Owe,
    Probe,
    Repair,
    Route,
    Spread,
    Transmit,
)
from postroad.live.network import load
from postroad.live.store import Journal
from postroad.model import Publication, Subscription
from postroad.routing.base import Deliver, Effect, Subscribe, Unsubscribe

NOW = 10**15


def repair(folder: Path, number: int = 0) -> Repair:
    pairs = [("A", "B"), ("B", "C"), ("C", "A")]
    top = 'store = "store"'
    network = load(write_network(folder, ["A", "B", "C"], pairs, top=top))
    return Repair(network, number, f"{number:x}-{NOW:x}", Codec(), Journal(), None, None, NOW)


def publication(broker: int, count: int) -> Publication:
    return Publication("p", f"{broker:x}-{NOW:x}.{count}", {"n": 1}, b"\x32", NOW)  # quality 1


def joined(repair: Repair) -> list[tuple[int, int]]:
    return [repair.tree.id] * len(repair.tree.neighbours(repair.number))


def test_a_publication_stays_in_the_outbox_until_it_is_safe_in_a_settled_tree(
    tmp_path: Path,
) -> None:
    one = repair(tmp_path)
    first, second = publication(0, 1), publication(0, 2)
    assert one.publish(first) == [Route(first, deliver=True, onward=None), Owe(1)]
    assert one.turn([(0, 0)]) == []  # a neighbour has not been in this tree
    assert one.turn(joined(one)) == [Probe(one.tree.id)]
    assert one.turn(joined(one)) == []  # it was asked for already
    assert one.answered(one.tree.id, False, NOW)  # wait on
    assert not one.answered(one.tree.id, True, NOW)
    again, choose = one.turn(joined(one))
    assert again == Route(first, deliver=False, onward={})
    assert choose == Choose(1, first, None)
    route, choose, owe = one.publish(second)
    assert (route, owe) == (Route(second, deliver=True, onward={}), Owe(2))
    one.let_go(lambda onward: True)
    assert one.holds(first)  # nobody has said whether it is for a group
    assert one.turn(joined(one)) == []
    one.answered(one.tree.id, True, NOW)
    for order in one.turn(joined(one)):
        if isinstance(order, Choose):
            assert one.chosen(order.number, {}, False) == []
        elif isinstance(order, Route) and order.publication is second:
            route = order
    one.let_go(lambda onward: isinstance(route, Route) and onward is route.onward)
    assert not one.holds(second)
    assert one.holds(first)


def test_what_is_for_a_group_is_handed_to_the_same_broker_until_it_is_safe(tmp_path: Path) -> None:
    one = repair(tmp_path)
    one.turn(joined(one))
    one.answered(one.tree.id, True, NOW)
    one.turn(joined(one))
    given = publication(0, 1)
    assert one.publish(given)[1] == Choose(1, given, None)
    (hand,) = one.chosen(1, {"g": 1}, True)
    assert isinstance(hand, Hand)
    assert (hand.handoff.target, hand.handoff.group, hand.handoff.origin) == (1, "g", 0)
    one.answered(one.tree.id, True, NOW)
    _, again = one.turn(joined(one))  # not chosen again
    assert isinstance(again, Hand)
    assert again.handoff == hand.handoff
    one.let_go(lambda onward: False)
    assert one.holds(given)
    one.let_go(lambda onward: True)
    assert not one.holds(given)
    there = repair(tmp_path)
    assert there.is_news(hand.handoff)
    assert not there.is_news(hand.handoff)


def test_what_clients_want_is_spread_when_it_changes(tmp_path: Path) -> None:
    one = repair(tmp_path)
    for name in ("s", "t"):
        orders = one.local(Subscribe(Subscription(name, parse("n > 0"), "c")), NOW)
        change = WantsChange(0, 0, NOW, "n > 0", True)
        assert orders == ([Spread(change, None)] if name == "s" else [])
    assert one.local(Unsubscribe("s"), NOW) == []
    change = WantsChange(0, NOW, NOW + 1, "n > 0", False)
    assert one.local(Unsubscribe("t"), NOW) == [Spread(change, None)]


def test_a_broker_that_is_not_in_the_file_yet_is_waited_for(tmp_path: Path) -> None:
    """B has a newer file, and D a session that was at B."""
    one, given = repair(tmp_path), publication(0, 1)
    one.turn(joined(one))
    one.answered(one.tree.id, True, NOW)
    wants = Wants(3, NOW, ["n > 0"])
    assert one.on_message(wants, 1, NOW) == [Spread(wants, 1)]
    assert one.on_message(Wants(2**40, NOW, ["n > 0"]), 1, NOW) == []  # no broker's number
    one.turn(joined(one))
    one.publish(given)
    one.chosen(1, {}, False)
    one.let_go(lambda onward: True)
    assert one.holds(given)
    pairs = [("A", "B"), ("B", "C"), ("C", "A"), ("B", "D")]
    newer = write_network(tmp_path, ["A", "B", "C", "D"], pairs, top='store = "store"')
    one.change(load(newer))
    assert one.wants[3] == {"n > 0": None}


def test_what_came_last_is_told_last(tmp_path: Path) -> None:
    one = repair(tmp_path)
    for broker, version in ((1, NOW + 5), (2, NOW + 3)):
        one.on_message(Wants(broker, version, []), 1, NOW)
    orders = one.on_message(WantsVersions({}, True), 1, NOW) or []
    told = [order.message for order in orders if isinstance(order, Transmit)]
    assert [message.broker for message in told if isinstance(message, Wants)] == [2, 1]


def test_what_was_sent_in_this_tree_is_delivered_once(tmp_path: Path) -> None:
    one = repair(tmp_path)
    came = publication(1, 1)
    effects: list[Effect] = [Deliver("s", came, 1)]
    nobody = lambda *_: False  # noqa: E731
    assert one.received(came, list(effects), NOW, nobody) == []  # nothing was said to begin there
    assert one.begin(1, one.tree.id)
    assert one.received(came, list(effects), NOW, nobody) == effects
    assert one.received(came, list(effects), NOW, nobody) == []
