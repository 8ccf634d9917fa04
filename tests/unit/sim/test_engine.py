"""The simulator itself: time, links, queues, timers, faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from postroad.filters import EVERYTHING
from postroad.model import BrokerId, Publication, Subscription, SubscriptionId, TimeUs
from postroad.overlay import from_parents, trees
from postroad.routing import SCHEMES, Interests
from postroad.routing.base import (
    CancelTimer,
    Deliver,
    Effect,
    LinkDown,
    LinkUp,
    Message,
    Plan,
    PublicationMessage,
    Publish,
    Router,
    Send,
    SetTimer,
    Subscribe,
)
from postroad.sim.engine import Fault, Simulator


def chain(brokers: int, latency_us: int = 1000, **options: object) -> Simulator:
    overlay = from_parents([0, *range(brokers - 1)], latency_us)
    plan = SCHEMES["flooding"].plan(overlay, Interests(), SCHEMES["flooding"].config(), 0)
    simulator = Simulator(plan, **options)  # type: ignore[arg-type]
    simulator.at(0, brokers - 1, Subscribe(Subscription("s", EVERYTHING)))
    simulator.run()
    return simulator


def publish(simulator: Simulator, time_us: int, name: str, broker: int = 0) -> None:
    simulator.at(time_us, broker, Publish(Publication("p", name, {}, time_us=time_us)))


def arrivals(simulator: Simulator) -> list[tuple[str, int]]:
    return [(key[1], time_us) for key, _, _, time_us, *_ in simulator.deliveries]


def test_a_delivery_takes_the_latency_of_its_path() -> None:
    simulator = chain(4, 700)
    publish(simulator, 50, "x")
    simulator.run()
    assert simulator.deliveries == [(("p", "x"), "s", 3, 50 + 3 * 700, 3, "tree")]


def test_a_broker_serves_one_input_at_a_time_in_order() -> None:
    simulator = chain(1, service_us=100)
    start = simulator.now
    for name in "abc":
        publish(simulator, start, name)
    simulator.run()
    assert arrivals(simulator) == [("a", start + 100), ("b", start + 200), ("c", start + 300)]
    broker = simulator.brokers[0]
    assert broker.queue_max == 3
    # Lengths 3, 2, 1 for 100 µs each, and before that 1 for the subscription's own service.
    assert broker.queue_area == 100 * (3 + 2 + 1) + 100


def test_a_full_buffer_drops_publications_and_counts_them() -> None:
    simulator = chain(1, service_us=100, buffer_max=2)
    for name in "abcd":
        publish(simulator, simulator.now, name)
    simulator.run()
    assert [name for name, _ in arrivals(simulator)] == ["a", "b"]
    assert simulator.brokers[0].dropped == 2


def test_a_full_buffer_still_admits_subscriptions() -> None:
    simulator = chain(1, service_us=100, buffer_max=1)
    publish(simulator, simulator.now, "a")
    simulator.at(simulator.now, 0, Subscribe(Subscription("t", EVERYTHING)))
    simulator.run()
    publish(simulator, simulator.now, "b")
    simulator.run()
    assert [(key[1], name) for key, name, *_ in simulator.deliveries] == [
        ("a", "s"),
        ("b", "s"),
        ("b", "t"),
    ]


def test_a_delayed_link_keeps_its_order() -> None:
    simulator = chain(2, 1000)
    simulator.fault(Fault("link_delay", (0, 1), 0, 500, 5000))
    publish(simulator, 100, "late")
    publish(simulator, 600, "overtakes not")
    simulator.run()
    assert arrivals(simulator) == [("late", 6100), ("overtakes not", 6100)]


def test_a_link_that_falls_loses_what_is_on_it() -> None:
    simulator = chain(2, 1000)
    simulator.fault(Fault("link_down", (0, 1), 500, 2000))
    for time_us, name in ((0, "on the way"), (1000, "while down"), (2000, "after")):
        publish(simulator, time_us, name)
    simulator.run()
    assert arrivals(simulator) == [("after", 3000)]


def test_a_lossy_link_loses_about_its_share_and_the_same_each_time() -> None:
    def delivered(seed: int) -> list[tuple[str, int]]:
        simulator = chain(2, 10, seed=seed)
        simulator.fault(Fault("link_loss", (0, 1), 0, 10**9, 0.3))
        for number in range(1000):
            publish(simulator, 100 + number, str(number))
        simulator.run()
        return arrivals(simulator)

    assert delivered(1) == delivered(1) != delivered(2)
    assert 650 < len(delivered(1)) < 750


def test_a_crashed_broker_refuses_publications_and_its_clients_come_back() -> None:
    simulator = chain(2, 10)
    simulator.fault(Fault("crash", (1,), 100, 200))
    publish(simulator, 150, "refused", broker=1)
    publish(simulator, 150, "lost")
    publish(simulator, 300, "seen")
    simulator.run()
    assert arrivals(simulator) == [("seen", 310)]
    assert simulator.refused == {("p", "refused")}


@dataclass
class Alarm(Router):
    """Sets, replaces and cancels timers; reports by delivering."""

    fired: list[tuple[str, TimeUs]] = field(default_factory=list)

    def on_start(self, now: TimeUs) -> list[Effect]:
        return [SetTimer("a", 100), SetTimer("b", 100), SetTimer("c", 50), SetTimer("a", 300)]

    def on_timer(self, name: str, now: TimeUs) -> list[Effect]:
        self.fired.append((name, now))
        return [CancelTimer("b")] if name == "c" else []

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        return []

    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]:
        return []

    def on_subscribe(self, subscription: Subscription, now: TimeUs) -> list[Effect]:
        return []

    def on_unsubscribe(self, subscription_id: SubscriptionId, now: TimeUs) -> list[Effect]:
        return []

    def table_entries(self) -> int:
        return 0

    def idle(self) -> bool:
        return len(self.fired) >= 2


class AlarmPlan(Plan):
    def __init__(self) -> None:
        self.made = Alarm()
        Router.__init__(self.made, 0)

    def router(self, broker: BrokerId) -> Router:
        return self.made

    def links(self) -> Sequence[Mapping[BrokerId, TimeUs]]:
        return [{}]

    def direct_us(self, source: BrokerId, target: BrokerId) -> TimeUs:
        return 0


def test_timers_are_named_replaced_and_cancelled() -> None:
    plan = AlarmPlan()
    Simulator(plan).run()
    assert plan.made.fired == [("c", 50), ("a", 300)]


def test_both_ends_of_a_link_are_told() -> None:
    overlay = trees.full_tree(2, 1)
    told: list[tuple[int, BrokerId, object]] = []
    plan = SCHEMES["flooding"].plan(overlay, Interests(), SCHEMES["flooding"].config(), 0)
    simulator = Simulator(plan, observer=lambda now, b, given, _: told.append((now, b, given)))
    told.clear()
    simulator.fault(Fault("link_down", (0, 2), 10, 20))
    simulator.run()
    assert told == [
        (10, 0, LinkDown(2)),
        (10, 2, LinkDown(0)),
        (20, 0, LinkUp(2)),
        (20, 2, LinkUp(0)),
    ]


def test_a_flooding_step_is_its_list_of_effects() -> None:
    overlay = from_parents([0, 0, 0])
    router = (
        SCHEMES["flooding"].plan(overlay, Interests(), SCHEMES["flooding"].config(), 0).router(0)
    )
    for peer in (1, 2):
        router.step(LinkUp(peer), 0)
    router.step(Subscribe(Subscription("s", EVERYTHING)), 0)
    publication = Publication("p", "1", {})
    onward = PublicationMessage(publication, 1)
    assert router.step(Publish(publication), 0) == [
        Deliver("s", publication, 0),
        Send(1, onward),
        Send(2, onward),
    ]
