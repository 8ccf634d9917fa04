"""The repair of a tree by itself: what it is told, and what it wants done."""

from __future__ import annotations

from pathlib import Path

from live_harness import write_network
from postroad.filters import parse
from postroad.live.links.messages import Codec, WantsChange
from postroad.live.links.repair import Owe, Probe, Repair, Route, Spread
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
    (again,) = one.turn(joined(one))
    assert again == Route(first, deliver=False, onward={})
    route, owe = one.publish(second)
    assert (route, owe) == (Route(second, deliver=True, onward={}), Owe(2))
    one.let_go(lambda onward: isinstance(route, Route) and onward is route.onward)
    assert not one.holds(second)
    assert one.holds(first)


def test_what_clients_want_is_spread_when_it_changes(tmp_path: Path) -> None:
    one = repair(tmp_path)
    for name in ("s", "t"):
        orders = one.local(Subscribe(Subscription(name, parse("n > 0"), "c")), NOW)
        change = WantsChange(0, 0, NOW, "n > 0", True)
        assert orders == ([Spread(change, None)] if name == "s" else [])
    assert one.local(Unsubscribe("s"), NOW) == []
    change = WantsChange(0, NOW, NOW + 1, "n > 0", False)
    assert one.local(Unsubscribe("t"), NOW) == [Spread(change, None)]


def test_what_was_sent_in_this_tree_is_delivered_once(tmp_path: Path) -> None:
    one = repair(tmp_path)
    came = publication(1, 1)
    effects: list[Effect] = [Deliver("s", came, 1)]
    assert one.received(came, list(effects), NOW) == []  # nothing was said to begin there
    assert one.begin(1, one.tree.id)
    assert one.received(came, list(effects), NOW) == effects
    assert one.received(came, list(effects), NOW) == []
