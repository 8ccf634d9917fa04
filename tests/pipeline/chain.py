"""The whole chain in one process: `spark-submit --master … chain.py FOLDER PYTHON` prints its
measures as JSON, and what a sweep finds wrong that looks at where and by which Python it is run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from postroad.pipeline import run, store
from postroad.pipeline.session import LIGHT_JAVA, session

EXPERIMENT = """
seed = 2
replicates = 2
[scenario]
scheme = "flooding"
[scenario.overlay]
kind = "full_tree"
fanout = 2
height = 2
[scenario.workload]
subscriptions = "work/subscriptions.jsonl"
advertisements = "work/advertisements.jsonl"
publications = "work/publications.jsonl"
[vary]
scheme = ["flooding", "advertisement_forwarding"]
"overlay.latency_us" = [1000, 3000]
"""


def chain(folder: Path, job: run.Job) -> dict[str, Any]:
    """From a graph to differences between schemes, in the session that there is."""
    graph = "".join(f"{n} {(n * n + k) % 97}\n" for n in range(97) for k in (1, 5, 7))
    (folder / "graph.txt").write_text("# a graph\n" + graph)
    (folder / "experiment.toml").write_text(EXPERIMENT)
    run.ingest([str(folder / "graph.txt")], "edges", str(folder / "graph"), job, bad_share=0.1)
    run.sample(str(folder / "graph/edges"), str(folder / "sample"), job, nodes=40, seed=1)
    run.workload(
        "social",
        str(folder / "work"),
        job,
        inputs={"edges": str(folder / "sample/edges")},
        publications=60,
        brokers=7,
        seed=1,
        jsonl=True,
    )
    run.sweep(str(folder / "experiment.toml"), str(folder / "out"), job)
    run.measure(
        str(folder / "out/runs"), str(folder / "out"), job, baselines=[{"scheme": "flooding"}]
    )
    return {
        "lineage": store.read_lineage(str(folder / "graph/edges"))["facts"],
        "nodes": sorted(row["node"] for row in store.rows_of(str(folder / "sample/nodes"))),
        "measures": store.rows_of(str(folder / "out/measures")),
        "differences": store.rows_of(str(folder / "out/differences")),
    }


if __name__ == "__main__":
    folder, python = sys.argv[1:]
    conf = [
        "spark.sql.shuffle.partitions=4",
        f"spark.pyspark.python={python}",
        f"spark.executor.extraJavaOptions={LIGHT_JAVA}",  # it lives for a minute
        f"spark.executorEnv.PYTHONPATH=./postroad_shipped:{Path(__file__).parent}",
    ]
    with session(conf=conf) as spark:
        found = chain(Path(folder), run.Job())
        (Path(folder) / "place.toml").write_text(
            f'run = "points:place"\nreplicates = 2\n[fixed]\npython = "{python}"\n'
            f'driver = "{os.getcwd()}"\n'
        )
        facts = run.sweep(f"{folder}/place.toml", f"{folder}/place", run.Job())
        found |= {"master": spark.sparkContext.master, "error": facts["first_error"]}
        print(json.dumps(found))
