"""What a network must keep to, as the comparison file's `[limits]` says it, and who does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from postroad.comparison.rows import DURABLE, PLACED, Row
from postroad.errors import InputError
from postroad.routing import SCHEMES

if TYPE_CHECKING:
    from postroad.comparison.verdict import Outcome

NOT_LIVE = {
    "mbr": "it plans groups by who wants what, which live brokers do not know beforehand",
    "ideal_multicast": "it needs routers that copy publications",
}


@dataclass(frozen=True)
class Requirements:
    state: float | None = None  # routing entries at the fullest broker
    broker_per_s: float | None = None  # messages that the busiest broker sends and receives
    link_per_s: float | None = None  # publication messages over the busiest link, one way
    delay_p99_ms: float | None = None
    control_per_s: float | None = None  # control messages in the network
    survives_crashes: bool = False  # whether only schemes that can have a `store` will do
    given_links: bool = False  # whether publications may only cross links of the overlay
    runs_live: bool = False  # whether live brokers must be able to do what was compared

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and value < 0:
                raise InputError(f"{field.name} is {value!r}", remedy="give a number of at least 0")

    @property
    def any(self) -> bool:
        return self != Requirements()


def reason_out(
    outcome: Outcome, limits: Requirements, rate_per_s: float, per_change: float
) -> str | None:
    """Why a row does not keep within the limits, if it does not: the first reason.

    `rate_per_s` is how many publications the network has in a second, `per_change` how many there
    are for each change of a subscription.
    """
    return next(_reasons(outcome, limits, rate_per_s, per_change), None)


def ruled_out(row: Row | Outcome, limits: Requirements) -> Iterator[str]:
    """Why a row does not keep within the limits whatever the workload. A mix is not known before it
    has run."""
    if PLACED in row.parameters:
        yield "publishers would have to connect elsewhere (`postroad advise publishers`)"
    if limits.survives_crashes and not survives(row):
        yield "no store, so a crash may lose what was acknowledged"
    if limits.runs_live and row.scheme in NOT_LIVE:
        yield NOT_LIVE[row.scheme]


def _reasons(
    outcome: Outcome, limits: Requirements, rate_per_s: float, per_change: float
) -> Iterator[str]:
    yield from ruled_out(outcome, limits)
    outside = outcome.figure("outside").mean
    if limits.given_links and outside:
        yield f"{outside:,.4g} messages a publication are sent outside the given links"
    for limit, name, factor, text in (
        (limits.state, "state_max", 1.0, "routing entries at a broker"),
        (limits.broker_per_s, "stress_max", rate_per_s, "messages a second at a broker"),
        (limits.link_per_s, "link_max", rate_per_s, "messages a second over a link"),
        (limits.delay_p99_ms, "delay_p99_ms", 1.0, "ms to 99 deliveries in 100"),
        (
            limits.control_per_s, "control_per_change", rate_per_s / per_change,
            "control messages a second",
        ),
    ):  # fmt: skip
        if limit is not None:
            value = outcome.figure(name).mean * factor
            if value > limit:
                yield f"{value:,.4g} {text}, at most {limit:,.4g} wanted"


def survives(row: Row | Outcome) -> bool:
    scheme = SCHEMES[row.scheme]
    if DURABLE in row.parameters:  # a mix that is yet to be found
        return True
    if scheme.parts is not None:
        scheme = scheme.of(scheme.config(**row.parameters))
    return scheme.durable and row.relocation is None
