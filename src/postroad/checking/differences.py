"""What another network file, or another list of subscriptions, would change, in terms of what it
means: who gets more or less, with an example, and what running brokers can take up."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from postroad.checking.findings import NOTE, WARNING, Finding
from postroad.checking.listed import Listed
from postroad.checking.rights import publishes, sees
from postroad.checking.witness import Witness, compare, witness
from postroad.errors import FilterError
from postroad.filters import Filter, intersects
from postroad.live.edge.users import User
from postroad.live.network import Network
from postroad.live.operations import reload

RUNNING = "running brokers take it up: postroad network reload"
TOGETHER = "running brokers would take it up, but not together with what needs a restart"
RESTART = "stop all brokers and start them again: running ones refuse it"


def of_subscriptions(old: Sequence[Listed], new: Sequence[Listed], file: str) -> list[Finding]:
    """What the new subscriptions would get that the old do not, and the other way round."""
    findings = []
    before = {one.key: one for one in old}
    for one in new:
        was = before.pop(one.key, None)
        if was is None:
            findings.append(_whole("more", one, f"{_name(one)} is new and would get", one.where))
            continue
        if (was.client, was.broker) != (one.client, one.broker):
            findings.append(
                Finding(
                    NOTE, "moved", f"{one.id} moves from client {was.client} at {was.broker} to "
                    f"client {one.client} at {one.broker}", one.where, {"id": one.id},
                )
            )  # fmt: skip
        kind, text, value = _change(was.filter, one.filter)
        if kind != "same":
            what = f"{_name(one)} would now get {text}"
            findings.append(Finding(NOTE, kind, what, one.where, {"id": one.id, **value}))
    return findings + [
        _whole("less", was, f"{_name(was)} ({was.where}) is gone and would no longer get", file)
        for was in before.values()
    ]


def _whole(kind: str, one: Listed, text: str, where: str) -> Finding:
    """A subscription that only one of the lists has."""
    example = witness(one.filter).attributes
    said = "" if example is None else f", for example {json.dumps(example)}"
    return Finding(NOTE, kind, f"{text} {one.filter}{said}", where, {"id": one.id, kind: example})


def _name(one: Listed) -> str:
    return f"{one.id} of client {one.client}"


def _change(old: Filter, new: Filter) -> tuple[str, str, dict[str, Any]]:
    """The kind of change, in words, and as values."""
    if old == new:
        return "same", "", {}
    word, more, less = compare(old, new)
    value = {
        "was": str(old), "is": str(new), "more": more.attributes, "less": less.attributes,
    }  # fmt: skip
    kind = word.removeprefix("perhaps ").partition(",")[0]
    said = "other things" if word == "other" else word
    if word == "other" and not intersects(old, new):
        said = "other things only"
    parts = [*_example("also", more), *_example("no longer", less)]
    return kind, f"{said}{': ' if parts else ''}{'; '.join(parts)} (was {old}, is {new})", value


def _example(which: str, example: Witness) -> list[str]:
    return [] if example.attributes is None else [f"{which} {json.dumps(example.attributes)}"]


def of_networks(old: Network, new: Network, lines: Mapping[str, int]) -> list[Finding]:
    """What the new network file would change, and whether running brokers can take it up."""
    old = _beside(old, new)
    fixed = set(reload.fixed(old, new))
    path = str(new.path)
    easy = TOGETHER if fixed else RUNNING

    def changed(key: str, line: str, what: str, value: Any) -> Finding:
        number = lines.get(line) or lines.get(line.partition(".")[0])
        where = f"{path}:{number}" if number else f"{path}: {line}"
        severity, remedy = (WARNING, RESTART) if key in fixed else (NOTE, easy)
        return Finding(severity, "changed", what, where, value, remedy)

    findings = []
    for key in ("name", "scheme", "seed", "relocation"):
        was, now = getattr(old, key), getattr(new, key)
        if was != now:
            findings.append(changed(key, key, f"{key} is {now!r} and was {was!r}", [was, now]))
    for key, table, before, after in (
        ("parameters", "parameters", old.config, new.config),
        ("relocation", str(new.relocation), old.relocation_config, new.relocation_config),
        ("limits", "limits", old.limits, new.limits),
        ("traces", "traces", old.traces, new.traces),
    ):
        findings += [
            changed(
                _traced(key, name), f"{table}.{name}", f"{table}.{name} is {now!r} and was {was!r}",
                [was, now],
            )
            for name, was, now in _fields(before, after)
        ]  # fmt: skip
        if type(before) is not type(after) and key == "traces":
            findings.append(
                changed(key, key, f"traces {'begin' if before is None else 'end'}", None)
            )
    findings += _brokers(old, new, changed)
    for key in ("store", "tls", "secret", "users"):
        was, now = getattr(old, key), getattr(new, key)
        if was != now:
            text = f"{key} is {_path(now)} and was {_path(was)}"
            findings.append(changed(key, key, text, [_path(was), _path(now)]))
    return findings


def _beside(old: Network, new: Network) -> Network:
    """The old network as if its file stood where the new one does: paths in it are relative."""

    def moved(path: Path | None) -> Path | None:
        if path is None or not path.is_relative_to(old.path.parent):
            return path
        return new.path.parent / path.relative_to(old.path.parent)

    traces = old.traces
    if traces is not None:
        traces = dataclasses.replace(traces, folder=str(moved(Path(traces.folder))))
    return dataclasses.replace(
        old, traces=traces, store=moved(old.store), tls=moved(old.tls), users=moved(old.users),
        secret=moved(old.secret),
    )  # fmt: skip


def _traced(key: str, name: str) -> str:
    """Of traces, only their folder is fixed while a broker runs."""
    return f"traces.{name}" if key == "traces" and name != "folder" else key


def _fields(before: Any, after: Any) -> list[tuple[str, Any, Any]]:
    """The settings that differ; of tables of different kinds, none."""
    if before is None or type(before) is not type(after):
        return []
    both = ((f.name, getattr(before, f.name), getattr(after, f.name))
            for f in dataclasses.fields(before))  # fmt: skip
    return [(name, was, now) for name, was, now in both if was != now]


def _brokers(old: Network, new: Network, changed: Any) -> list[Finding]:
    findings = []
    was, now = set(old.member_names), set(new.member_names)
    addresses = [dict(zip(one.names, one.addresses, strict=True)) for one in (old, new)]
    for name in new.member_names:
        key = f"brokers.{name}"
        if name not in was:
            findings.append(changed("brokers", key, f"broker {name} is new", name))
        elif addresses[0][name] != addresses[1][name]:
            before, after = (dataclasses.asdict(one[name]) for one in addresses)
            text = f"broker {name} listens elsewhere: {after}, and was {before}"
            findings.append(changed("brokers", key, text, [before, after]))
        counts = [one.workers[one.names.index(name)] for one in (old, new) if name in one.names]
        if len(set(counts)) > 1:
            text = f"broker {name} has {counts[1]} workers, and had {counts[0]}"
            findings.append(changed("brokers", f"{key}.workers", text, counts))
    findings += [
        changed("brokers", "brokers", f"broker {name} is gone", name)
        for name in old.member_names
        if name not in now
    ]
    if was == now and old.names != new.names:
        findings.append(
            changed("brokers", "brokers", "the brokers stand in another order", list(new.names))
        )
    links = [{frozenset(one.names[end] for end in pair) for pair in one.pairs}
             for one in (old, new)]  # fmt: skip
    for pair in sorted(map(sorted, links[1] - links[0])):
        findings.append(changed("links", "links", f"link {'-'.join(pair)} is new", pair))
    for pair in sorted(map(sorted, links[0] - links[1])):
        findings.append(changed("links", "links", f"link {'-'.join(pair)} is gone", pair))
    if old.planned != new.planned:
        text = "the plan's file is another" if old.planned and new.planned else "plan changes"
        findings.append(changed("links", "plan", text, new.plan_file))
    return findings


def of_users(old: Mapping[str, User], new: Mapping[str, User], file: str) -> list[Finding]:
    """Which users would see or publish more, less or other things."""
    findings = []
    for name in sorted({*old, *new}):
        where = f"{file}: {name}"
        if name not in old:
            user = new[name]
            may = f"may publish {_list(user.publish)}, see {_list(user.subscribe)}"
            text = f"user {name} is new: {may}"
            findings.append(Finding(NOTE, "changed", text, where, name, RUNNING))
            continue
        if name not in new:
            text = f"user {name} is gone and would be refused"
            findings.append(Finding(NOTE, "changed", text, where, name, RUNNING))
            continue
        for verb, all_of in (("see", sees), ("publish", publishes)):
            try:
                kind, text, value = _change(all_of(old[name]), all_of(new[name]))
            except FilterError as error:
                kind, text, value = "other", f"something else ({error.what})", {}
            if kind != "same":
                what = f"user {name} might now {verb} {text}"
                findings.append(
                    Finding(NOTE, kind, what, where, {"user": name, "may": verb, **value}, RUNNING)
                )
        if (old[name].salt, old[name].hash) != (new[name].salt, new[name].hash):
            text = f"user {name} has another password"
            findings.append(Finding(NOTE, "changed", text, where, name, RUNNING))
    return findings


def _list(topics: Sequence[str]) -> str:
    return ", ".join(topics) or "nothing"


def _path(path: Any) -> str | None:
    return None if path is None else path.name
