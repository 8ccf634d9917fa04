"""From a comparison to a network that runs: the network file of a row, and what it would change.

A comparison leaves `comparison.json` in its folder: what was compared, and every row with its
parameters. From it the scenario of a row is made again, and from that the network file: scheme and
parameters as live brokers take them, the links or the plan, ports, a store where there can be one.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomlkit

from postroad.comparison import settings
from postroad.comparison.rows import PLACED
from postroad.comparison.runs import placed, prepared
from postroad.comparison.verdict import judge
from postroad.errors import InputError, choice_of
from postroad.overlay import Overlay, small_world
from postroad.overlay.small_world import Ring
from postroad.planning import kyra as planning
from postroad.routing import SCHEMES, TreePlan, fbr
from postroad.routing.kyra import KyraPlan
from postroad.sim.run import plan_of
from postroad.sim.scenario import Scenario

if TYPE_CHECKING:
    from postroad.comparison.perform import Results
    from postroad.live.network import Network

NAME = "comparison.json"
VERSION = 1
PORTS = 3  # of each broker: clients, links, HTTP


def record(results: Results, out: Path) -> None:
    """Leave what `read` needs."""
    comparison = results.comparison
    best = judge(results.outcomes, comparison.matters, results.conditions).best
    document = {
        "version": VERSION,
        "title": comparison.title,
        "matters": comparison.matters,
        "best": None if best is None else best.label,
        "settings": comparison.scenario,
        "folder": comparison.folder,
        "seed": comparison.seed,
        "replicates": comparison.replicates,
        "topic": results.topic,
        "rows": {
            row.label: {
                "scheme": row.scheme,
                "relocation": row.relocation,
                "parameters": row.parameters,
                "measures": {name: figure.mean for name, figure in row.figures.items()},
            }
            for row in results.outcomes
            if row.error is None
        },
    }
    (out / NAME).write_text(json.dumps(document, indent=1), encoding="utf-8")


def read(report: Path, label: str | None) -> tuple[str, Mapping[str, Any], Scenario]:
    """A row of a comparison: its label, what it measured, and its scenario. Without a label: the
    verdict's. A scheme's name stands for its only row."""
    path = report / NAME
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error}", remedy="name the folder that `compare -o` wrote"
        ) from None
    if document.get("version") != VERSION:
        raise InputError(
            f"{path} is of version {document.get('version')!r}, not {VERSION}",
            remedy="compare again",
        )
    rows = document["rows"]
    if label is None:
        label = document["best"]
        if label is None:
            raise InputError(
                "no row of this comparison keeps within its limits", where=str(path),
                remedy=f"choose one with --row: {', '.join(rows)}",
            )  # fmt: skip
    same = [name for name, row in rows.items() if label in (name, row["scheme"])]
    if label not in rows and len(same) != 1:
        raise InputError(f"--row is {label!r}", where=str(path), remedy=choice_of(label, rows))
    chosen = label if label in rows else same[0]
    whole = settings.part(
        document["settings"], document["folder"], document["seed"], 0, document["replicates"], False
    )
    if PLACED in rows[chosen]["parameters"]:
        training = settings.part(
            document["settings"], document["folder"], document["seed"], 0,
            document["replicates"], True,
        )  # fmt: skip
        whole = placed(whole, training)
    scenario = prepared({**rows[chosen], "topic": document["topic"]}, whole)
    return chosen, rows[chosen]["measures"], scenario


def write(
    scenario: Scenario, label: str, path: Path, name: str, host: str, port: int
) -> list[Path]:
    """Write the network file, and the plan beside it if the scheme has one; their paths."""
    names = scenario.overlay.names
    if port + PORTS * len(names) > 65_536:
        raise InputError(
            f"--port {port}: {len(names)} brokers need {PORTS} ports each from there on",
            remedy=f"give a port of at most {65_536 - PORTS * len(names)}",
        )
    scheme = SCHEMES[scenario.scheme].of(scenario.config)
    top = tomlkit.document()
    top.add(tomlkit.comment(f"{label}, as compared."))
    top["name"] = name
    top["scheme"] = scenario.scheme
    written = [path]
    plan_file = path.with_name(f"{path.stem}.plan.json")
    if _save_plan(scenario, plan_file):
        top["plan"] = plan_file.name
        written.append(plan_file)
    else:
        overlay = _tree(scenario)
        links = tomlkit.array()
        for a, b in overlay.ends.tolist():
            links.append([names[a], names[b]])
        top["links"] = links.multiline(True)
    if scenario.relocation is not None:
        top["relocation"] = scenario.relocation
    if scheme.durable and scenario.relocation is None:
        top["store"] = f"{path.stem}.store"
        top["store"].comment("sessions, links and routes survive restarts")
    traces = tomlkit.inline_table()
    traces.update({"folder": f"{path.stem}.traces", "sample": 0.01})
    top["traces"] = traces
    for table, config in (
        ("parameters", scenario.config),
        (scenario.relocation, scenario.relocation_config),
    ):
        values = _changed(config)
        if table is not None and values:
            top[table] = values
    most = max(Counter(i.client for i in scenario.workload.subscriptions).values(), default=0)
    if most > 10_000:
        top["limits"] = {"subscriptions_per_client": most}
    brokers = tomlkit.table(is_super_table=True)
    for number, broker in enumerate(names):
        at = port + PORTS * number
        brokers[broker] = {"host": host, "mqtt": at, "link": at + 1, "http": at + 2}
    top["brokers"] = brokers
    path.write_text(tomlkit.dumps(top), encoding="utf-8")
    return written


def _tree(scenario: Scenario) -> Overlay:
    """The links that the scheme runs on: its own tree, or the overlay's."""
    if scenario.scheme == "match_early":
        return fbr.tree(scenario.overlay)
    plan = plan_of(scenario)
    return plan.overlay if isinstance(plan, TreePlan) else scenario.overlay


def _save_plan(scenario: Scenario, path: Path) -> bool:
    """Write the plan that the scheme made for the workload, if it has one to read."""
    overlay = scenario.overlay
    if isinstance(overlay, Ring):
        small_world.save(overlay, path, {})
        return True
    if SCHEMES[scenario.scheme].read_plan is None:
        return False
    plan = plan_of(scenario)
    assert isinstance(plan, KyraPlan)
    direct_us = plan.between_us if overlay.direct_us is None else overlay.direct_us
    planning.save(dataclasses.replace(overlay, direct_us=direct_us), plan.layout, path, {})
    return True


def _changed(config: Any) -> dict[str, Any]:
    """The parameters that are not left at their defaults."""
    if config is None:
        return {}
    default = type(config)()
    return {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if getattr(config, field.name) != getattr(default, field.name)
    }


@dataclass(frozen=True)
class Transition:
    """What would change in a network, and the steps that lead there."""

    differences: Sequence[str]
    steps: Sequence[str]


def changes(running: Network, wanted: Network) -> Transition:
    """From one network to another, by the operations that brokers have."""
    differences = []
    for name in ("scheme", "relocation"):
        before, after = getattr(running, name), getattr(wanted, name)
        if before != after:
            differences.append(f"{name}: {before or 'none'} → {after or 'none'}")
    for name in ("config", "relocation_config"):
        before, after = _changed(getattr(running, name)), _changed(getattr(wanted, name))
        differences += [
            f"{key}: {before.get(key, 'default')} → {after.get(key, 'default')}"
            for key in sorted(before.keys() | after.keys())
            if before.get(key) != after.get(key)
        ]
    for name in sorted({*running.member_names} & {*wanted.member_names}):
        counts = [one.workers[one.names.index(name)] for one in (running, wanted)]
        if counts[0] != counts[1]:
            differences.append(f"broker {name}: {counts[0]} → {counts[1]} workers")
    routing = bool(differences) or running.planned != wanted.planned
    if running.planned != wanted.planned:
        differences.append("plan: another one" if wanted.planned else "plan: none any more")
    before_names, after_names = set(running.member_names), set(wanted.member_names)
    gone, fresh = sorted(before_names - after_names), sorted(after_names - before_names)
    differences += [f"broker {name}: goes" for name in gone]
    differences += [f"broker {name}: comes" for name in fresh]
    pairs = [
        {frozenset((one.names[a], one.names[b])) for a, b in one.pairs} for one in (running, wanted)
    ]
    cut, laid = pairs[0] - pairs[1], pairs[1] - pairs[0]
    for word, some in (("goes", cut), ("comes", laid)):
        differences += [f"link {'-'.join(pair)}: {word}" for pair in sorted(map(sorted, some))]
    if not differences:
        return Transition((), ())
    here, there = running.path, wanted.path
    inner = {pair for pair in cut | laid if not pair & (set(gone) | set(fresh))}
    if routing or inner or not running.grows:
        lost = "" if running.store is None else "; what waits for absent clients is lost"
        return Transition(
            differences,
            [
                f"postroad network down {here}  # brokers of different routing do not join{lost}",
                f"postroad network up {there}",
            ],
        )
    steps = []
    for name in fresh:
        to = sorted(next(iter(pair - {name})) for pair in laid if name in pair)
        number = wanted.names.index(name)
        at, count = wanted.addresses[number], wanted.workers[number]
        steps.append(
            f"postroad network add {here} {name} {' '.join(f'--to {peer}' for peer in to)} "
            f"--host {at.host} --mqtt {at.mqtt} --link {at.link} --http {at.http}"
            + (f" --workers {count}" if count > 1 else "")
        )
    steps += [f"postroad network remove {here} {name}" for name in gone]
    return Transition(differences, steps)
