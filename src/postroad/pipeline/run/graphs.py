"""Social graphs, for `postroad pipeline sample` and `followers`: samples and follower counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyspark.sql import Observation
from pyspark.sql import functions as F

from postroad.errors import InputError
from postroad.pipeline import sample as sampling
from postroad.pipeline import session as sessions
from postroad.pipeline import store
from postroad.pipeline.run.job import Facts, Job, guarded, once
from postroad.pipeline.schemas import EDGES
from postroad.pipeline.store import Recipe


def sample(
    edges_path: str, folder: str, job: Job, *, nodes: int, seeds: int = 5, seed: int = 0
) -> Facts:
    """A breadth-first sample of a graph into the tables `edges` and `nodes`."""
    edges_path, folder = store.absolute(edges_path), store.absolute(folder)
    edges_out, nodes_out = store.join(folder, "edges"), store.join(folder, "nodes")
    if store.uri(edges_out) == store.uri(edges_path):
        raise InputError(f"{folder!r} holds the graph itself", remedy="give another --output")
    if nodes < 1 or seeds < 1:
        raise InputError(f"nodes {nodes}, seeds {seeds}", remedy="give 1 or more")
    parameters = {"nodes": nodes, "seeds": seeds, "seed": seed}
    recipe = Recipe("sample", parameters, {edges_path: store.fingerprint(edges_path)}, job.command)

    def act() -> Facts:
        with job.session() as spark, store.scratch(spark, folder) as keep:
            edges = store.read(spark, edges_path, EDGES)
            cut = sessions.cutter(spark, keep)
            visited = cut(sampling.visited(edges, nodes, seeds, seed, cut))
            levels = visited.groupBy("level").count().orderBy("level").collect()
            store.write(visited.orderBy("level", "node"), nodes_out)
            counted = Observation("sample")
            among = sampling.induced(edges, visited, nodes)
            store.write(among.observe(counted, F.count(F.lit(1)).alias("edges")), edges_out)
            facts = {
                "nodes": sum(row["count"] for row in levels),
                "edges": counted.get["edges"],
                "levels": [row["count"] for row in levels],
            }
            store.publish(nodes_out, recipe, facts)
            store.publish(edges_out, recipe, facts)
            return {**facts, "unchanged": False, "tables": [edges_out, nodes_out]}

    return once(act, job, recipe, folder, edges_out, nodes_out)


def followers(edges_path: str, job: Job) -> Facts:
    """Follower statistics of a graph, and its quantile table."""

    def act() -> Facts:
        with job.session() as spark:
            counts = sampling.follower_counts(store.read(spark, edges_path, EDGES))
            counts = counts.groupBy("followers").count().orderBy(F.desc("followers"))
            rows = [(row["followers"], row["count"]) for row in counts.collect()]
        return follower_facts(rows)

    return guarded(act)


def follower_facts(rows: Sequence[tuple[int, int]]) -> Facts:
    """Statistics from (followers, users with as many), most followed first."""
    values = np.array([value for value, _ in rows], dtype=np.int64)
    users = np.array([count for _, count in rows], dtype=np.int64)
    total, population = int(values @ users), int(users.sum())
    ends = np.cumsum(users)
    held = np.cumsum(values * users)

    def top(share: float) -> float:
        wanted = round(population * share)
        place = int(np.searchsorted(ends, wanted))
        before_users = int(ends[place - 1]) if place else 0
        before_held = int(held[place - 1]) if place else 0
        return (before_held + (wanted - before_users) * int(values[place])) / max(1, total)

    def quantile(share: float) -> int:
        """The smallest count that at least this share of users do not exceed."""
        rank = min(population, max(1, int(np.ceil(share * population))))
        return int(values[::-1][np.searchsorted(np.cumsum(users[::-1]), rank)])

    shares = [n / 100 for n in range(99)] + [0.99 + n / 1000 for n in range(10)]
    shares += [0.999 + n / 10000 for n in range(11)]
    return {
        "users": population,
        "edges": total,
        "mean": total / max(1, population),
        "median": quantile(0.5),
        "max": int(values[0]),
        "top_1_percent": top(0.01),
        "top_10_percent": top(0.10),
        "top_20_percent": top(0.20),
        "quantiles": [(round(share, 4), quantile(share)) for share in shares],
    }
