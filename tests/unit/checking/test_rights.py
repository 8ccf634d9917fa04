"""Rights of random users, against asking each about every publication of a small domain."""

from __future__ import annotations

import random
from itertools import product

import pytest

from postroad.checking import differences, rights
from postroad.checking.findings import Finding
from postroad.filters import matches, parse
from postroad.live.edge.users import User
from postroad.model import Scalar

TOPICS = ["a", "a/b", "a/b/c", "a/d", "a/g", "e", "e/f", "e/f/h", "g"]
REGIONS: list[Scalar | None] = [None, "eu", "us", 1]
EVERY = list(product(TOPICS, REGIONS))
WHERES = [None, None, "region = 'eu'", "region <> 'eu'", "region IS NOT NULL"]


def user(
    publish: str = "",
    subscribe: str = "",
    publish_where: str | None = None,
    subscribe_where: str | None = None,
) -> User:
    return User(
        "", "", tuple(publish.split()), tuple(subscribe.split()), publish_where, subscribe_where
    )


def drawn(draw: random.Random) -> dict[str, User]:
    prefixes = ["a", "a/b", "a/d", "e", "#", "e/f/"]
    return {
        f"u{n}": user(
            " ".join(draw.sample(prefixes, draw.randint(0, 2))),
            " ".join(draw.sample(prefixes, draw.randint(0, 2))),
            draw.choice(WHERES),
            draw.choice(WHERES),
        )
        for n in range(5)
    }


def holds(where: str | None, region: Scalar | None) -> bool:
    return where is None or matches(parse(where), {"region": region})


def may_see(one: User, topic: str, region: Scalar | None) -> bool:
    return one.may_subscribe(topic) and holds(one.subscribe_where, region)


def may_publish(one: User, topic: str, region: Scalar | None) -> bool:
    return one.may_publish(topic) and holds(one.publish_where, region)


def of(users: dict[str, User], kind: str) -> list[Finding]:
    return [finding for finding in rights.of_users(users, "u.json") if finding.kind == kind]


@pytest.mark.parametrize("seed", range(60))
def test_who_sees_more_of_a_topic_is_who_may_see_such_a_publication(seed: int) -> None:
    users = drawn(random.Random(seed))
    told = {
        (wide, narrow)
        for finding in of(users, "sees more")
        if "to" in finding.value
        for wide, narrow in product(finding.value["users"], finding.value["narrowed"])
    }
    expected = {
        (wide, narrow)
        for (wide, one), (narrow, other) in product(users.items(), users.items())
        if other.subscribe_where is not None
        and any(
            may_see(one, topic, region)
            and other.may_subscribe(topic)
            and not may_see(other, topic, region)
            and any(may_publish(publisher, topic, region) for publisher in users.values())
            for topic, region in EVERY
        )
    }
    assert told == expected, users
    for finding in of(users, "sees more"):
        if "to" in finding.value:
            example = finding.value["example"]
            topic, region = str(example["class"]), example.get("region")
            assert not may_see(users[finding.value["narrowed"][0]], topic, region)
            assert may_see(users[finding.value["users"][0]], topic, region)


@pytest.mark.parametrize("seed", range(30))
def test_rights_that_lead_nowhere_are_those_without_any_publication(seed: int) -> None:
    users = drawn(random.Random(seed))
    told = {(f.where.rpartition(" ")[2], f.value) for f in of(users, "nobody publishes")}
    for name, one in users.items():
        for prefix in one.subscribe:
            alone = user("", prefix, None, one.subscribe_where)
            reachable = any(
                may_see(alone, topic, region) and may_publish(publisher, topic, region)
                for topic, region in EVERY
                for publisher in users.values()
            )
            assert ((name, prefix) in told) == (not reachable), (name, prefix, users)


def test_pairs_are_told_in_words() -> None:
    users = {
        "audit": user("", "quotes"),
        "feed": user("quotes", ""),
        "reader": user("", "quotes/eu", None, "region = 'eu'"),
        "twin": user("", "quotes/eu", None, "region = 'eu'"),
        "idle": user(),
        "odd": user("x", "", "a = 1 AND a = 2"),
    }
    found = rights.of_users(users, "u.json")
    assert [(f.severity, f.kind, f.where) for f in found] == [
        ("warning", "no rights", "u.json: idle"),
        ("error", "contradictory", "u.json: odd"),
        ("warning", "sees more", "u.json: reader"),
        ("note", "sees more", "u.json: reader"),
    ]
    assert found[2].what.startswith(
        "user audit sees topic quotes/eu where users reader, twin are narrowed to region = 'eu'"
    )


@pytest.mark.parametrize("seed", range(30))
def test_changed_rights_are_those_of_every_publication(seed: int) -> None:
    draw = random.Random(seed)
    old, new = drawn(draw), drawn(draw)
    told = {(f.value["user"], f.value["may"]): f.kind for f in differences.of_users(old, new, "u")}
    for name in old:
        for verb, may in (("see", may_see), ("publish", may_publish)):
            before = {each for each in EVERY if may(old[name], *each)}
            after = {each for each in EVERY if may(new[name], *each)}
            kind = (
                None if before == after
                else "more" if before < after
                else "less" if after < before
                else "other"
            )  # fmt: skip
            assert told.get((name, verb)) == kind, (name, verb)
