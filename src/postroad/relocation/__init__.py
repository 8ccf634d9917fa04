"""Relocation: publishers move to the broker that suits their subscribers (POP and GRAPE).

A relocation is a layer above a routing scheme, written out in one table: what a scenario calls
it, its parameters, and the router for each scheme that it can stand on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from postroad.errors import InputError
from postroad.model import BrokerId
from postroad.overlay import Overlay
from postroad.relocation import grape, migration, on_popsub, pop
from postroad.routing import SCHEMES, TreePlan
from postroad.routing.base import Interests, Message, Plan, Router
from postroad.routing.pool import FilterPool


@dataclass(frozen=True)
class Relocation:
    """One row of the table."""

    config: type[Any]
    routers: dict[str, Callable[[Any, int, BrokerId, Any, FilterPool], Router]]
    messages: tuple[type[Message], ...]  # besides those of the scheme


RELOCATIONS: dict[str, Relocation] = {
    "pop": Relocation(
        pop.Config,
        {"advertisement_forwarding": pop.Pop, "popsub": on_popsub.PopOnPopSub},
        (*migration.MESSAGES, pop.TraceResult, pop.RelocationRequest, pop.RelocationAnswer),
    ),
    "grape": Relocation(
        grape.Config,
        {"advertisement_forwarding": grape.Grape, "popsub": on_popsub.GrapeOnPopSub},
        (*migration.MESSAGES, grape.TraceRequest, grape.TraceAnswer),
    ),
}


def all_messages() -> list[type[Message]]:
    """The messages of every scheme and relocation, each once."""
    schemes = (message for scheme in SCHEMES.values() for message in scheme.messages)
    more = (message for relocation in RELOCATIONS.values() for message in relocation.messages)
    return list(dict.fromkeys((*schemes, *more)))


def check(name: str, scheme: str, config: Any) -> None:
    """Complain if the relocation cannot stand on this scheme."""
    routers = RELOCATIONS[name].routers
    if scheme not in routers:
        raise InputError(
            f"relocation {name!r} cannot stand on {scheme!r}",
            remedy=f"use one of: {', '.join(routers)}",
        )


def plan(name: str, relocation: Any, scheme: str, overlay: Overlay, config: Any, seed: int) -> Plan:
    """The plan of a scheme under a relocation with these parameters."""
    check(name, scheme, config)
    router_class = RELOCATIONS[name].routers[scheme]

    def router(broker: BrokerId, config: Any, pool: FilterPool) -> Router:
        return router_class(relocation, seed, broker, config, pool)

    below = SCHEMES[scheme].plan(overlay, Interests(), config, seed)
    assert isinstance(below, TreePlan)
    return replace(below, router_class=router)
