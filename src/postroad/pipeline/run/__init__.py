"""What the commands do, in order: read tables, call a stage, write tables. A module per command.

Each function first asks whether its tables are already what they would become; then Spark is
not even started. All of them return facts for the command line to print.
"""

from postroad.pipeline.run.costs import cost
from postroad.pipeline.run.graphs import followers, sample
from postroad.pipeline.run.ingestion import ingest
from postroad.pipeline.run.job import Facts, Job
from postroad.pipeline.run.listing import tables
from postroad.pipeline.run.matches import match
from postroad.pipeline.run.measures import Member, grid_of, measure
from postroad.pipeline.run.sweeps import cases, sweep
from postroad.pipeline.run.swico import candidates, interests
from postroad.pipeline.run.watches import watch, watched
from postroad.pipeline.run.workloads import workload
from postroad.pipeline.run.zones import zone_loads

__all__ = [
    "Facts",
    "Job",
    "Member",
    "candidates",
    "cases",
    "cost",
    "followers",
    "grid_of",
    "ingest",
    "interests",
    "match",
    "measure",
    "sample",
    "sweep",
    "tables",
    "watch",
    "watched",
    "workload",
    "zone_loads",
]
