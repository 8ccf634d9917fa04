"""Rows of simulation and planning, beside libraries for them, in this process but for ns-3.

*Simulate*: publications flood a tree; a message is an event, and all must count the same number.
*Plan*: the cheapest tree over measured latencies, and latencies between all brokers.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from postroad.bench.peers import workloads
from postroad.bench.peers.figures import OURS, PeerFigure
from postroad.bench.peers.systems import no_library
from postroad.bench.peers.workloads import Graph
from postroad.kernels import popsub
from postroad.overlay import Overlay, from_links, latencies
from postroad.sim.run import run
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Posting, Workload

Prepare = Callable[[Graph], Callable[[], Any]]
Systems = Mapping[str, tuple[Prepare, str]]  # what prepares the work, and the module that it needs

# Modules that bring a C++ compiler: where it finds no headers it ends the process that asked.
APART = {"ns3"}
BROKEN = (ImportError, AttributeError, RuntimeError, SyntaxError, TypeError)  # such bindings


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    best, answer = float("inf"), None
    for _ in range(3):
        start = time.process_time()
        answer = work()
        best = min(best, time.process_time() - start)
    return best, answer


def _prepared_and_timed(prepare: Prepare, graph: Graph) -> tuple[float, Any]:
    return _timed(prepare(graph))


def _timed_apart(prepare: Prepare, graph: Graph) -> tuple[float, Any]:
    """The same in a process of its own, whose CPU time it is."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_prepared_and_timed, prepare, graph).result()


def compared(systems: Systems, graph: Graph, units: int) -> list[PeerFigure]:
    """Each system's CPU time for the same answer as the first one's."""
    figures: list[PeerFigure] = []
    first: Any = None
    for name, (prepare, module) in systems.items():
        reason = no_library(module)
        if reason is not None:
            figures.append(PeerFigure(name, note=f"skipped: {reason}"))
            continue
        if module in APART:
            try:
                used_s, answer = _timed_apart(prepare, graph)
            except (*BROKEN, SystemExit) as error:  # its import can also ask to exit
                figures.append(PeerFigure(name, note=f"skipped: {module} does not run: {error}"))
                continue
        else:
            used_s, answer = _prepared_and_timed(prepare, graph)
        first = answer if first is None else first
        if answer != first:
            figures.append(PeerFigure(name, note=f"failed: {answer} instead of {first}"))
            continue
        figures.append(PeerFigure(name, {"cpu_s": used_s, "per_cpu_s": units / used_s}))
    return figures


def simulated(folder: Path, name: str) -> list[PeerFigure]:
    graph = workloads.graph(folder, name)
    return compared(SIMULATORS, graph, len(graph.publications) * (graph.nodes - 1))


def _neighbours(graph: Graph) -> list[list[tuple[int, int]]]:
    beside: list[list[tuple[int, int]]] = [[] for _ in range(graph.nodes)]
    for a, b, us in graph.links:
        beside[a].append((b, us))
        beside[b].append((a, us))
    return beside


def _overlay(graph: Graph) -> Overlay:
    names = [str(n) for n in range(graph.nodes)]
    return from_links([(names[a], names[b], us) for a, b, us in graph.links])


def _ours(graph: Graph) -> Callable[[], int]:
    overlay = _overlay(graph)
    place = {name: broker for broker, name in enumerate(overlay.names)}
    postings = tuple(
        Posting(us, place[str(n)], "p", str(k), {"class": "c"})
        for k, (n, us) in enumerate(graph.publications)
    )
    scenario = Scenario("flooding", overlay, Workload((), (), postings))
    return lambda: sum(link.copies for link in run(scenario).links)


def _compiled(graph: Graph) -> Callable[[], int]:
    """PopSub's kernel on its tree, with a subscription at every broker to all that one publishes:
    the same messages, and when each is delivered."""
    overlay = _overlay(graph)
    place = {name: broker for broker, name in enumerate(overlay.names)}
    homes = sorted({place[str(n)] for n, _ in graph.publications})
    publications = sorted((us, homes.index(place[str(n)])) for n, us in graph.publications)
    offers, brokers = (part.ravel() for part in np.indices((len(homes), graph.nodes)))
    any_value = np.zeros((len(offers), 2), np.int64)
    workload = popsub.WorkloadArrays(
        homes=np.array(homes),
        subscription_advertisement=offers,
        subscription_broker=brokers,
        low=any_value,
        high=any_value,
        time_us=np.array([us for us, _ in publications]),
        advertisement=np.array([offer for _, offer in publications]),
        values=np.zeros((len(publications), 2), np.int64),
    )
    settings = popsub.Settings(mechanism="tree")
    popsub.simulate(overlay, workload, settings)  # compile
    return lambda: popsub.simulate(overlay, workload, settings).messages["publication"]


def _simpy(graph: Graph) -> Callable[[], int]:
    import simpy

    beside = _neighbours(graph)

    def simulate() -> int:
        environment = simpy.Environment()
        count = 0

        def arrive(node: int, sender: int, _: object) -> None:
            nonlocal count
            for other, us in beside[node]:
                if other != sender:
                    count += 1
                    timeout = environment.timeout(us)
                    timeout.callbacks.append(partial(arrive, other, node))

        for node, us in graph.publications:
            timeout = environment.timeout(us)
            timeout.callbacks.append(partial(arrive, node, -1))
        environment.run()
        return count

    return simulate


def _ns3(graph: Graph) -> Callable[[], int]:
    from ns import ns

    # Its bindings make no event of a Python function: that takes C++, as in ns-3's own examples.
    ns.cppyy.cppdef("""
        ns3::EventImpl* arrival(void (*arrive)(int, int), int node, int sender) {
            return ns3::MakeEvent(arrive, node, sender);
        }
    """)
    arrival = ns.cppyy.gbl.arrival
    beside = [[(other, ns.MicroSeconds(us)) for other, us in at] for at in _neighbours(graph)]

    def simulate() -> int:
        count = 0

        def arrive(node: int, sender: int) -> None:
            nonlocal count
            for other, delay in beside[node]:
                if other != sender:
                    count += 1
                    ns.Simulator.Schedule(delay, arrival(arrive, other, node))

        for node, us in graph.publications:
            ns.Simulator.Schedule(ns.MicroSeconds(us), arrival(arrive, node, -1))
        ns.Simulator.Run()
        ns.Simulator.Destroy()
        return count

    return simulate


def _bare(graph: Graph) -> Callable[[], int]:
    beside = _neighbours(graph)

    def simulate() -> int:
        events = [(us, k, node, -1) for k, (node, us) in enumerate(graph.publications)]
        heapq.heapify(events)
        sequence, count = len(events), 0
        while events:
            now, _, node, sender = heapq.heappop(events)
            for other, us in beside[node]:
                if other != sender:
                    heapq.heappush(events, (now + us, sequence, other, node))
                    sequence += 1
                    count += 1
        return count

    return simulate


def planned_tree(folder: Path, name: str) -> list[PeerFigure]:
    return compared(TREE_PLANNERS, workloads.graph(folder, name), 1)


def planned_paths(folder: Path, name: str) -> list[PeerFigure]:
    return compared(PATH_PLANNERS, workloads.graph(folder, name), 1)


def _arrays(graph: Graph) -> tuple[Any, Any]:
    table = np.array(graph.links, dtype=np.int64)
    return table[:, :2], table[:, 2]


def _tree(graph: Graph) -> Callable[[], int]:
    ends, us = _arrays(graph)
    direct = np.zeros((graph.nodes, graph.nodes), dtype=np.int64)
    direct[ends[:, 0], ends[:, 1]] = direct[ends[:, 1], ends[:, 0]] = us
    members = np.arange(graph.nodes)

    def plan() -> int:
        tree = latencies.spanning_tree(direct, members)
        return int(direct[tree[:, 0], tree[:, 1]].sum())

    return plan


def _igraph_tree(graph: Graph) -> Callable[[], int]:
    import igraph

    ends, us = _arrays(graph)

    def plan() -> int:
        whole = igraph.Graph(n=graph.nodes, edges=ends)
        return int(us[whole.spanning_tree(weights=us.tolist(), return_tree=False)].sum())

    return plan


def _networkx_tree(graph: Graph) -> Callable[[], int]:
    import networkx

    def plan() -> int:
        whole = networkx.Graph()
        whole.add_weighted_edges_from(graph.links)
        return int(
            sum(us for _, _, us in networkx.minimum_spanning_tree(whole).edges(data="weight"))
        )

    return plan


def _paths(graph: Graph) -> Callable[[], int]:
    ends, us = _arrays(graph)

    def plan() -> int:
        paths = latencies.shortest_paths(graph.nodes, ends, us)
        assert paths is not None
        return int(paths.sum())

    return plan


def _igraph_paths(graph: Graph) -> Callable[[], int]:
    import igraph

    ends, us = _arrays(graph)

    def plan() -> int:
        whole = igraph.Graph(n=graph.nodes, edges=ends)
        return int(sum(map(sum, whole.distances(weights=us.tolist()))))

    return plan


def _networkx_paths(graph: Graph) -> Callable[[], int]:
    import networkx

    def plan() -> int:
        whole = networkx.Graph()
        whole.add_weighted_edges_from(graph.links)
        return int(
            sum(sum(to.values()) for _, to in networkx.all_pairs_dijkstra_path_length(whole))
        )

    return plan


SIMULATORS: Systems = {
    OURS: (_ours, ""),
    f"{OURS}, compiled": (_compiled, ""),
    "SimPy": (_simpy, "simpy"),
    "ns-3, events made in C++": (_ns3, "ns3"),
    "a bare heap": (_bare, ""),
}
TREE_PLANNERS: Systems = {
    OURS: (_tree, ""),
    "igraph": (_igraph_tree, "igraph"),
    "networkx": (_networkx_tree, "networkx"),
}
PATH_PLANNERS: Systems = {
    OURS: (_paths, ""),
    "igraph": (_igraph_paths, "igraph"),
    "networkx": (_networkx_paths, "networkx"),
}
