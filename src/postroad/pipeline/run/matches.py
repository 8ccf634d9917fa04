"""Which publication matches whom, for `postroad pipeline match`."""

from __future__ import annotations

from pyspark.sql import functions as F

from postroad.pipeline import match as matching
from postroad.pipeline import store
from postroad.pipeline.run.ingestion import table_of
from postroad.pipeline.run.job import Facts, Job, on_disk, once
from postroad.pipeline.schemas import MATCHES, PUBLICATIONS, SUBSCRIPTIONS
from postroad.pipeline.store import Recipe


def match(
    subscriptions_path: str,
    publications_path: str,
    folder: str,
    job: Job,
    *,
    by: str = "subscription",
) -> Facts:
    """Which publication matches whom, into the table `matches`."""
    assert by in matching.BY, by
    folder = on_disk(folder)
    out, index = store.join(folder, "matches"), store.join(folder, ".matches.index")
    subscriptions_path = table_of(subscriptions_path, "subscriptions", folder, job)
    publications_path = table_of(publications_path, "publications", folder, job)
    inputs = {path: store.fingerprint(path) for path in (subscriptions_path, publications_path)}
    recipe = Recipe("match", {"by": by}, inputs, job.command)

    def act() -> Facts:
        with job.session() as spark:
            held = matching.held(store.read(spark, subscriptions_path, SUBSCRIPTIONS), by)
            built = matching.indexed(held, index).collect()[0].asDict()
            publications = store.read(spark, publications_path, PUBLICATIONS)
            store.begin(out)
            counts = matching.matched(publications, index, store.beside(out))
            total = counts.agg(F.sum("publications"), F.sum("matches")).collect()[0]
            if not total[0]:
                store.write_empty(out, MATCHES)
            facts: Facts = {
                "by": by,
                **built,
                "publications": total[0] or 0,
                "matches": total[1] or 0,
            }
            store.publish(out, recipe, facts)
            return {**facts, "unchanged": False, "tables": [out]}

    try:
        return once(act, job, recipe, folder, out)
    finally:
        store.remove_file(index)
