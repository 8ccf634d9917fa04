"""The tables of docs/protocols.md: routers are put into each state and given each input."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from postroad.filters import parse
from postroad.model import Advertisement, Subscription
from postroad.overlay import from_parents
from postroad.relocation.migration import (
    Migration,
    MigrationAbort,
    MigrationComplete,
    MigrationUpdate,
)
from postroad.routing import SCHEMES, advertisement_forwarding
from postroad.routing.base import (
    Advertise,
    AdvertisementMessage,
    Effect,
    Input,
    Interests,
    LinkDown,
    LinkUp,
    Migrate,
    Move,
    Note,
    Paused,
    Received,
    Resume,
    Send,
    Subscribe,
)
from postroad.routing.kyra import Config, Done, Flushed, HandOver, Kyra, Moving, Ready, Seated
from postroad.routing.pool import FilterPool
from postroad.routing.tables import LOCAL

PAGE = Path(__file__).parents[2] / "docs" / "protocols.md"
SEAT, OLD, NEW = 1, 1, 2  # a seat moves from one server to another; server 0 sends to it
A, B = 1, 2  # neighbours of broker 0: the publisher comes from behind A and goes behind B

Steps = list[Callable[[Any], list[Effect]]]


def stepped(*inputs: Input) -> Steps:
    return [lambda router, each=each: router.step(each, 0) for each in inputs]


# The hand-over of a seat.


def seat_router(server: int) -> Kyra:
    interests = Interests([(n, parse(f"x = {n}")) for n in range(3)])
    plan = SCHEMES["kyra"].plan(from_parents([0, 0, 0]), interests, Config(), 0)
    router = plan.router(server)
    assert isinstance(router, Kyra)
    for peer in {0, 1, 2} - {server}:
        router.step(LinkUp(peer), 0)
    return router


def seat_state(router: Kyra) -> str:
    if SEAT in router.leaving:
        return f"leaving, {len(router.leaving[SEAT][1])} to answer"
    if SEAT in router.seats:
        return "here"
    move = router.moves.get(SEAT)
    if move is None:
        return "elsewhere"
    known = [word for word, heard in (("done", move.done), ("ready", move.resumed)) if heard]
    return ", ".join(["moving", *known])


HAND_OVER = Received(HandOver(SEAT, NEW), OLD)
MOVING = Received(Moving(SEAT, NEW, 1), OLD)
DONE, READY = Received(Done(SEAT), OLD), Received(Ready(SEAT), NEW)
WANTS = Subscribe(Subscription("s", parse("x = 1")))  # in the seat's zone: it is told of it
SEAT_STATES: list[tuple[int, Steps]] = [
    (OLD, []),
    (OLD, stepped(HAND_OVER)),
    (OLD, stepped(HAND_OVER, Received(Flushed(SEAT), 0))),
    (0, []),
    (0, stepped(MOVING, WANTS)),
    (0, stepped(MOVING, WANTS, DONE)),
    (0, stepped(MOVING, WANTS, READY)),
    (NEW, stepped(MOVING, WANTS)),
]
SEAT_INPUTS: list[tuple[str, Input]] = [
    ("`hand_over`", HAND_OVER),
    ("`moving`", MOVING),
    ("`flushed`", Received(Flushed(SEAT), 0)),
    ("`flushed` of the other", Received(Flushed(SEAT), NEW)),
    ("`seated`", Received(Seated(SEAT, (), (), ()), OLD)),
    ("`done`", DONE),
    ("`ready`", READY),
    ("a client subscribes", WANTS),
]


def seat_rows() -> list[list[str]]:
    rows = []
    for server, way in SEAT_STATES:
        for name, input in SEAT_INPUTS:
            # The tables go to the new host alone, words about them to nobody who has them.
            if (name == "`seated`") != (server == NEW) or (server == OLD and name == "`moving`"):
                continue
            router = seat_router(server)
            for step in way:
                step(router)
            if input is WANTS and "s" in router.local.filter_of:
                continue
            before = seat_state(router)
            effects = router.step(input, 0)
            router.check()
            who = {0: "a server that sends to it", OLD: "the old host", NEW: "the new host"}[server]
            rows.append([f"{before} ({who})", name, seat_state(router), done(effects, str)])
    return rows


# The migration of a publisher.


def path_router() -> Migration:
    router = Migration(0, advertisement_forwarding.Config(), FilterPool())
    for input in (LinkUp(A), LinkUp(B), Subscribe(Subscription("s", parse("x > 0")))):
        router.step(input, 0)
    return router


def path_state(router: Migration) -> str:
    place = {LOCAL: "here", A: "behind A", B: "behind B"}
    if "P" not in router.advertisements:
        return "unknown"
    parts = [place[router.advertisements["P"][1]]]
    if "P" in router.leaving:
        parts.append("leaving, paused" if router.leaving["P"].paused else "leaving")
    if "P" in router.arriving:
        parts.append(f"soon {place[router.arriving['P'][1]]}")
    return ", ".join(parts)


FIRST = Advertisement("P", parse("x > 0"), "p", 0)
NEXT = Advertisement("P", parse("x > 0"), "p", 1)
BEHIND_A = Received(AdvertisementMessage(FIRST), A)
UPDATE = Received(MigrationUpdate(NEXT), B)
PAUSED = Paused("P", 1)
LEAVE: Steps = [*stepped(Advertise(FIRST)), lambda router: router.move("P", B)]
PATH_STATES: list[Steps] = [
    [],
    stepped(BEHIND_A),
    stepped(BEHIND_A, UPDATE),
    stepped(BEHIND_A, Migrate(NEXT)),
    LEAVE,
    [*LEAVE, *stepped(PAUSED)],
    [*LEAVE, *stepped(UPDATE)],
]
PATH_INPUTS: list[tuple[str, Input]] = [
    ("`Migrate` of the publisher", Migrate(NEXT)),
    ("`Paused` of the publisher", PAUSED),
    ("`migration_update` from B", UPDATE),
    ("`migration_complete` from A", Received(MigrationComplete("P", 1, False), A)),
    ("`migration_abort` from B", Received(MigrationAbort("P", 1), B)),
    ("link to A down", LinkDown(A)),
    ("link to B down", LinkDown(B)),
]


def path_rows() -> list[list[str]]:
    rows = []
    for way in PATH_STATES:
        for name, input in PATH_INPUTS:
            router = path_router()
            for step in way:
                step(router)
            router.check()
            before = path_state(router)
            effects = router.step(input, 0)
            router.check()
            row = [before, name, path_state(router), done(effects, {A: "A", B: "B"}.__getitem__)]
            rows.append(row)
    return rows


# The page.


def done(effects: list[Effect], name: Callable[[int], str]) -> str:
    """Effects in few words: each kind of message with whom it goes to."""
    to: dict[str, list[str]] = {}
    for effect in effects:
        match effect:
            case Send(peer, message):
                to.setdefault(f"`{message.kind}` to", []).append(name(peer))
            case Resume(_, _, cut):
                to["the publisher goes on" + (" after a grace" if cut else "")] = []
            case Move() | Note():
                to["dropped" if isinstance(effect, Note) else "the publisher is told"] = []
            case _:
                raise AssertionError(effect)
    return "; ".join(f"{what} {', '.join(whom)}".strip() for what, whom in to.items())


def table(rows: list[list[str]]) -> str:
    """Those that change or send something."""
    listed = [
        row for row in rows if row[0].split(" (")[0] != row[2] or row[3] not in ("", "dropped")
    ]
    tried = ", ".join(dict.fromkeys(row[1] for row in rows))
    lines = ["| state | input | next state | sends |", "|---|---|---|---|"]
    return "\n".join(
        [*lines, *(f"| {' | '.join(row)} |" for row in listed), "", f"Tried: {tried}."]
    )


TEXT = """\
# Protocol tables

Made from the routers by `make golden` (`tests/golden/test_protocols.py`): each is put into each
state and given each input. A pair that is not listed was tried, too: it changes no state and sends
nothing.

## The hand-over of a seat (Kyra)

Servers 0, 1 and 2 are a clique; seat 1 moves from server 1 to server 2. The states are those of
one server; the idea is in [schemes.md](schemes.md) under `kyra`. While a seat is *moving*, what a
server has for it is held back; it is sent on when the old host is done and the new one ready. Not
tried is what cannot be: `seated` goes to the new host alone, which then waits for nothing else, and
`moving` never comes to the old host.

{seats}

## The migration of a publisher (POP and GRAPE)

The states are those of a broker between neighbours A and B: where the publisher is, and where it
will soon be. It moves from behind A (or here) to behind B (or here); a local client subscribes to
what it publishes. [relocation.md](relocation.md) has the steps in order.

{path}
"""


def page() -> str:
    return TEXT.format(seats=table(seat_rows()), path=table(path_rows()))


def test_protocol_tables_are_those_of_the_routers() -> None:
    if os.environ.get("POSTROAD_GOLDEN") == "rewrite":
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()
