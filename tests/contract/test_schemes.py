"""What every scheme in SCHEMES owes its users, on random networks with churn and faults.

A failure prints the seed; `pytest -k NAME --hypothesis-seed=N` or `check_…(seed)` replays it.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import networks
from networks import NAMES, VARIANTS
from postroad.filters import Filter, intersects, matches
from postroad.model import Advertisement, BrokerId, Publication, Subscription
from postroad.overlay import Overlay
from postroad.routing import SCHEMES
from postroad.routing.base import (
    Advertise,
    Deliver,
    Effect,
    Input,
    PublicationMessage,
    Publish,
    Received,
    Send,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from postroad.sim.engine import Fault, Simulator
from postroad.sim.oracle import compare
from postroad.sim.run import plan_of, run
from postroad.workloads.model import Posting, Workload

# Random networks per scheme and test. Hypothesis draws others in each run; `make contract` is long.
EXAMPLES = int(os.environ.get("POSTROAD_EXAMPLES", "20"))

seeds = st.integers(min_value=0, max_value=2**32)
every_scheme = pytest.mark.parametrize(("name", "config"), VARIANTS, ids=NAMES)


@every_scheme
@given(seed=seeds)
@settings(max_examples=EXAMPLES, deadline=None)
def test_rounds_of_churn_deliver_exactly_what_the_oracle_says(
    name: str, config: Any, seed: int
) -> None:
    """Clients come and go, the network settles, publications flow; in the end everyone leaves."""
    draw = random.Random(seed)
    overlay = networks.overlay(draw)
    brokers = range(overlay.brokers_count)
    sends: list[tuple[BrokerId, BrokerId, Publication]] = []

    def watch(now: int, broker: BrokerId, given: Input, effects: Any) -> None:
        sends.extend(
            (broker, effect.peer, publication)
            for effect in effects
            if isinstance(effect, Send)
            for publication in networks.forwarded(effect.message)
        )
        if isinstance(given, Publish):
            holds_to_recipients(broker, given.publication, 0, None, effects)
        elif isinstance(given, Received) and isinstance(given.message, PublicationMessage):
            message = given.message
            holds_to_recipients(broker, message.publication, message.hops, given.sender, effects)

    def holds_to_recipients(
        broker: BrokerId, item: Publication, hops: int, sender: BrokerId | None, effects: Any
    ) -> None:
        router, topic = simulator.brokers[broker].router, item.attributes.get("class")
        of_class = router.recipients(topic, sender) if isinstance(topic, str) else None
        for recipients in (of_class, router.interested(item.attributes, sender)):
            if recipients is not None:  # it goes to them, and nowhere else
                names, peers = recipients
                onward = PublicationMessage(item, hops + 1)
                assert effects == [
                    *(Deliver(name, item, hops) for name in names),
                    *(Send(peer, onward) for peer in peers),
                ]

    plan = networks.plan(name, config, overlay)
    simulator = Simulator(plan, observer=watch, check=True)
    subscriptions: dict[str, tuple[BrokerId, Filter]] = {}
    advertisements: dict[str, tuple[BrokerId, Filter]] = {}
    number = 0
    for _ in range(draw.randint(2, 5)):
        moment = simulator.now
        for _ in range(draw.randint(1, 8)):
            number += 1
            broker, filter = draw.choice(brokers), networks.filter(draw)
            what = draw.random()
            if what < 0.5:
                subscriptions[f"s{number}"] = (broker, filter)
                given_input: Input = Subscribe(Subscription(f"s{number}", filter))
            elif what < 0.65 and subscriptions:
                gone = draw.choice(sorted(subscriptions))
                broker, _ = subscriptions.pop(gone)
                given_input = Unsubscribe(gone)
            elif what < 0.9 or not advertisements:
                advertisements[f"a{number}"] = (broker, filter)
                given_input = Advertise(Advertisement(f"a{number}", filter))
            else:
                gone = draw.choice(sorted(advertisements))
                broker, _ = advertisements.pop(gone)
                given_input = Unadvertise(gone)
            # In quick succession, so that the changes cross each other on the way.
            moment += draw.randint(0, 1000)
            simulator.at(moment, broker, given_input)
        simulator.run()
        if name == "advertisement_forwarding":
            assert_only_towards_advertisements(simulator, overlay, advertisements)
        simulator.deliveries.clear()
        sends.clear()
        owed: Counter[tuple[Any, str]] = Counter()
        published: dict[Any, Publication] = {}
        for advertisement_id, (broker, filter) in sorted(advertisements.items()):
            attributes = networks.matching_attributes(draw, filter)
            if attributes is None:
                continue
            number += 1
            publication = Publication(advertisement_id, str(number), attributes)
            published[publication.key] = publication
            owed.update(
                (publication.key, name)
                for name, (_, wanted) in subscriptions.items()
                if matches(wanted, attributes)
            )
            simulator.at(simulator.now + draw.randint(0, 3000), broker, Publish(publication))
        simulator.run()
        assert Counter(delivery[:2] for delivery in simulator.deliveries) == owed
        if SCHEMES[name].filters_traffic:
            for source, target, publication in sends:
                far = networks.behind(overlay, source, target)
                assert any(
                    broker in far and matches(wanted, publication.attributes)
                    for broker, wanted in subscriptions.values()
                ), f"{publication.key} crossed {source}-{target} for nobody"
        if SCHEMES[name].overlay == "tree":  # on a ring, messages for several may share a link
            links = Counter((a, b, publication.key) for a, b, publication in sends)
            assert not links or max(links.values()) == 1
    for gone, (broker, _) in subscriptions.items():
        simulator.at(simulator.now, broker, Unsubscribe(gone))
    for gone, (broker, _) in advertisements.items():
        simulator.at(simulator.now, broker, Unadvertise(gone))
    simulator.run()
    assert_empty(simulator)


def assert_only_towards_advertisements(
    simulator: Simulator, overlay: Overlay, advertisements: dict[str, tuple[BrokerId, Filter]]
) -> None:
    for number, broker in enumerate(simulator.brokers):
        for peer, outgoing in broker.router.outgoing.items():  # type: ignore[attr-defined]
            far = networks.behind(overlay, number, peer)
            offers = [filter for home, filter in advertisements.values() if home in far]
            for filter in outgoing.asked:
                assert any(intersects(offer, filter) for offer in offers)


def assert_empty(simulator: Simulator) -> None:
    for broker in simulator.brokers:
        assert broker.router.table_entries() == 0
        for outgoing in getattr(broker.router, "outgoing", {}).values():
            assert not outgoing.asked
            assert not outgoing.covered_by
    assert not any(pool.uses for pool in simulator.plan.pools())


@every_scheme
@given(seed=seeds)
@settings(max_examples=EXAMPLES, deadline=None)
def test_churn_amid_publications_disturbs_nobody_else(name: str, config: Any, seed: int) -> None:
    scenario = networks.scenario(random.Random(seed), name, config)
    result = run(scenario, check=True)
    compare(scenario, [delivery[:2] for delivery in result.deliveries]).require()
    assert not result.notes


@every_scheme
@given(seed=seeds)
@settings(max_examples=EXAMPLES, deadline=None)
def test_faults_lose_only_what_they_touch(name: str, config: Any, seed: int) -> None:
    """Links fall, brokers crash, partitions heal: nothing wrong or twice, and all is well after."""
    draw = random.Random(seed)
    scenario = networks.scenario(draw, name, config)
    links = plan_of(scenario).links()
    ends = [(a, b) for a, peers in enumerate(links) for b in sorted(peers) if a < b]
    faults = []
    for _ in range(draw.randint(1, 4)):
        start = draw.randint(0, 30_000)
        end = start + draw.randint(1, 10_000)
        kind = draw.choice(["crash", "link_down", "link_delay", "partition"])
        if kind == "crash" or not ends:
            where: tuple[int, ...] = (draw.randrange(scenario.overlay.brokers_count),)
            faults.append(Fault("crash", where, start, end))
        elif kind == "partition":
            side = {b for b in range(scenario.overlay.brokers_count) if draw.random() < 0.5}
            cut = [pair for pair in ends if (pair[0] in side) != (pair[1] in side)]
            faults.extend(Fault("link_down", pair, start, end) for pair in cut)
        else:
            amount = draw.randint(1, 5000) if kind == "link_delay" else 0
            faults.append(Fault(kind, draw.choice(ends), start, end, amount))  # type: ignore[arg-type]
    # A client that stays on a broker that is down twice at once would restart it twice.
    crashed: set[int] = set()
    kept = []
    for fault in faults:
        if fault.kind == "crash":
            if fault.where[0] in crashed:
                continue
            crashed.add(fault.where[0])
        kept.append(fault)
    # Publications after the last fault has been absorbed are owed in full.
    late = [
        Posting(500_000 + n, posting.broker, posting.publisher, f"late-{n}", posting.attributes)
        for n, posting in enumerate(scenario.workload.postings)
    ]
    workload = Workload(
        scenario.workload.subscriptions,
        scenario.workload.advertisements,
        scenario.workload.postings + tuple(late),
    )
    scenario = replace(scenario, workload=workload, faults=tuple(kept), settle_us=140_000)
    result = run(scenario, check=True)
    verdict = compare(scenario, [delivery[:2] for delivery in result.deliveries], result.refused)
    verdict.require()


@every_scheme
@given(seed=seeds)
@settings(max_examples=max(1, EXAMPLES // 2), deadline=None)  # each plans once per broker
def test_recorded_inputs_replay_to_the_same_effects(name: str, config: Any, seed: int) -> None:
    """A router alone, given the inputs it had in the network, does again what it did there."""
    scenario = networks.scenario(random.Random(seed), name, config)
    recorded: dict[BrokerId, list[tuple[int, Input, list[Effect]]]] = {}

    def watch(now: int, broker: BrokerId, given: Input, effects: Any) -> None:
        recorded.setdefault(broker, []).append((now, given, list(effects)))

    run(scenario, watch)
    for broker, steps in recorded.items():
        alone = plan_of(scenario).router(broker)
        for now, given_input, effects in steps:
            # Asked first what it would do with a publication, it does just that, and goes on as
            # it had without being asked.
            carries = isinstance(given_input, Received) and given_input.message.carries
            if isinstance(given_input, Publish) or carries:
                count = alone.matches_count
                assert alone.would(given_input, now)[0] == effects
                assert alone.matches_count == count
            assert alone.step(given_input, now) == effects


@every_scheme
def test_unknown_messages_are_dropped_with_a_note(name: str, config: Any) -> None:
    from postroad.routing.base import Message, Note, Received

    class Strange(Message):
        kind = "strange"

    overlay = networks.overlay(random.Random(1))
    router = networks.plan(name, config, overlay).router(0)
    (effect,) = router.step(Received(Strange(), 1), 0)
    assert isinstance(effect, Note)
