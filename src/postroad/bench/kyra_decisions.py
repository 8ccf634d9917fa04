"""What replicas of a seat and distributed planning would cost Kyra, in messages.

Replicas: every seat at r servers of its clique. Subscriptions are told to each; a publication goes
to the own server if that is one of them. Against it stands what a crash costs now: the messages
with which the others fill the seat again, counted in the simulator.

Distributed planning: servers that know only their own latencies agree on the spanning tree of each
zone in rounds (Borůvka's algorithm). In a round each server asks those nearest that it does not
know to be in its part until one is not; the part's best link is found over the part's own tree, and
all of it are told. Central planning takes a message with latencies from each server and one with
the plan back. `docs/decisions/kyra.md` says what follows.
"""

from __future__ import annotations

import numpy as np

from postroad import draws
from postroad.comparison.estimate import cliques_on_a_tree
from postroad.cost import schemes
from postroad.filters import parse
from postroad.overlay import IntArray
from postroad.papers.kyra import runs
from postroad.planning.kyra import layout
from postroad.planning.zones import ALPHA
from postroad.routing import kyra
from postroad.sim.engine import Fault
from postroad.sim.run import run
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Interest, Workload

SERVERS, FANOUT, CLIQUE, PATTERNS, SIGMA, MU = 120, 3, 6, 200, 0.1, 0.1


def crashes() -> None:
    """Messages of a seat's crash and restart, beside what replicas cost all the time."""
    filters = [parse(f"x = {number}") for number in range(PATTERNS)]
    interests = tuple(
        Interest(f"s{broker}.{place}", broker, "c", filters[place])
        for broker in range(SERVERS)
        for place in range(PATTERNS)
        if draws.uniform(1, "bench.sigma", broker, place) < SIGMA
    )
    overlay = cliques_on_a_tree(SERVERS // CLIQUE, FANOUT, CLIQUE)

    def messages(*faults: Fault) -> int:
        workload = Workload(interests, (), ())
        config = kyra.Config(clique_ms=1.0)
        result = run(Scenario("kyra", overlay, workload, config, faults=faults))
        return sum(result.summary()["messages"].values())

    calm = messages()
    extra = [
        messages(Fault("crash", (seat,), 1_000_000, 2_000_000)) - calm
        for seat in range(0, SERVERS, SERVERS // 10)
    ]
    costs = schemes.kyra(SERVERS, FANOUT, CLIQUE)
    subscribing = float(costs.subscriptions(np.array(SIGMA)))
    publishing = float(costs.publications(np.array(MU)))
    print(f"{SERVERS} servers in cliques of {CLIQUE}, {PATTERNS} patterns, {len(interests):,} "
          f"subscriptions: {calm:,} messages until all stand")  # fmt: skip
    print(f"a crash and restart of a server: {np.mean(extra):,.0f} messages more, "
          f"{min(extra):,} to {max(extra):,} over {len(extra)} servers")  # fmt: skip
    print(f"{'replicas':>8} {'per pattern':>12} {'per publication':>16}")
    for replicas in (1, 2, 3):
        more = SERVERS * SIGMA * (replicas - 1)  # less than one each where the server is one itself
        more *= 1 - 1 / CLIQUE
        saved = (replicas - 1) / CLIQUE
        print(f"{replicas:>8} {subscribing + more:>12.1f} {publishing - saved:>16.2f}")


def agreement(direct_us: IntArray, members: list[int]) -> int:
    """Messages until these servers have agreed on their spanning tree, by Borůvka's rounds."""
    picked = np.asarray(members)
    between = direct_us[np.ix_(picked, picked)].astype(np.int64)
    order = np.argsort(between, axis=1, kind="stable")
    part = np.arange(len(picked))
    asked = np.zeros(len(picked), np.int64)  # how many of the nearest are known to be in the part
    messages = 0
    while len(np.unique(part)) > 1:
        best: dict[int, tuple[int, int, int]] = {}
        for server in range(len(picked)):
            while asked[server] < len(picked):
                other = int(order[server, asked[server]])
                if other != server:
                    messages += 2  # a question and its answer
                    if part[other] != part[server]:
                        link = (int(between[server, other]), min(server, other), max(server, other))
                        mine = int(part[server])
                        best[mine] = min(best.get(mine, link), link)
                        break
                asked[server] += 1
        sizes = np.bincount(part, minlength=len(picked))
        messages += 2 * int((sizes[sizes > 0] - 1).sum()) + len(best)  # found, told, joined
        for _, a, b in best.values():
            part[part == part[b]] = part[a]
    return messages


def planning() -> None:
    underlay = runs.network(0, 500, 0.0)
    grouped = runs.cliques(0, 500, 0.0, 100)
    setting = runs.setting(0, 500, 0.0, "zipf", 0.1, 0)
    divided = layout(underlay.direct_us, grouped, runs.divider(setting.interests.load(ALPHA)), 10)
    trees = [agreement(underlay.direct_us, divided.members(t)) for t in range(len(divided.trees))]
    count = underlay.servers_count
    print(f"\n{count} servers, {len(grouped)} cliques, {len(trees)} trees")
    print(f"central planning: {2 * count:,} messages")
    print(
        f"distributed: {sum(trees):,} for the trees, {2 * (count - 1):,} to add up loads and tell"
    )
    print(f"either way: {count * (count - 1):,} to measure all latencies")


def main() -> None:
    crashes()
    planning()


if __name__ == "__main__":
    main()
