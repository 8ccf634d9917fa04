"""The rights of users: who sees what another may not, and rights that lead nowhere."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from postroad.checking.findings import ERROR, NOTE, WARNING, Finding, some
from postroad.checking.witness import witness
from postroad.errors import FilterError
from postroad.filters import EVERYTHING, Filter, conjoin, disjoin, intersects, parse
from postroad.live.edge.topics import as_filter
from postroad.live.edge.users import ALL, User

ANY_TOPIC = parse("class > ''")  # each publication has one


@dataclass(frozen=True, slots=True)
class Rights:
    """What one or more users may do alike."""

    users: tuple[str, ...]
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    publish_where: str | None
    subscribe_where: str | None


def of_users(users: Mapping[str, User], file: str) -> list[Finding]:
    alike: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for name, user in users.items():
        what = (user.publish, user.subscribe, user.publish_where, user.subscribe_where)
        alike[what].append(name)
    groups = [Rights(tuple(names), *what) for what, names in alike.items()]
    findings: list[Finding] = []
    for group in groups:
        findings += _useless(group, groups, file)
    for group in groups:
        if group.subscribe_where is not None:
            findings += _narrowed(group, groups, file)
        findings += _below(group, groups, file)
    return findings


def sees(user: User | Rights) -> Filter:
    """All that a user may be delivered."""
    return disjoin(reach(topic, user.subscribe_where) for topic in user.subscribe)


def publishes(user: User | Rights) -> Filter:
    return disjoin(reach(topic, user.publish_where) for topic in user.publish)


def reach(topic: str, where: str | None) -> Filter:
    """What a right to a topic and all below it holds, with the filter that narrows it."""
    if topic == ALL:
        return ANY_TOPIC if where is None else conjoin(ANY_TOPIC, parse(where))
    return as_filter(f"{topic.rstrip('/')}/#", where)


def _useless(group: Rights, groups: list[Rights], file: str) -> Iterator[Finding]:
    at, names = _at(group, file), some(group.users)
    if not group.publish and not group.subscribe:
        yield Finding(
            WARNING, "no rights", f"{_users(group)} {names} may neither publish nor subscribe",
            at, list(group.users), "allow something with postroad users add, or remove them",
        )  # fmt: skip
    for key, where in (
        ("publish_where", group.publish_where), ("subscribe_where", group.subscribe_where)
    ):  # fmt: skip
        if where is not None and not parse(where).conjunctions:
            yield Finding(
                ERROR, "contradictory", f"{key} of {_users(group)} {names} can never be true",
                at, where, "mend the filter",
            )  # fmt: skip
            return
    for topic in group.subscribe:
        own = reach(topic, group.subscribe_where)
        if not any(
            intersects(own, reach(other, publisher.publish_where))
            for publisher in groups for other in publisher.publish
        ):  # fmt: skip
            yield Finding(
                WARNING, "nobody publishes",
                f"{_users(group)} {names} may subscribe to {_said(topic, group.subscribe_where)}, "
                "which nobody may publish", at, topic, "allow someone to, or take the right away",
            )  # fmt: skip
    for topic in group.publish:
        own = reach(topic, group.publish_where)
        if not any(
            intersects(own, reach(other, reader.subscribe_where))
            for reader in groups for other in reader.subscribe
        ):  # fmt: skip
            yield Finding(
                NOTE, "nobody subscribes",
                f"{_users(group)} {names} may publish {_said(topic, group.publish_where)}, "
                "which nobody may subscribe to", at, topic,
                "allow someone to, or take the right away",
            )  # fmt: skip


def _narrowed(narrow: Rights, groups: list[Rights], file: str) -> Iterator[Finding]:
    """Topics of which these users see a part only, and who sees more of them."""
    more: dict[str, list[tuple[Rights, dict[str, Any]]]] = defaultdict(list)
    for wide in groups:
        for topic in _common(wide.subscribe, narrow.subscribe) if wide is not narrow else ():
            example = _leak(topic, wide, narrow, groups)
            if example is not None:
                more[topic].append((wide, example))
    for topic, wider in more.items():
        names = [name for wide, _ in wider for name in wide.users]
        yield Finding(
            WARNING, "sees more",
            f"{'user' if len(names) == 1 else 'users'} {some(names)} "
            f"{'sees' if len(names) == 1 else 'see'} {_topic(topic)} where {_users(narrow)} "
            f"{some(narrow.users)} {'is' if len(narrow.users) == 1 else 'are'} narrowed to "
            f"{narrow.subscribe_where}, for example {json.dumps(wider[0][1])}",
            _at(narrow, file),
            {"topic": topic, "users": names, "narrowed": list(narrow.users),
             "to": narrow.subscribe_where, "example": wider[0][1]},
            "give them the same subscribe_where unless this is meant",
        )  # fmt: skip


def _leak(topic: str, wide: Rights, narrow: Rights, groups: list[Rights]) -> dict[str, Any] | None:
    """What someone may publish there that the one may see and the other may not."""
    wanted, unwanted = reach(topic, wide.subscribe_where), reach(topic, narrow.subscribe_where)
    if witness(wanted, unwanted).attributes is None:
        return None
    for publisher in groups:
        for other in publisher.publish:
            try:
                both = conjoin(wanted, reach(other, publisher.publish_where))
            except FilterError:  # too large together: then without looking at who publishes it
                both = wanted
            example = witness(both, unwanted).attributes
            if example is not None:
                return example
    return None


def _below(narrow: Rights, groups: list[Rights], file: str) -> Iterator[Finding]:
    """Topics of which these users may only see what is below."""
    for topic in narrow.subscribe:
        wider: dict[str, list[str]] = defaultdict(list)
        for wide in groups:
            for other in wide.subscribe:
                above = other != topic and _within(topic, other)
                if above and not any(_within(other, own) for own in narrow.subscribe):
                    wider[other] += wide.users
        if wider:
            said = ", ".join(f"{some(names)} {_topic(above)}" for above, names in wider.items())
            yield Finding(
                NOTE, "sees more", f"{_users(narrow)} {some(narrow.users)} may see {_topic(topic)} "
                f"only; more may see: {said}", _at(narrow, file),
                {"topic": topic, "narrowed": list(narrow.users), "wider": dict(wider)},
            )  # fmt: skip


def _common(first: tuple[str, ...], second: tuple[str, ...]) -> list[str]:
    """The topics that both reach: of two, one within the other, the lower."""
    common: dict[str, None] = {}
    for a in first:
        for b in second:
            if _within(a, b):
                common[a] = None
            elif _within(b, a):
                common[b] = None
    return [
        topic for topic in common
        if not any(topic != other and _within(topic, other) for other in common)
    ]  # fmt: skip


def _within(topic: str, above: str) -> bool:
    if above == ALL or topic == ALL:
        return above == ALL
    levels, prefix = topic.rstrip("/").split("/"), above.rstrip("/").split("/")
    return levels[: len(prefix)] == prefix


def _users(group: Rights) -> str:
    return "user" if len(group.users) == 1 else "users"


def _topic(topic: str) -> str:
    return "every topic" if topic == ALL else f"topic {topic}"


def _said(topic: str, where: str | None) -> str:
    return _topic(topic) + ("" if where in (None, str(EVERYTHING)) else f" where {where}")


def _at(group: Rights, file: str) -> str:
    return f"{file}: {group.users[0]}"
