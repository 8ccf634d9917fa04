"""Sweeps: a declared grid of runs, one run per task, resumable run by run.

An experiment is a TOML file (docs/pipeline.md says what it may hold). It is expanded into rows;
`run_id` hashes the resolved row, so a run is known again whoever asks for it. The seed of a
replicate depends on the sweep's seed and the replicate alone: all rows of a replicate face the
same workload and comparisons are paired.

A run is a call of a function named by the experiment (`module:function`, by default the
simulator) with the row's parameters and seed; what it returns is flattened into metrics. Each
run leaves one Parquet file named after its run_id, written beside and renamed by the executor
itself, so a sweep killed at any moment loses only the runs that were under way.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import itertools
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from postroad import draws
from postroad.errors import InputError, PostroadError, choice_of
from postroad.model import BrokerId, TimeUs
from postroad.overlay.transit_stub import places
from postroad.pipeline import store
from postroad.pipeline.definitions import MEASURES
from postroad.pipeline.schemas import FACTS, LONG, RUNS, TEXT, TRACES, table
from postroad.routing.base import Effect, Input, Send
from postroad.settings import toml

if TYPE_CHECKING:
    from postroad.sim.engine import Observer
    from postroad.sim.run import Result

SIMULATE = "postroad.pipeline.sweep:simulate"
TASK = table(id=LONG, run=TEXT)
OUTCOME = "run_id string, error string"
_KEYS: dict[str, type | tuple[type, ...]] = {
    "question": str,
    "seed": int,
    "replicates": int,
    "run": str,
    "traces": bool,
    "scenario": (str, dict),
    "vary": dict,
    "fixed": dict,
}


@dataclass(frozen=True)
class Experiment:
    """What the TOML file says, with defaults filled in."""

    question: str
    seed: int
    replicates: int
    run: str
    traces: bool
    scenario: Mapping[str, Any]
    vary: Mapping[str, list[Any]]
    fixed: Mapping[str, Any]
    folder: str
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that the scenario names, with the hash of what they hold."""

    def settings(self) -> dict[str, Any]:
        """All that decides the results, for the lineage."""
        return {
            "seed": self.seed,
            "replicates": self.replicates,
            "run": self.run,
            "traces": self.traces,
            "scenario": dict(self.scenario),
            "vary": dict(self.vary),
            "fixed": dict(self.fixed),
        }


@dataclass(frozen=True)
class Run:
    """One resolved row of the grid."""

    parameters: Mapping[str, Any]
    replicate: int
    seed: int
    entry: str
    scenario: Mapping[str, Any]
    folder: str
    traces: bool
    files: tuple[str, ...]
    attempt: int = 1

    @property
    def run_id(self) -> str:
        identity = [
            self.entry,
            self.scenario,
            self.parameters,
            self.replicate,
            self.seed,
            self.traces,
            self.files,
        ]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> str:
        return json.dumps({"run_id": self.run_id, **self.__dict__})


def again(run: Run, attempt: int) -> Run:
    """The same run, tried once more."""
    return replace(run, attempt=attempt)


def load(path: str) -> Experiment:
    """Read an experiment; unknown keys and values of the wrong kind are errors."""
    file = Path(path)
    document = toml.read(file).values
    for key, value in document.items():
        if key not in _KEYS:
            raise InputError(
                f"unknown key {key!r}", where=path, remedy=choice_of(key, _KEYS, "the keys are")
            )
        kind = _KEYS[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise InputError(f"{key} is {value!r}", where=path, remedy=f"see the docs for {key}")
    vary, fixed = document.get("vary", {}), document.get("fixed", {})
    for key, values in vary.items():
        if not isinstance(values, list) or not values:
            raise InputError(
                f"vary.{key} is {values!r}", where=path, remedy="give a list of values to try"
            )
        if key in fixed:
            raise InputError(
                f"{key} is both fixed and varied", where=path, remedy="give it in one place"
            )
        if len({json.dumps(value) for value in values}) != len(values):
            raise InputError(
                f"vary.{key} repeats a value", where=path, remedy="use replicates to repeat runs"
            )
    replicates = document.get("replicates", 1)
    if replicates < 1:
        raise InputError(f"replicates is {replicates}", where=path, remedy="give 1 or more")
    entry = document.get("run", SIMULATE)
    scenario, folder = _scenario(document.get("scenario"), file)
    if entry == SIMULATE and not scenario:
        raise InputError(
            "there is neither a scenario nor a run",
            where=path,
            remedy='give scenario = "file.toml", a [scenario] table, or run = "module:function"',
        )
    try:
        function(entry)
    except InputError as error:
        raise error.at(path) from None
    return Experiment(
        question=document.get("question", ""),
        seed=document.get("seed", 0),
        replicates=replicates,
        run=entry,
        traces=document.get("traces", False),
        scenario=scenario,
        vary=vary,
        fixed=fixed,
        folder=folder,
        files=files_named(scenario, Path(folder)),
    )


def _scenario(value: Any, file: Path) -> tuple[dict[str, Any], str]:
    if not isinstance(value, str):
        return value or {}, str(file.resolve().parent)
    base = file.parent / value
    return toml.read(base).values, str(base.resolve().parent)


def files_named(value: Any, folder: Path) -> dict[str, str]:
    """Every text in a scenario that names a file beside it, with the hash of its bytes.

    Of a table, the fingerprint.
    """
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        files: dict[str, str] = {}
        for one in value:
            files |= files_named(one, folder)
        return files
    if isinstance(value, str) and value and len(value) < 1000:
        path = folder / value
        if path.is_file():
            return {str(path): store.content_fingerprint(str(path))}
        if path.is_dir() and next(path.glob("*.parquet"), None):
            return {str(path): store.fingerprint(str(path))}
    return {}


def function(entry: str) -> Callable[[dict[str, Any]], Mapping[str, Any]]:
    """The function that `module:function` names."""
    module, _, name = entry.partition(":")
    try:
        target = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"cannot import run {entry!r}: {error}", remedy='name it "module:function"'
        ) from None
    assert callable(target), entry
    return target  # type: ignore[no-any-return]


def expand(experiment: Experiment) -> list[Run]:
    """The rows of the grid, in the order of the file, replicates innermost."""
    files = tuple(sorted(experiment.files.values()))
    grid = itertools.product(*experiment.vary.values())
    return [
        Run(
            parameters=dict(experiment.fixed) | dict(zip(experiment.vary, values, strict=True)),
            replicate=replicate,
            seed=draws.bits(experiment.seed, "sweep.replicate", 0, replicate) >> 1,
            entry=experiment.run,
            scenario=experiment.scenario,
            folder=experiment.folder,
            traces=experiment.traces,
            files=files,
        )
        for values in grid
        for replicate in range(experiment.replicates)
    ]


def simulate(row: dict[str, Any]) -> Mapping[str, Any]:
    """Run the simulator: the base scenario with the row's parameters and seed put into it.

    A dotted parameter (`overlay.fanout`) reaches into a table of the scenario.
    """
    from postroad.sim.facts import columns, facts
    from postroad.sim.run import run
    from postroad.sim.scenario import from_dict

    scenario = resolved(row["scenario"], row["parameters"])
    scenario["seed"] = row["seed"]
    sends: list[tuple[TimeUs, BrokerId, Send]] = []
    result = run(
        from_dict(scenario, "scenario", Path(row["folder"])),
        observer=_sends_into(sends) if row["traces"] else None,
    )
    answer = {
        name: value
        for name, value in result.summary().items()
        if name not in MEASURES or isinstance(value, Mapping)
    }
    answer["facts"] = columns(facts(result))
    if row["traces"]:
        answer["traces"] = [*send_traces(result, sends), *delivery_traces(result)]
    return answer


def _sends_into(sends: list[tuple[TimeUs, BrokerId, Send]]) -> Observer:
    def observe(now: TimeUs, broker: BrokerId, given: Input, effects: Sequence[Effect]) -> None:
        sends.extend((now, broker, effect) for effect in effects if isinstance(effect, Send))

    return observe


def send_traces(
    result: Result, sends: Iterable[tuple[TimeUs, BrokerId, Send]]
) -> list[dict[str, Any]]:
    """A simulation's messages after the network had settled, as rows of the trace table.

    One that carries several publications names none of them, as in live traces.
    """
    names = places(result.scenario.overlay)
    rows = []
    for now, broker, send in sends:
        if now >= result.settled_us:
            row = {
                "kind": "send",
                "time_us": now - result.settled_us,
                "broker": names[broker],
                "peer": names[send.peer],
                "mechanism": send.message.kind,
            }
            if send.message.carries and send.message.size == 1:
                publication = send.message.publications[0]
                row |= {
                    "publisher": publication.publisher,
                    "publication": publication.id,
                    "published_us": publication.time_us,
                }
            rows.append(row)
    return rows


def delivery_traces(result: Result) -> list[dict[str, Any]]:
    """A simulation's deliveries as rows of the trace table."""
    names = result.scenario.overlay.names
    return [
        {
            "kind": "deliver",
            "time_us": time_us,
            "broker": names[broker],
            "publisher": key[0],
            "publication": key[1],
            "subscription": subscription,
            "published_us": result.published_us[key],
            "hops": hops,
            "mechanism": mechanism,
        }
        for key, subscription, broker, time_us, hops, mechanism in result.deliveries
    ]


def check(experiment: Experiment) -> None:
    """Make the first run's scenario here, so that an unknown key is told before anything runs."""
    if experiment.run == SIMULATE:
        from postroad.sim.scenario import from_dict

        first = expand(experiment)[0]
        scenario = resolved(experiment.scenario, first.parameters) | {"seed": first.seed}
        from_dict(scenario, "scenario", Path(experiment.folder))


def resolved(scenario: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the scenario with the parameters in place."""
    whole: dict[str, Any] = json.loads(json.dumps(scenario))
    for key, value in parameters.items():
        inside = whole
        *path, last = key.split(".")
        for step in path:
            inner = inside.setdefault(step, {})
            if not isinstance(inner, dict):
                raise InputError(f"{key}: {step} is no table", remedy="check the parameter's name")
            inside = inner
        inside[last] = value
    return whole


def flattened(answer: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers in a run's answer, nested names joined by dots; texts and nulls left out."""
    metrics: dict[str, float] = {}
    for name, value in answer.items():
        if isinstance(value, Mapping):
            metrics |= flattened(value, f"{prefix}{name}.")
        elif isinstance(value, (bool, int, float)) and not math.isnan(value):
            metrics[f"{prefix}{name}"] = float(value)
    return metrics


def perform(run: Mapping[str, Any]) -> dict[str, Any]:
    """One run, whatever happens in it: its finished row, `ok` or `failed` with the error."""
    started = time.perf_counter()
    try:
        answer = dict(function(run["entry"])(dict(run)))
        traces = [_trace(row, run["run_id"]) for row in answer.pop("traces", ())]
        facts = dict(answer.pop("facts", {}))
        metrics = flattened(answer)
    except PostroadError as complaint:
        return finished_row(run, started, error=str(complaint))
    except (Exception, SystemExit) as complaint:  # a run of a sweep must not stop the others
        return finished_row(run, started, error=f"{type(complaint).__name__}: {complaint}")
    return finished_row(run, started, metrics) | {"traces": traces, "facts": facts}


def finished_row(
    run: Mapping[str, Any],
    started: float,
    metrics: Mapping[str, float] | None = None,
    error: str | None = None,
) -> dict[str, Any]:
    """What a run leaves behind."""
    return {
        "run_id": run["run_id"],
        "attempt": run["attempt"],
        "status": "ok" if error is None else "failed",
        "error": error,
        "parameters": sorted((key, _said(value)) for key, value in run["parameters"].items()),
        "replicate": run["replicate"],
        "seed": run["seed"],
        "metrics": sorted((metrics or {}).items()),
        "elapsed_us": round((time.perf_counter() - started) * 1e6),
    }


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _trace(row: Mapping[str, Any], run_id: str) -> dict[str, Any]:
    return {name: row.get(name) for name in TRACES.names} | {"trace_id": run_id}


PARTS = {"runs": RUNS, "traces": TRACES, "facts": FACTS}
"""What a run leaves behind, each in a folder and, in the end, in a table of its own."""


def leave(row: Mapping[str, Any], folders: Mapping[str, str]) -> None:
    """Put what a run leaves into the folders: each file written beside, then renamed; the row last,
    because it says that the run is done."""
    run_id, facts = row["run_id"], row.get("facts") or {}
    if row.get("traces"):
        traces = pa.Table.from_pylist(row["traces"], schema=to_arrow_schema(TRACES))
        _put(traces, folders["traces"], run_id)
    if facts:
        count = len(facts["fact"])
        columns = {"run_id": pa.array([run_id] * count)} | {
            field.name: pa.array(facts[field.name], field.type)
            for field in to_arrow_schema(FACTS)
            if field.name != "run_id"
        }
        _put(pa.table(columns, schema=to_arrow_schema(FACTS)), folders["facts"], run_id)
    _put(pa.Table.from_pylist([dict(row)], schema=to_arrow_schema(RUNS)), folders["runs"], run_id)


def _put(written: pa.Table, folder: str, run_id: str) -> None:
    files, place = store.local(folder)
    beside = f"{place}/.{run_id}.writing"
    with files.open_output_stream(beside) as stream:
        pq.write_table(written, stream)
    files.move(beside, f"{place}/{run_id}.parquet")


def finish(tasks: DataFrame, runs: DataFrame, folders: Mapping[str, str]) -> DataFrame:
    """Perform every run of the table, one per task; each leaves its row and facts in `folders`.

    The result says of each run why it could not leave its row, or null. Keys: `id` is unique in
    both tables; the folders are absolute.
    """
    rows = tasks.join(F.broadcast(runs), on="id", how="inner").select("run")
    outcome = pa.schema([("run_id", pa.string()), ("error", pa.string())])

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                run = json.loads(row["run"])
                error = None
                try:
                    _settle(run["entry"])
                    leave(perform(run), folders)
                except Exception as complaint:  # the driver records it
                    error = f"the Python worker failed: {type(complaint).__name__}: {complaint}"
                yield pa.RecordBatch.from_pylist(
                    [{"run_id": run["run_id"], "error": error}], schema=outcome
                )

    return rows.mapInArrow(each, OUTCOME)


_settled: set[str] = set()


def _settle(entry: str) -> None:
    """Once per Python worker: import what runs need and keep it out of the collector's way.

    Spark collects garbage after every task; frozen modules are not walked each time.
    """
    if entry not in _settled:
        _settled.add(entry)
        try:
            function(entry)
        except InputError:
            return  # the run itself will say so
        gc.collect()
        gc.freeze()
