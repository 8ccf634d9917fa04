"""Filters that cannot match, that others of the same client cover, that nothing published meets;
and publications that nobody wants."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from postroad.checking.findings import ERROR, NOTE, WARNING, Finding, plural, some
from postroad.checking.listed import Listed
from postroad.checking.witness import witness
from postroad.explain.filters import explain_filter
from postroad.explain.history import History
from postroad.filters import Filter, covers, intersects
from postroad.filters.constraints import TextSet
from postroad.matching import Index
from postroad.model import Scalar

EXPLAINED_MAX = 100  # filters without a match, for which it is looked up why
CLOSELY_MAX = 200  # subscriptions of one client that are compared as closely as can be
_HASH = re.compile("[0-9a-f]{16}")


def of_subscriptions(listed: Sequence[Listed]) -> list[Finding]:
    """What is wrong with subscriptions by themselves."""
    findings = []
    for one in listed:
        if not one.filter.conjunctions:
            findings.append(
                Finding(
                    ERROR, "contradictory", f"no publication can match the filter of {one.id}",
                    one.where, one.id, "mend it, or leave the subscription out",
                )
            )  # fmt: skip
            continue
        example = witness(one.filter)
        if example.attributes is None:
            never = "no publication can" if example.certain else "perhaps no publication can"
            findings.append(
                Finding(
                    ERROR if example.certain else NOTE, "contradictory",
                    f"{never} match the filter of {one.id}: {one.filter}", one.where, one.id,
                    "see whether its conditions can all be true of one value",
                )
            )  # fmt: skip
    clients: dict[str, list[Listed]] = defaultdict(list)
    for one in listed:
        if one.filter.conjunctions:
            clients[one.client].append(one)
    for several in clients.values():
        findings += _covered(several)
    return findings


def _covered(several: Sequence[Listed]) -> list[Finding]:
    """Of one client: those that others cover. Without all of them it would still get the same."""
    if len(several) < 2:
        return []
    candidates = _Candidates()
    for number, one in enumerate(several):
        candidates.add(number, one.filter)
    includes = _includes if len(several) <= CLOSELY_MAX else covers
    dropped: set[int] = set()
    findings = []
    for number in reversed(range(len(several))):  # of two equal ones the later
        one = several[number]
        covering: dict[int, None] = {}
        for conjunction in one.filter.conjunctions:
            part = Filter((conjunction,))
            outer = next(
                (
                    other
                    for other in candidates.of(part)
                    if other != number and other not in dropped
                    and includes(several[other].filter, part)
                ),
                None,
            )  # fmt: skip
            if outer is None:
                break
            covering[outer] = None
        else:
            dropped.add(number)
            others = [several[other] for other in covering]
            names = " and ".join(f"{other.id} ({other.filter}, {other.where})" for other in others)
            findings.append(
                Finding(
                    WARNING, "covered",
                    f"{one.id} of client {one.client} ({one.filter}) gets nothing that "
                    f"{names} does not get",
                    one.where, [one.id, *(other.id for other in others)],
                    f"leave {one.id} out, unless its quality of service is higher",
                )
            )  # fmt: skip
    return findings[::-1]


def _includes(outer: Filter, inner: Filter) -> bool:
    """As `covers`, and also where several alternatives of the outer do it together."""
    if covers(outer, inner):
        return True
    if len(outer.conjunctions) < 2:
        return False
    example = witness(inner, outer)
    return example.attributes is None and example.certain


@dataclass(slots=True)
class _Candidates:
    """Filters by the classes that they name, so that not each is compared with all others."""

    named: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    loose: list[int] = field(default_factory=list)  # they take other classes too

    def add(self, number: int, filter: Filter) -> None:
        classes = [_classes(conjunction) for conjunction in filter.conjunctions]
        if None in classes:
            self.loose.append(number)
        else:
            for name in {name for several in classes for name in several or ()}:
                self.named[name].append(number)

    def of(self, filter: Filter) -> Iterator[int]:
        """Those that may cover a filter of one conjunction."""
        classes = _classes(filter.conjunctions[0])
        if classes:
            yield from self.named.get(next(iter(sorted(classes))), ())
        yield from self.loose


def _classes(conjunction: Sequence[tuple[str, object]]) -> Collection[str] | None:
    demand = dict(conjunction).get("class")
    return demand.values if isinstance(demand, TextSet) else None


def published(history: History) -> list[dict[str, Scalar]]:
    """The attributes of all publications of a trace that have any."""
    rows = (row for row in history.rows if row.kind == "publish" and row.attributes is not None)
    return [json.loads(str(row.attributes)) for row in rows]


def hashed(publications: Sequence[dict[str, Scalar]]) -> bool:
    """Whether hashes stand in place of values: no filter can be held against them."""
    values = [value for each in publications for value in each.values()]
    return bool(values) and all(isinstance(v, str) and _HASH.fullmatch(v) for v in values)


def against_publications(
    listed: Sequence[Listed], history: History, where: str, excluded: Collection[str] = ()
) -> list[Finding]:
    """Filters that nobody advertises or that nothing matches, and why; and publications that
    nobody wants. `excluded` are attributes that were not recorded."""
    publications = published(history)
    if not publications:
        text = "no publication has its attributes: filters are not held against any"
        return [Finding(NOTE, "unknown", text, where, 0, "record attributes = 'plain'")]
    if hashed(publications):
        text = "attributes are recorded as hashes: filters are not held against them"
        return [Finding(NOTE, "unknown", text, where, None, "record attributes = 'plain'")]
    distinct: dict[Filter, list[Listed]] = defaultdict(list)
    for one in listed:
        if one.filter.conjunctions:
            distinct[one.filter].append(one)
    index: Index[int] = Index()
    for number, filter in enumerate(distinct):
        index.insert(number, filter)
    met: set[int] = set()
    wanted: Counter[Scalar | None] = Counter()
    total: Counter[Scalar | None] = Counter()
    for attributes in publications:
        matching = index.match(attributes)
        met.update(matching)
        name = attributes.get("class")
        total[name] += 1
        wanted[name] += bool(matching)
    findings = []
    offers = [history.filter(one.text) for one in history.advertisements.values()]
    unmet = [(f, several) for n, (f, several) in enumerate(distinct.items()) if n not in met]
    for number, (filter, several) in enumerate(unmet):
        one = several[0]
        which = some([each.id for each in several])
        ids = [each.id for each in several]
        asked = {name for conjunction in filter.conjunctions for name, _ in conjunction}
        if hidden := sorted(asked & set(excluded)):
            text = f"the filter of {which} asks for {', '.join(hidden)}, not recorded"
            findings.append(Finding(NOTE, "unknown", text, one.where, ids))
            continue
        if offers and not any(intersects(filter, offer) for offer in offers):
            findings.append(
                Finding(
                    WARNING, "not advertised",
                    f"no publisher advertises what {which} asks for: {filter}", one.where, ids,
                    "see postroad explain --filter, or let a publisher advertise it",
                )
            )  # fmt: skip
            continue
        why = ""
        if number < EXPLAINED_MAX:
            answer = explain_filter(history, filter)
            closest = f" ({'; '.join(answer.closest)})" if answer.closest else ""
            why = f": {answer.cause}, {answer.sentence}{closest}"
        findings.append(
            Finding(
                WARNING, "unmatched",
                f"none of {len(publications):,} publications matches the filter of {which}{why}",
                one.where, ids, "mend the filter, or leave it out if nothing such will come",
            )
        )  # fmt: skip
    for name, count in total.items():
        if not wanted[name]:
            findings.append(
                Finding(
                    WARNING, "unwanted",
                    f"nobody wants {'what has no class' if name is None else f'class {name}'}: "
                    f"no filter matches any of {plural(count, 'publication')}",
                    where, name,
                    "stop publishing them, or see whose subscription is missing",
                )
            )  # fmt: skip
    return findings
