"""`postroad pipeline`: data, workloads, bulk matching, sweeps, measures, watching; on Spark."""

from __future__ import annotations

import json
import re
import sys
from types import MappingProxyType
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from postroad.cli.naming import MAP, pairs
from postroad.cli.progress import bars
from postroad.cli.spark import Command, job, on_spark
from postroad.errors import InputError, RunFailed, choice_of

JSON = click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON.")


@click.group()
def pipeline() -> None:
    """Prepare data, make workloads, run sweeps and measure them, on Spark."""


def to_folder(command: Command) -> Command:
    """The options of commands that write tables."""
    for option in (
        click.option("--force", is_flag=True, help="Redo it even if nothing has changed."),
        click.option(
            "-o",
            "--out",
            "--output",
            "output",
            required=True,
            metavar="DIR",
            help="The folder of the tables.",
        ),
    ):
        command = option(command)
    return command


def workload_options(command: Command) -> Command:
    for option in (
        click.option("--jsonl", is_flag=True, help="Also write files for `postroad simulate`."),
        click.option("--seed", default=0, show_default=True),
    ):
        command = option(command)
    return on_spark(to_folder(option_rate(JSON(command))))


def option_rate(command: Command) -> Command:
    return click.option("--rate", "rate_per_s", type=float, help="Publications per second.")(
        command
    )


@pipeline.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--as",
    "kind",
    required=True,
    type=click.Choice(["edges", "latency", "quotes", "subscriptions", "publications", "traces"]),
    help="What the files hold.",
)
@click.option("--bad-share", default=0.01, show_default=True, help="Bad rows a file may have.")
@click.option(
    "--append", is_flag=True, help="Add the files to the table; those that it has are left out."
)
@click.option(
    "--keep-days", type=click.IntRange(min=1), help="Traces: drop days that are older than this."
)
@click.option("--undirected", is_flag=True, help="Edges: keep each pair both ways.")
@click.option(
    "--unit",
    type=click.Choice(["us", "ms", "s"]),
    help="Latency: the unit of the numbers; of a matrix ms without it.",
)
@click.option(
    "--times",
    type=click.Choice(["one-way", "round-trip", "rtt"]),
    help="Latency, and needed there: what was measured. The table is one way.",
)
@click.option(
    "--layout",
    type=click.Choice(["matrix", "triples"]),
    default="matrix",
    show_default=True,
    help="Latency: a square matrix, or `i j latency` lines.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "jsonl", "parquet"]),
    help="Records: the format, where the name does not tell.",
)
@MAP
@to_folder
@on_spark
@JSON
def ingest(
    sources: tuple[str, ...],
    kind: str,
    names: tuple[str, ...],
    output: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Read raw files into a table; bad rows go to its quarantine."""
    from postroad.pipeline import run

    named = pairs(names)
    facts = run.ingest(sources, kind, output, job(options, bar=True), names=named, **options)
    if as_json or facts["unchanged"]:
        return _tell(facts, as_json)
    click.echo(f"{facts['records']:,} rows read, {facts['rows']:,} in {facts['tables'][0]}")
    if facts["quarantined"]:
        click.echo(f"{facts['quarantined']:,} quarantined in {facts['tables'][1]}")
    for reason, count in facts["reasons"].items():
        click.echo(f"  {count:,}  {reason}")
    return None


@pipeline.command()
@click.argument("edges", metavar="EDGES")
@click.option("-n", "--nodes", type=int, required=True, help="Users in the sample.")
@click.option("--seeds", default=5, show_default=True, help="Users to begin from.")
@click.option("--seed", default=0, show_default=True, help="Chooses the users to begin from.")
@to_folder
@on_spark
@JSON
def sample(edges: str, output: str, as_json: bool, **options: Any) -> None:
    """Breadth-first sample of a graph, with all edges among the visited users."""
    from postroad.pipeline import run

    facts = run.sample(edges, output, job(options, bar=True), **options)
    if as_json or facts["unchanged"]:
        return _tell(facts, as_json)
    click.echo(f"{facts['nodes']:,} users and {facts['edges']:,} edges in {facts['tables'][0]}")
    click.echo(f"users met per level: {', '.join(f'{n:,}' for n in facts['levels'])}")
    return None


@pipeline.command()
@click.argument("edges", metavar="EDGES")
@click.option("--table", metavar="FILE", help="Write the quantiles of follower counts as CSV.")
@on_spark
@JSON
def followers(edges: str, table: str | None, as_json: bool, **options: Any) -> None:
    """Follower statistics of a graph."""
    from pathlib import Path

    from postroad.pipeline import run

    facts = run.followers(edges, job(options, bar=True))
    quantiles = facts.pop("quantiles")
    if table:
        head = "# Made by `postroad pipeline followers EDGES --table FILE`.\n"
        head += "# Share of users with at most so many followers.\nshare,followers\n"
        rows = "".join(f"{share},{count}\n" for share, count in quantiles)
        Path(table).write_text(head + rows, encoding="utf-8")
    if as_json:
        return _tell(facts, as_json)
    click.echo(f"{facts['users']:,} users, {facts['edges']:,} edges")
    click.echo(f"followers: mean {facts['mean']:.2f}, median {facts['median']}, max {facts['max']}")
    for share in (1, 10, 20):
        click.echo(f"top {share}% hold {facts[f'top_{share}_percent']:.1%}")
    return None


@pipeline.group()
def workload() -> None:
    """Subscriptions, advertisements and publications of the papers' workloads."""


@workload.command("follower")
@click.option("--subscriptions", type=int, required=True)
@click.option("--publications", type=int, required=True)
@click.option("--edges", help="A table of edges; without it, the shipped distribution.")
@click.option("--by-class", is_flag=True, help="Classes by Zipf's law instead of followers.")
@click.option("--exponent", default=1.0, show_default=True, help="Of Zipf's law.")
@click.option("--publishers", default=200, show_default=True)
@click.option("--classes", default=20, show_default=True)
@click.option("--brokers", default=200, show_default=True)
@click.option("--publisher-brokers", default=5, show_default=True, help="Brokers they sit at.")
@workload_options
def follower_workload(edges: str | None, **options: Any) -> None:
    """PopSub: subscriptions per publisher as followers are distributed."""
    _workload("follower", options, {"edges": edges} if edges else {})


@workload.command("topics")
@click.option("--nodes", type=int, required=True)
@click.option("--topics", type=int, required=True)
@click.option("--popularity", type=click.Choice(["zipf", "unif", "expo"]), required=True)
@click.option("--publications", type=int, required=True)
@click.option("--per-node", default=20, show_default=True, help="Topics of each node.")
@click.option("--exponent", default=2.0, show_default=True, help="Of Zipf's law.")
@click.option("--brokers", type=int, help="Spread nodes over so many; else each is a broker.")
@workload_options
def topics_workload(**options: Any) -> None:
    """BeaConvey: nodes subscribe to topics of Zipf, uniform or exponential popularity."""
    _workload("topics", options, {})


@workload.command("social")
@click.option("--edges", required=True, help="A table of edges, such as a sample's.")
@click.option("--publications", type=int, required=True)
@click.option("--brokers", type=int, help="Spread users over so many; else each is a broker.")
@workload_options
def social_workload(edges: str, **options: Any) -> None:
    """BeaConvey: each user of a social graph is a topic, its followers subscribe."""
    _workload("social", options, {"edges": edges})


@workload.command("content")
@click.option(
    "--distribution",
    type=click.Choice(["uniform", "zipf-uniform", "multimodal", "regional"]),
    required=True,
)
@click.option("--interest", type=float, required=True, help="The paper has 0.01, 0.1 and 0.5.")
@click.option(
    "--interest-over",
    type=click.Choice(["values", "publications"]),
    default="values",
    show_default=True,
    help="Among which an event is chosen that a server wants with that probability.",
)
@click.option("--publications", type=int, required=True)
@click.option("--servers", default=500, show_default=True)
@click.option("--values", default=1000, show_default=True, help="Size of the content space.")
@click.option("--exponent", default=1.0, show_default=True, help="Zipf-uniform: of Zipf's law.")
@click.option("--peaks", default=5, show_default=True, help="Multimodal: how many.")
@click.option("--gamma", default=1.0, show_default=True, help="Regional: the distance's power.")
@click.option("--latency", help="Regional: a latency table; without it, a random square.")
@workload_options
def content_workload(latency: str | None, **options: Any) -> None:
    """Kyra: servers interested in values of a one-dimensional content space."""
    if latency and options["distribution"] != "regional":
        raise InputError("--latency is for --distribution regional", remedy="leave it out")
    _workload("content", options, {"latency": latency} if latency else {})


@workload.command("stock")
@click.option("--subscribers", type=click.Choice(["random", "enterprise"]), required=True)
@click.option("--publishers", type=int, required=True, help="Symbols.")
@click.option("--per-publisher", type=int, required=True, help="Subscribers of each symbol.")
@click.option("--brokers", type=int, required=True)
@click.option("--spread", type=int, help="Brokers that subscribers sit at (the paper's X).")
@click.option("--quotes", help="A table of quotes; without it, made-up ones.")
@click.option("--days", default=250, show_default=True, help="Of made-up quotes.")
@workload_options
def stock_workload(quotes: str | None, **options: Any) -> None:
    """POP and GRAPE: stock quotes with random or enterprise subscribers."""
    _workload("stock", options, {"quotes": quotes} if quotes else {})


@workload.command("patterns")
@click.option("--brokers", type=int, required=True)
@click.option("--patterns", default=100, show_default=True)
@click.option("--sigma", default=0.02, show_default=True, help="Chance to subscribe to one.")
@click.option("--mu", type=float, help="Chance to receive; without it, as sigma.")
@click.option("--exponent", type=float, help="Patterns by Zipf's law with this exponent.")
@click.option("--publications", default=1000, show_default=True)
@workload_options
def patterns_workload(**options: Any) -> None:
    """Subscription-forwarding model: brokers subscribe to patterns with probability sigma."""
    _workload("patterns", options, {})


def _workload(kind: str, options: dict[str, Any], inputs: dict[str, str]) -> None:
    from postroad.pipeline import run

    output, as_json, where = options.pop("output"), options.pop("as_json"), job(options, bar=True)
    if options["rate_per_s"] is None:
        del options["rate_per_s"]
    facts = run.workload(kind, output, where, inputs=inputs, **options)
    if as_json or facts["unchanged"]:
        return _tell(facts, as_json)
    for name in ("subscriptions", "advertisements", "publications"):
        click.echo(f"{facts[name]:,} {name} in {output.rstrip('/')}/{name}")
    return None


@pipeline.command()
@click.option("--subscriptions", required=True, metavar="PATH", help="A table, or a raw file.")
@click.option("--publications", required=True, metavar="PATH", help="A table, or a raw file.")
@click.option(
    "--by",
    type=click.Choice(["subscription", "broker", "client"]),
    default="subscription",
    show_default=True,
    help="Whom to name.",
)
@to_folder
@on_spark
@JSON
def match(
    subscriptions: str, publications: str, by: str, output: str, as_json: bool, **options: Any
) -> None:
    """Which publication matches whom: a table with the names for each publication."""
    from postroad.pipeline import run

    facts = run.match(subscriptions, publications, output, job(options, bar=True), by=by)
    if as_json or facts["unchanged"]:
        return _tell(facts, as_json)
    click.echo(
        f"{facts['publications']:,} publications, {facts['filters']:,} filters, "
        f"{facts['matches']:,} matches by {by} in {facts['tables'][0]}"
    )
    return None


@pipeline.command()
@click.argument("network", metavar="NETWORK.TOML")
@click.option("--subscriptions", required=True, metavar="PATH", help="A table, or a raw file.")
@click.option("--publications", required=True, metavar="PATH", help="A table, or a raw file.")
@click.option("--scheme", "schemes", multiple=True, help="Price only these; may be repeated.")
@to_folder
@on_spark
@JSON
def cost(
    network: str, subscriptions: str, publications: str, output: str, as_json: bool, **options: Any
) -> None:
    """Exact messages, loads, hops and delays of schemes, for publications by the million."""
    from postroad.pipeline import run, store

    schemes = options.pop("schemes")
    where = job(options, bar=True)
    facts = run.cost(network, subscriptions, publications, output, where, schemes=schemes)
    rows = sorted(
        store.rows_of(facts["tables"][0]), key=lambda row: (row["messages"], row["scheme"])
    )
    if as_json:
        return _tell({**facts, "cost": rows}, as_json)
    table = Table(*rows[0], title=facts["tables"][0])
    for row in rows:
        table.add_row(*[_short(value) for value in row.values()])
    Console(width=None if sys.stdout.isatty() else 250).print(table)
    return None


@pipeline.command()
@click.argument("experiment", metavar="EXPERIMENT.TOML")
@click.option("--metric", help="What the best setting has least of; by default messages.")
@to_folder
@on_spark
@JSON
def sweep(experiment: str, metric: str | None, output: str, as_json: bool, **options: Any) -> None:
    """Run an experiment's grid and say which setting is best; a killed sweep goes on where it was.

    Beside the runs are the tables of `measure`, and answer.png.
    """
    from postroad.pipeline import run, store
    from postroad.pipeline.answer import SETTINGS_MAX, answer
    from postroad.pipeline.session import kept

    where = job(options, light=True)
    with bars(transient=False) as progress, kept():
        task = progress.add_task("runs", total=None)

        def report(done: int, total: int) -> None:
            progress.update(task, completed=min(done, total), total=total)

        facts = run.sweep(experiment, output, where, report=report)
        measured: dict[str, Any] = {"tables": []}
        if facts["failed"] < facts["runs"]:
            grid = run.grid_of(facts["tables"][0])
            every = [dict.fromkeys(grid.keys)] if 1 < grid.count <= SETTINGS_MAX else []
            measured = run.measure(facts["tables"][0], output, where, baselines=every)
    measures, differences = [
        *(store.rows_of(path) for path in measured["tables"]), [], []
    ][:2]  # fmt: skip
    best = answer(measures, differences, metric)
    picture = None if best is None else _plot(measures, best.metric, f"{output}/answer.png")
    if as_json:
        facts["answer"] = (
            None
            if best is None
            else {
                "metric": best.metric,
                "best": dict(best.best["parameters"]),
                "text": str(best),
                "plot": picture,
            }
        )
        _tell(facts, as_json)
    else:
        click.echo(
            f"{facts['runs']:,} runs in {facts['tables'][0]}, {facts.get('skipped', 0):,} of them "
            f"finished before, {facts['failed']:,} failed"
        )
        click.echo("no metric differs between settings" if best is None else str(best))
        if picture is not None:
            click.echo(f"plot: {picture}")
    if facts["failed"]:
        raise RunFailed(f"{facts['failed']} runs failed, the first with: {facts['first_error']}")


def _plot(rows: list[dict[str, Any]], metric: str, path: str) -> str | None:
    """Draw a metric by settings, where the folder is here and matplotlib is installed."""
    if "://" in path:
        return None
    try:
        from postroad.report.figures.settings import settings
    except ModuleNotFoundError:
        return None
    settings(rows, metric).savefig(path, dpi=110)
    return path


@pipeline.command()
@click.argument("runs", metavar="RUNS")
@click.option("--traces", help="A table of traces whose trace_id is the run_id.")
@click.option("--baseline", multiple=True, metavar="K=V", help="Compare with runs of this setting.")
@click.option("--metric", multiple=True, help="Print only these metrics; all are written.")
@click.option("--all", "everything", is_flag=True, help="Print also what is the same everywhere.")
@click.option(
    "--plot", metavar="FILE", help="Draw the first metric by settings (.png, .svg, .pdf)."
)
@to_folder
@on_spark
@JSON
def measure(
    runs: str,
    traces: str | None,
    baseline: tuple[str, ...],
    metric: tuple[str, ...],
    everything: bool,
    plot: str | None,
    output: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Means, 95% intervals, percentiles and differences to a baseline.

    Prints the metrics that differ between settings or replicates.
    """
    from postroad.pipeline import run, store
    from postroad.pipeline.answer import METRIC, varying
    from postroad.pipeline.session import parse_conf

    baselines = [parse_conf(baseline)] if baseline else []
    facts = run.measure(
        runs, output, job(options, bar=True), traces_path=traces, baselines=baselines
    )
    tables = {path: store.rows_of(path) for path in facts["tables"]}
    rows = next(iter(tables.values()))
    known = list(dict.fromkeys(row["metric"] for row in rows))
    for name in metric:
        if name not in known:
            raise InputError(f"--metric is {name!r}", remedy=choice_of(name, known, "known"))
    shown = list(metric) or (known if everything else varying(rows)) or known
    if plot is not None:
        first = METRIC if METRIC in shown and not metric else shown[0]
        if _plot(rows, first, plot) is None:
            raise InputError("matplotlib is not installed", remedy="pip install 'postroad[report]'")
    if as_json:
        facts |= {path.rpartition("/")[2]: table for path, table in tables.items()}
        return _tell(facts, as_json)
    for path, table in tables.items():
        _print_measures(path, [row for row in table if row["metric"] in shown])
    constant = {row["metric"]: row["mean"] for row in rows if row["metric"] not in shown}
    if constant and not metric:
        same = ", ".join(f"{name} {_short(value)}" for name, value in constant.items())
        click.echo(f"the same everywhere (--all prints them too): {same}")
    if plot is not None:
        click.echo(f"plot: {plot}")
    return None


class _Duration(click.ParamType[int]):
    """`250ms`, `5s`, `1m`, `2h` as microseconds."""

    name = "time"
    units_us = MappingProxyType({"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000})

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+)(ms|s|m|h)", value)
        if match is None:
            self.fail(f"{value!r} is no time: write 250ms, 5s, 1m or 2h", param, ctx)
        return int(match[1]) * self.units_us[match[2]]


@pipeline.command()
@click.argument("traces", metavar="TRACES|NETWORK.TOML")
@click.option(
    "-o",
    "--out",
    "--output",
    "output",
    required=True,
    metavar="DIR",
    help="The folder of the tables.",
)
@click.option("--once", is_flag=True, help="Measure the files that are there, and end.")
@click.option(
    "--window",
    "window_us",
    type=_Duration(),
    default="5s",
    show_default=True,
    help="What a row of a table is about.",
)
@click.option(
    "--trigger",
    "trigger_us",
    type=_Duration(),
    default="5s",
    show_default=True,
    help="How often new files are taken up.",
)
@click.option(
    "--watermark",
    "watermark_us",
    type=_Duration(),
    default="1m",
    show_default=True,
    help="How late a row may come; a multiple of the window.",
)
@click.option(
    "--apply", is_flag=True, help="Send publishers where they are advised to be; of a NETWORK.TOML."
)
@click.option(
    "--fetch", is_flag=True, help="Fetch the files from the brokers of a NETWORK.TOML, over HTTP."
)
@on_spark
@JSON
def watch(traces: str, output: str, as_json: bool, **options: Any) -> None:
    """Measure a live network from its trace files, window by window, until interrupted.

    TRACES is a folder of trace files; a network file names its own.
    """
    from postroad.pipeline import run

    def report(batch: dict[str, Any]) -> None:
        late = f", {batch['late']:,} too late" if batch["late"] else ""
        took_s = batch["took_us"] / 1e6
        click.echo(
            f"batch {batch['batch']}: {batch['rows']:,} rows in {took_s:.1f} s{late}", err=True
        )
        for move in batch["moves"]:
            end = "" if move["why_not"] is None else f": it stays, {move['why_not']}"
            click.echo(f"  {move['publisher']} to {move['instead']}{end}", err=True)

    facts = run.watch(traces, output, job(options), report=report, **options)
    if as_json:
        return _tell(facts, as_json)
    end = "interrupted" if facts["interrupted"] else "done"
    click.echo(
        f"{end}: {facts['rows']:,} rows in {facts['batches']:,} batches, "
        f"{facts['late']:,} too late, {facts['quarantined']:,} quarantined; tables in {output}"
    )
    return None


@pipeline.command()
@click.argument("folder", metavar="DIR")
@JSON
def tables(folder: str, as_json: bool) -> None:
    """The tables in a folder: rows, how each was made and from what, and what was wrong."""
    from postroad.pipeline import run

    listed = run.tables(folder)
    if as_json:
        click.echo(json.dumps(listed))
        return
    for one in listed:
        quality = "".join(f", {count:,} {word}" for word, count in one["quality"].items())
        click.echo(f"{one['table']}: {one['rows']:,} rows{quality}")
        click.echo(f"  by {one['command'] or one['stage']} (Postroad {one['version']})")
        for path in one["inputs"]:
            click.echo(f"  from {path}")
    if not listed:
        click.echo(f"no tables in {folder}")


_SPREAD = ("n", "sd", "ci95_low", "ci95_high", "min", "p50", "p90", "p99", "max",
           "ratio_mean", "ratio_min", "ratio_max")  # fmt: skip


def _print_measures(title: str, rows: list[dict[str, Any]]) -> None:
    names = [name for name in (rows[0] if rows else {}) if name not in ("parameters", "baseline")]
    if all(row["n"] == 1 for row in rows):  # one replicate has no spread
        names = [name for name in names if name not in _SPREAD]
    keys = sorted({key for row in rows for key in row["parameters"]})
    table = Table(*keys, *names, title=title)
    for row in rows:
        varied = [row["parameters"].get(key, "") for key in keys]
        table.add_row(*varied, *[_short(row[name]) for name in names])
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return "" if value is None else str(value)


def _tell(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(facts, sort_keys=True, default=str))
    else:
        click.echo(f"nothing to do: {', '.join(facts['tables'])} are up to date (--force redoes)")
