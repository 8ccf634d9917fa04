"""Planning and routing on small-world rings: seconds, hops a second, and what churn costs.

Seconds are processor time of this process. Social interests are communities of 40 nodes whose
members mostly follow each other, 36 topics a node on average.

A plan takes a step for each node and looks at those that share a topic: as many whatever the size,
but with Zipf's popularity a share of all nodes. A hop of a kernel should cost the same on any ring,
but for what the caches no longer hold.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from postroad.bench import growth
from postroad.kernels import beaconvey, swico
from postroad.overlay.small_world import SmallWorld, chord
from postroad.papers.beaconvey.runs import publications
from postroad.planning.churn import renew
from postroad.planning.swico import TopicInterests, from_pairs, support
from postroad.workloads.topics import synthetic

T = TypeVar("T")
SIZES = (1000, 3000, 10_000)
SCHEMES = ("po", "pal", "pie", "scribe", "iscribe")


def social(nodes: int, seed: int) -> TopicInterests:
    """Everyone follows 24 of the 40 in their community and 12 of all."""
    draw = np.random.default_rng(seed)
    near = draw.integers(40, size=(nodes, 24)) + np.arange(nodes)[:, None] // 40 * 40
    far = draw.integers(nodes, size=(nodes, 12))
    chosen = np.minimum(np.concatenate([near, far], axis=1), nodes - 1)
    return from_pairs(np.repeat(np.arange(nodes), 36), chosen.reshape(-1), nodes, nodes)


def interests(kind: str, nodes: int) -> TopicInterests:
    return social(nodes, 1) if kind == "social" else synthetic(kind, nodes, nodes, 20, 1)


def timed(work: Callable[..., T], *arguments: Any) -> tuple[T, float]:
    start = time.process_time()
    done = work(*arguments)
    return done, time.process_time() - start


def planning() -> None:
    print("beaconvey: exact GSwicoS and GSwicoL (the paper: 14.8 and 19.4 minutes at 10,000)")
    print(
        f"{'interests':<10}{'nodes':>8}{'ring s':>9}{'fingers s':>11}{'TcoSuppR':>10}{'no plan':>9}"
    )
    swico.build(synthetic("unif", 100, 100, 20, 1), "SL", "chord", 1)  # compile
    for kind in ("unif", "zipf", "social"):
        costs = []
        for nodes in SIZES:
            wanted = interests(kind, nodes)
            order, ring_s = timed(swico.greedy_ring, wanted, 1)
            fingers, fingers_s = timed(swico.greedy_fingers, wanted, order, 1)
            components = swico.components_count(wanted, SmallWorld(order, fingers))
            plain = swico.components_count(wanted, swico.build(wanted, "-", "chord", 1))
            print(
                f"{kind:<10}{nodes:>8,}{ring_s:>9.2f}{fingers_s:>11.2f}"
                f"{support(wanted, components):>10.4f}{support(wanted, plain):>9.4f}"
            )
            costs.append(ring_s + fingers_s)
        expected = "2" if kind == "zipf" else "1"
        print("  " + growth.said(f"{kind}: cost of a plan by nodes", SIZES, costs, expected))


def approximation() -> None:
    from postroad.kernels import swico_candidates
    from postroad.pipeline import run
    from postroad.pipeline.session import session

    print("beaconvey: TcoSuppR of the approximate planner, 10,000 nodes; seconds of the clock")
    print(
        f"{'interests':<10}{'candidates':>11}{'Spark s':>9}{'build s':>9}{'approx.':>9}{'exact':>9}"
    )
    with session(), tempfile.TemporaryDirectory(prefix="postroad-bench-") as scratch:
        for kind in ("unif", "zipf", "social"):
            wanted = interests(kind, 10_000)
            began = time.perf_counter()
            edges = run.candidates(wanted, scratch, run.Job())
            joined = time.perf_counter()
            world = swico_candidates.build(wanted, edges, 1)
            built = time.perf_counter()
            values = [
                support(wanted, swico.components_count(wanted, each))
                for each in (world, swico.build(wanted, "SL", "chord", 1))
            ]
            print(
                f"{kind:<10}{len(edges):>11,}{joined - began:>9.1f}{built - joined:>9.1f}"
                f"{values[0]:>9.4f}{values[1]:>9.4f}"
            )


def routing() -> None:
    print("beaconvey: million hops a second of the routing kernels, overlay SL")
    print(f"{'interests':<10}{'nodes':>8}" + "".join(f"{scheme:>9}" for scheme in SCHEMES))
    for kind in ("unif", "zipf", "social"):
        costs = []
        for nodes in SIZES:
            wanted = interests(kind, nodes)
            world = swico.build(wanted, "SL", "chord", 1)
            topics, publishers = publications(wanted, 30_000, 1)
            roots = np.random.default_rng(1).integers(nodes, size=wanted.topics_count)
            line = f"{kind:<10}{nodes:>8,}"
            for scheme in SCHEMES:
                beaconvey.route(world, wanted, scheme, topics[:10], publishers[:10], roots)
                outcome, seconds = timed(
                    beaconvey.route, world, wanted, scheme, topics, publishers, roots
                )
                line += f"{outcome.messages.sum() / seconds / 1e6:>9.1f}"
                if scheme == "pie":
                    costs.append(seconds / float(outcome.messages.sum()))
            print(line)
        print("  " + growth.said(f"{kind}, pie: cost of a hop by nodes", SIZES, costs, "0"))


def replaced_nodes(
    world: SmallWorld, wanted: TopicInterests, share: float
) -> tuple[SmallWorld, TopicInterests]:
    """A share of the nodes leaves; as many join, with the interests of one that left each."""
    count = wanted.nodes_count
    draw = np.random.default_rng(int(100 * share))
    stays = np.ones(count, bool)
    stays[draw.choice(count, round(count * share), replace=False)] = False
    renewed, source = renew(world, stays, count - int(stays.sum()), 1)
    source[source < 0] = np.flatnonzero(~stays)
    return renewed, wanted.at_positions(source)


def replaced_subscriptions(
    world: SmallWorld, wanted: TopicInterests, share: float
) -> tuple[SmallWorld, TopicInterests]:
    """A share of the subscriptions changes hands; topics stay about as popular as they were."""
    draw = np.random.default_rng(int(100 * share))
    nodes = np.repeat(np.arange(wanted.nodes_count), np.diff(wanted.start))
    topics = wanted.topics.copy()
    changed = draw.choice(len(topics), round(len(topics) * share), replace=False)
    topics[changed] = topics[draw.permutation(changed)]
    return world, from_pairs(nodes, topics, wanted.nodes_count, wanted.topics_count)


def churn() -> None:
    print("beaconvey: replaced since the plan, against planning again (Pie, 3,000 nodes)")
    print(
        f"{'interests':<10}{'what':<15}{'replaced':>9}{'TcoSuppR':>10}{'again':>8}"
        f"{'overhead':>10}{'again':>8}"
    )
    for kind in ("unif", "zipf", "social"):
        planned = interests(kind, 3000)
        world = swico.build(planned, "SL", "chord", 1)
        for what, replaced in (
            ("nodes", replaced_nodes),
            ("subscriptions", replaced_subscriptions),
        ):
            for share in (0.05, 0.1, 0.2, 0.5):
                kept, now = replaced(world, planned, share)
                again = swico.build(now, "SL", "chord", 1)
                line = f"{kind:<10}{what:<15}{share:>9.0%}"
                for each, width in ((kept, 10), (again, 8)):
                    line += f"{support(now, swico.components_count(now, each)):>{width}.4f}"
                wanted, publishers = publications(now, 5000, 1)
                for each, width in ((kept, 10), (again, 8)):
                    outcome = beaconvey.route(each, now, "pie", wanted, publishers)
                    assert (outcome.deliveries == np.diff(now.subscribers[0])[wanted] - 1).all()
                    line += f"{outcome.pure_forwards.mean():>{width}.2f}"
                print(line)


def worst_case() -> None:
    print("beaconvey: longest path where no subscriber is another's finger (every third node)")
    print(f"{'nodes':>8}{'po':>8}{'pie':>8}{'pal':>8}{'log2(n)^1.5':>13}")
    for nodes in (96, 384, 1536, 6144, 24_576):
        world = SmallWorld(np.arange(nodes), chord(nodes))
        wanted = from_pairs(np.arange(0, nodes, 3), np.zeros(nodes // 3, np.int64), nodes, 1)
        paths = [
            int(beaconvey.route(world, wanted, rule, [0], [0]).path_max[0])
            for rule in ("po", "pie", "pal")
        ]
        print(
            f"{nodes:>8,}" + "".join(f"{p:>8,}" for p in paths) + f"{np.log2(nodes) ** 1.5:>13.0f}"
        )


def main() -> None:
    planning()
    approximation()
    routing()
    churn()
    worst_case()
