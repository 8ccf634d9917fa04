"""What schemes cost on given tables, for `postroad pipeline cost` and comparisons in bulk."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from postroad.errors import InputError
from postroad.overlay.transit_stub import places
from postroad.pipeline import cost as costing
from postroad.pipeline import match as matching
from postroad.pipeline import session as sessions
from postroad.pipeline import store
from postroad.pipeline.run.ingestion import table_of
from postroad.pipeline.run.job import Facts, Job, on_disk, once
from postroad.pipeline.schemas import (
    BOOLEAN,
    COST_BROKERS,
    LONG,
    PUBLICATIONS,
    SUBSCRIPTIONS,
    TEXT,
    table,
)
from postroad.pipeline.store import Recipe


def cost(
    network: str,
    subscriptions_path: str,
    publications_path: str,
    folder: str,
    job: Job,
    *,
    schemes: Sequence[str] = (),
) -> Facts:
    """What schemes cost, into the tables `cost`, `cost_brokers` and `cost_links`."""
    settings = costing.load(Path(network), schemes)
    folder, network = on_disk(folder), store.absolute(network)
    out, by_broker, by_link = (
        store.join(folder, name) for name in ("cost", "cost_brokers", "cost_links")
    )
    index, prices = store.join(folder, ".cost.index"), store.join(folder, ".cost.prices")
    subscriptions_path = table_of(subscriptions_path, "subscriptions", folder, job)
    publications_path = table_of(publications_path, "publications", folder, job)
    inputs = {path: store.fingerprint(path) for path in (subscriptions_path, publications_path)}
    inputs |= {network: store.content_fingerprint(network)}
    overlay = settings.overlay
    drawn = hashlib.sha256(repr(overlay.names).encode())
    for array in (overlay.ends, overlay.latency_us, overlay.direct_us):
        drawn.update(b"" if array is None else array.tobytes())
    parameters = {"schemes": list(settings.schemes), "overlay": drawn.hexdigest()[:16]}
    recipe = Recipe("cost", parameters, inputs, job.command)

    def act() -> Facts:
        with job.session() as spark, store.scratch(spark, folder) as keep:
            subscriptions = store.read(spark, subscriptions_path, SUBSCRIPTIONS)
            _check_fixed(subscriptions, subscriptions_path)
            interests: list[tuple[str, str]] = []
            if settings.plans:
                columns = ("subscription", "broker", "filter")
                rows = store.rows_of(subscriptions_path, columns)
                rows.sort(key=lambda row: row["subscription"])
                interests = [(row["broker"], row["filter"]) for row in rows]
            costing.save(costing.Prices(settings, interests), prices)
            built = matching.indexed(matching.held(subscriptions, "broker"), index).collect()[0]
            publications = store.read(spark, publications_path, PUBLICATIONS)
            sets = keep(costing.wanted(publications, index, prices))
            facts = keep(costing.facts(sets, prices))
            names = places(overlay)
            named = sessions.small_table(
                spark,
                {
                    "number": list(range(len(names))),
                    "name": names,
                    "is_broker": [n < overlay.brokers_count for n in range(len(names))],
                },
                table(number=LONG, name=TEXT, is_broker=BOOLEAN),
            )
            priced = sessions.small_table(
                spark, {"scheme": list(settings.schemes)}, table(scheme=TEXT)
            )
            store.write(costing.links(facts, named), by_link)
            store.write(costing.brokers(facts, named, priced).coalesce(1), by_broker)
            loads = store.read_files(spark, store.beside(by_broker), COST_BROKERS)
            store.write(costing.costs(facts, loads, priced).coalesce(1), out)
            rows = store.rows_of(store.beside(out))
            said: Facts = {
                "publications": rows[0]["publications"],
                "filters": built["filters"],
                "sets": sets.count(),
            }
            for path in (by_link, by_broker, out):
                store.publish(path, recipe, said)
            return {**said, "unchanged": False, "tables": [out, by_broker, by_link]}

    try:
        return once(act, job, recipe, folder, out, by_broker, by_link)
    finally:
        store.remove_file(index)
        store.remove_file(prices)


def _check_fixed(subscriptions: DataFrame, where: str) -> None:
    """Costs are of subscriptions that stand throughout."""
    changing = subscriptions.where("time_us IS NOT NULL OR until_us IS NOT NULL").head(1)
    if changing:
        raise InputError(
            f"subscription {changing[0]['subscription']!r} comes or goes",
            where=where,
            remedy="leave time_us and until_us out; simulate what changes",
        )
