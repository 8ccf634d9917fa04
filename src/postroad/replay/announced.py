"""Advertisements of a live network, early and late enough for any scheme.

A live broker holds a publisher's first publication until the network knows the publisher. Under a
scheme without advertisements there is nothing to wait for: the traces then have an advertisement
one microsecond before the publication that it is for, and its end as soon as the client has left.
Under another scheme, or over slower links, these times would lose what live brokers deliver.
Publications keep their times, on which delays depend and who is still subscribed; so it is the
advertisements that give way.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import replace

from postroad.model import BrokerId, TimeUs
from postroad.sim.oracle import there_and_back_us
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Interest

STEP_US = 25  # of a broker with a message: twice what a comparison takes one to need


def in_time(scenario: Scenario) -> Scenario:
    """The scenario with each advertisement standing from well before the first publication made
    under it until well after the last. A simulation's own advertisements stay as they were given:
    what they lose was lost when it was recorded."""
    if scenario.measured is None:
        return scenario
    workload = scenario.workload
    margin_us = _settling_us(scenario)
    made_us: dict[tuple[str, BrokerId], list[TimeUs]] = defaultdict(list)
    for posting in workload.postings:
        made_us[posting.publisher, posting.broker].append(posting.time_us)
    for times_us in made_us.values():
        times_us.sort()
    # Versions of an advertisement that changed follow each other under one name, and stay so.
    versions = Counter(one.id for one in workload.advertisements)
    advertisements = tuple(
        _lasting(one, made_us[one.client, one.broker], margin_us) if versions[one.id] == 1 else one
        for one in workload.advertisements
    )
    return replace(scenario, workload=replace(workload, advertisements=advertisements))


def _settling_us(scenario: Scenario) -> TimeUs:
    """How long it takes at most until every broker knows a publisher: its advertisement crosses the
    network, every subscription may come back, and each is a step of each broker on the way."""
    workload = scenario.workload
    steps = len(workload.subscriptions) + 2 * scenario.overlay.brokers_count
    return there_and_back_us(scenario) + steps * STEP_US


def _lasting(one: Interest, made_us: list[TimeUs], margin_us: TimeUs) -> Interest:
    since_us, until_us = one.time_us, one.until_us
    begin = 0 if since_us is None else bisect_left(made_us, since_us)
    end = len(made_us) if until_us is None else bisect_right(made_us, until_us)
    if begin >= end:
        return one
    if since_us is not None:
        early_us = min(since_us, made_us[begin] - margin_us)
        since_us = early_us if early_us > 0 else None  # there before the workload begins
    if until_us is not None:
        until_us = max(until_us, made_us[end - 1] + margin_us)
    return replace(one, time_us=since_us, until_us=until_us)
