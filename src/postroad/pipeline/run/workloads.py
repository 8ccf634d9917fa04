"""The papers' workloads as tables, for `postroad pipeline workload`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from postroad.errors import InputError
from postroad.pipeline import sample as sampling
from postroad.pipeline import session as sessions
from postroad.pipeline import store
from postroad.pipeline import workload as workloads
from postroad.pipeline.run.job import Facts, Job, once
from postroad.pipeline.schemas import EDGES, LATENCY, QUOTES
from postroad.pipeline.store import Recipe
from postroad.workloads.followed import followers_of


def workload(
    kind: str,
    folder: str,
    job: Job,
    *,
    inputs: Mapping[str, str] | None = None,
    jsonl: bool = False,
    **options: Any,
) -> Facts:
    """Subscriptions, advertisements and publications of one of the papers' workloads."""
    inputs_of = {name: store.absolute(path) for name, path in (inputs or {}).items()}
    folder = store.absolute(folder)
    tables = [
        store.join(folder, name) for name in ("publications", "subscriptions", "advertisements")
    ]
    marks = {path: store.fingerprint(path) for path in inputs_of.values()}
    recipe = Recipe("workload", {"kind": kind, "jsonl": jsonl, **options}, marks, job.command)

    def act() -> Facts:
        with job.session() as spark, store.scratch(spark, folder) as keep:
            drawn = _tables_of(spark, kind, inputs_of, options, sessions.cutter(spark, keep))
            frames = {
                "subscriptions": drawn.subscriptions,
                "advertisements": drawn.advertisements,
                "publications": drawn.publications,
            }
            facts: Facts = {"kind": kind}
            for name, frame in frames.items():
                counted = Observation(name)
                path = store.join(folder, name)
                store.write(frame.observe(counted, F.count(F.lit(1)).alias("rows")), path)
                facts[name] = counted.get["rows"]
            if jsonl:
                for name, frame in frames.items():
                    written = store.read_files(
                        spark, store.beside(store.join(folder, name)), frame.schema
                    )
                    text = workloads.simulator_lines(written, name.removesuffix("s"))
                    store.write_text(text, store.join(folder, f"{name}.jsonl"))
            for name in frames:
                store.publish(store.join(folder, name), recipe, facts)
            return {**facts, "unchanged": False, "tables": tables}

    return once(act, job, recipe, folder, *tables)


def _tables_of(
    spark: SparkSession,
    kind: str,
    inputs: Mapping[str, str],
    options: Mapping[str, Any],
    cut: Callable[[DataFrame], DataFrame],
) -> workloads.WorkloadTables:
    source = workloads.Source(
        lambda count: sessions.numbers(spark, count),
        lambda columns, schema: sessions.small_table(spark, columns, schema),
    )
    settings = dict(options)
    if kind == "follower":
        by_class = settings.pop("by_class")
        weights = None
        if not by_class and "edges" in inputs:
            counts = sampling.follower_counts(store.read(spark, inputs["edges"], EDGES))
            shares = [(n + 0.5) / options["publishers"] for n in range(options["publishers"])]
            spots = F.percentile("followers", F.array(*map(F.lit, shares)))
            weights = np.array(counts.agg(spots.alias("at")).head(1)[0]["at"])[::-1]
        elif not by_class:
            weights = followers_of(options["publishers"])
        return workloads.follower(source, followers=weights, **settings)
    if kind == "topics":
        return workloads.topics(source, cut, **settings)
    if kind == "social":
        return workloads.social(source, store.read(spark, inputs["edges"], EDGES), **settings)
    if kind == "content" and settings["distribution"] == "regional":
        for name in ("distribution", "exponent", "peaks", "interest_over"):
            del settings[name]
        if "latency" not in inputs:
            return workloads.regional(source, **settings)
        latency = store.read(spark, inputs["latency"], LATENCY)
        near = latency.where((F.col("a") < options["servers"]) & (F.col("b") < options["servers"]))
        shares = [n / 1000 for n in range(1001)]
        spots = F.percentile("latency_us", F.array(*map(F.lit, shares)))
        row = near.agg(spots.alias("at"), F.max("a").alias("top")).head(1)[0]
        if row["at"] is None or row["top"] + 1 < options["servers"]:
            raise InputError(
                f"latencies of fewer than {options['servers']} hosts",
                where=inputs["latency"],
                remedy="give fewer --servers",
            )
        return workloads.regional(
            source, latency=latency, distances=np.array(row["at"]), **settings
        )
    if kind == "content":
        del settings["gamma"]
        return workloads.content(source, **settings)
    if kind == "stock":
        days = settings.pop("days")
        if "quotes" in inputs:
            quotes = store.read(spark, inputs["quotes"], QUOTES)
        else:
            quotes = workloads.made_up_quotes(source, options["publishers"], days, options["seed"])
        return workloads.stock(source, quotes, **settings)
    assert kind == "patterns", kind
    return workloads.patterns(source, **settings)
