"""What was recorded, replayed: the same deliveries and messages under every scheme; and changes
to it, held against scenarios that were made that way from the beginning."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import networks
from networks import NAMES, VARIANTS
from postroad.errors import InputError
from postroad.filters import matches, parse
from postroad.overlay import from_parents
from postroad.replay import announced, export, whatif
from postroad.replay.recorded import Recorded, from_rows
from postroad.replay.report import fidelity
from postroad.replay.whatif import Changes
from postroad.sim.engine import Fault
from postroad.sim.run import run
from postroad.sim.scenario import Scenario, load
from postroad.sim.tracing import Tracing
from postroad.traces.schema import SHUT_DOWN, Recording, Row
from postroad.workloads.model import Interest, Posting, Workload

every_scheme = pytest.mark.parametrize(("name", "config"), VARIANTS, ids=NAMES)
seeds = st.integers(min_value=0, max_value=2**32)


def record(scenario: Scenario) -> Recorded:
    tracing = Tracing(scenario, "run", Recording(""))
    run(scenario, tracing=tracing)
    return from_rows(tracing.rows)


def live(scenario: Scenario) -> list[Row]:
    """The rows of a run, as if brokers in processes of their own had written them."""
    tracing = Tracing(scenario, "run", Recording(""))
    run(scenario, tracing=tracing)
    rows = [msgspec.structs.replace(row, life=1) for row in tracing.rows]
    for start in (row for row in rows if row.kind == "start"):
        start.detail = json.dumps({**json.loads(start.detail or ""), "assumed_us": 1000})
    return rows


def test_the_shutdown_of_a_network_is_not_replayed() -> None:
    """Clients that are still connected then unsubscribe; who hears of it is chance."""
    draw = random.Random(3)
    scenario = with_publications(draw, "subscription_forwarding", None)
    rows = live(scenario)
    names, late_us = sorted({row.broker for row in rows}), max(row.time_us for row in rows) + 50

    def row(kind: str, **more: Any) -> Row:
        number = len(rows) + len(ending)
        return Row("run", names[0], 1, number, kind, late_us + len(ending), **more)

    left = {row.subscription for row in rows if row.kind == "unsubscribe"}
    held = next(row for row in rows if row.kind == "subscribe" and row.subscription not in left)
    ending: list[Row] = []
    ending.append(row("disconnect", client=held.client, reason=SHUT_DOWN))
    ending.append(row("unsubscribe", subscription=held.subscription))
    ending.append(row("send", peer=names[1], mechanism="unsubscription"))
    ends = [
        Row("run", name, 1, 10**6, "end", late_us + 10, reason="told to stop") for name in names
    ]
    calm, ended = from_rows([*rows, *ends]), from_rows([*rows, *ending, *ends])
    assert ended.messages == calm.messages
    assert ended.scenario.workload == calm.scenario.workload
    (known,) = (one for one in ended.scenario.workload.subscriptions if one.id == held.subscription)
    assert known.until_us is None
    going_on = from_rows([*rows, *ending])  # the others do, so it does end
    assert going_on.messages != calm.messages
    assert going_on.scenario.workload != calm.scenario.workload


def with_publications(draw: random.Random, name: str, config: Any) -> Scenario:
    while True:
        scenario = networks.scenario(draw, name, config)
        workload = scenario.workload
        if workload.postings:  # in the order in which they are recorded, for planners look at it
            interests = (
                tuple(sorted(each, key=lambda one: -1 if one.time_us is None else one.time_us))
                for each in (workload.subscriptions, workload.advertisements)
            )
            return replace(scenario, workload=Workload(*interests, workload.postings))


def accepted(posting: Posting, crash: Fault) -> bool:
    down = crash.start_us <= posting.time_us < crash.end_us
    return posting.broker not in crash.where or not down


@every_scheme
@given(seed=seeds)
@settings(max_examples=10, deadline=None)
def test_a_recorded_run_is_replayed_to_the_letter(name: str, config: Any, seed: int) -> None:
    draw = random.Random(seed)
    scenario = with_publications(draw, name, config)
    if draw.random() < 0.3:
        crash = Fault("crash", (draw.randrange(scenario.overlay.brokers_count),), 20_000, 30_000)
        scenario = replace(scenario, faults=(crash,))
        if not any(accepted(posting, crash) for posting in scenario.workload.postings):
            with pytest.raises(InputError, match="no publications were recorded"):
                record(scenario)
            return
    recorded = record(scenario)
    if not scenario.faults:
        same = fidelity(recorded, run(recorded.exact))
        assert same.same, same
        assert all(before == after for before, after in same.delays_us.values())
    else:
        (fault,) = recorded.scenario.faults
        assert fault.where == crash.where
        assert crash.start_us <= fault.end_us <= crash.end_us


@given(seed=seeds)
@settings(max_examples=30, deadline=None)
def test_changes_do_what_they_say(seed: int) -> None:
    draw = random.Random(seed)
    scenario = with_publications(draw, *VARIANTS[1])
    names = scenario.overlay.names
    publisher = draw.choice(scenario.workload.postings).publisher
    target = draw.choice(names)
    changes = Changes(
        added=[("new", draw.choice(names), 700)],
        moved=[(publisher, target)],
        subscriptions_x=2,
        publications_x=draw.choice([1.0, 3.0]),
    )
    changed, said = whatif.apply(scenario, changes)
    assert said
    assert changed.overlay.names == (*names, "new")
    result = run(changed, check=True)
    # Against brute force: each copy of each matching subscription that stands throughout.
    owed = {
        ((posting.publisher, posting.id), one.id)
        for posting in changed.workload.postings
        for one in changed.workload.subscriptions
        if one.time_us is None and one.until_us is None
        and matches(one.filter, posting.attributes)
    }  # fmt: skip
    delivered = [delivery[:2] for delivery in result.deliveries]
    assert owed <= set(delivered)
    assert len(set(delivered)) == len(delivered)
    factor = round(changes.publications_x)
    assert len(changed.workload.postings) == factor * len(scenario.workload.postings)
    moved = {p.broker for p in changed.workload.postings if p.publisher == publisher}
    assert moved == {names.index(target)}


@given(seed=seeds)
@settings(max_examples=30, deadline=None)
def test_without_a_broker_the_others_are_still_joined(seed: int) -> None:
    draw = random.Random(seed)
    scenario = with_publications(draw, *VARIANTS[1])
    names = scenario.overlay.names
    gone = draw.choice(names)
    if len(names) == 1:
        with pytest.raises(InputError, match="only broker"):
            whatif.apply(scenario, Changes(without=[gone]))
        return
    changed, _ = whatif.apply(scenario, Changes(without=[gone]))
    rest = [name for name in names if name != gone]
    assert list(changed.overlay.names) == rest
    old, new = scenario.overlay, changed.overlay
    peers = old.neighbours()[names.index(gone)]
    near = min(peers.values(), default=0)
    for a in rest:  # nobody comes nearer, and nobody goes further than by the detour
        before = old.path_us(names.index(a))
        after = new.path_us(rest.index(a))
        for b in rest:
            direct, now = before[names.index(b)], after[rest.index(b)]
            assert direct <= now <= direct + 2 * near
    counts = [
        sum(names[one.broker] != gone for one in scenario.workload.subscriptions),
        sum(names[posting.broker] != gone for posting in scenario.workload.postings),
    ]
    assert counts == [len(changed.workload.subscriptions), len(changed.workload.postings)]
    run(changed, check=True)


def test_what_is_exported_is_the_same_scenario(tmp_path: Path) -> None:
    scenario = with_publications(random.Random(5), *VARIANTS[1])
    export.write(scenario, tmp_path / "out")
    again = load(tmp_path / "out" / "scenario.toml")
    before, after = run(scenario), run(again)

    def told(result: Any) -> list[Any]:
        names = result.scenario.overlay.names
        return sorted((k, s, names[b], t, h) for k, s, b, t, h, _ in result.deliveries)

    assert told(before) == told(after)


def brief(scheme: str, gap_us: int = 1) -> Scenario:
    """Over a chain of four brokers: one client comes for each publication, and leaves at once."""
    overlay = from_parents([0, 0, 1, 2], 5_000)
    wanted = parse("class = 'quotes/ibm'")
    times_us = range(400_000, 900_000, 100_000)
    return Scenario(
        scheme,
        overlay,
        Workload(
            (Interest("s", 3, "desk", wanted, 10_000, 1_200_000),),
            tuple(
                Interest(f"a{us}", 0, "feed", wanted, us - gap_us, us + gap_us) for us in times_us
            ),
            tuple(Posting(us, 0, "feed", f"{us}", {"class": "quotes/ibm"}) for us in times_us),
        ),
    )


@pytest.mark.parametrize("scheme", ["advertisement_forwarding", "popsub"])
@pytest.mark.parametrize("link_us", [5_000, 80_000])
def test_clients_that_publish_once_and_leave_are_heard(
    scheme: str, link_us: int, tmp_path: Path
) -> None:
    """Live brokers hold a first publication until the network knows its publisher; under a scheme
    without advertisements they need not, so the traces have no time for it."""
    recorded = from_rows(live(brief("subscription_forwarding")))
    assert sum(recorded.deliveries.values()) == 5
    slower = [("1", "2", link_us)]
    changed, _ = whatif.apply(recorded.scenario, Changes(links_us=slower, publications_x=3))
    changed = announced.in_time(whatif.under(changed, scheme, (), None))
    export.write(changed, tmp_path)
    for scenario in (changed, load(tmp_path / "scenario.toml")):
        result = run(scenario, check=True)
        assert result.summary()["missing"] == 0
        assert len(result.deliveries) == 15


def test_a_first_publication_waits_longer_where_a_link_is_slower() -> None:
    """Also if the recorded scheme has advertisements, which were soon enough as links were then."""
    recorded = from_rows(live(brief("advertisement_forwarding", 40_000)))
    assert sum(recorded.deliveries.values()) == 5
    changed, _ = whatif.apply(recorded.scenario, Changes(links_us=[("1", "2", 90_000)]))
    assert len(run(changed).deliveries) < 5
    assert len(run(announced.in_time(changed)).deliveries) == 5


def test_what_a_simulation_lost_is_lost_when_it_is_replayed() -> None:
    recorded = record(brief("advertisement_forwarding"))
    assert not recorded.deliveries
    assert announced.in_time(recorded.scenario) == recorded.scenario


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        (Changes(without=["nowhere"]), "no broker 'nowhere'"),
        (Changes(added=[("0", "0", 1)]), "there is a broker '0'"),
        (Changes(links_us=[("0", "nowhere", 1)]), "no broker 'nowhere'"),
        (Changes(moved=[("nobody", "0")]), "no publisher 'nobody'"),
    ],
)
def test_wrong_changes_are_refused(changes: Changes, wrong: str) -> None:
    scenario = with_publications(random.Random(3), *VARIANTS[1])
    with pytest.raises(InputError, match=wrong):
        whatif.apply(scenario, changes)
