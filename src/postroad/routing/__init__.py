"""The routing schemes, written out in one table.

A scheme has two parts. Its *plan* is computed once from the overlay and the interests (for a
tree scheme simply the tree); its *router*, one per broker, is made from the plan. Plans may be
computed anywhere; routers run in the simulator and in live brokers alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from postroad.model import BrokerId, TimeUs
from postroad.overlay import Overlay, small_world
from postroad.routing import (
    advertisement_forwarding,
    beaconvey,
    direct,
    fbr,
    flooding,
    hierarchical,
    joining,
    kyra,
    mbr,
    mix,
    popsub,
    ring,
    scribe,
    subscription_forwarding,
)
from postroad.routing.base import (
    AdvertisementMessage,
    Interests,
    Message,
    Plan,
    PublicationMessage,
    Router,
    SubscriptionMessage,
    UnadvertisementMessage,
    UnsubscriptionMessage,
)
from postroad.routing.pool import FilterPool


@dataclass(frozen=True)
class TreePlan(Plan):
    """The plan of every tree scheme: each broker talks to its neighbours in the tree."""

    overlay: Overlay
    router_class: Callable[[BrokerId, Any, FilterPool], Router]
    config: Any
    pool: FilterPool
    seed: int
    _paths: dict[BrokerId, list[TimeUs]] = field(default_factory=dict)

    def router(self, broker: BrokerId) -> Router:
        return self.router_class(broker, self.config, self.pool)

    def links(self) -> Sequence[Mapping[BrokerId, TimeUs]]:
        return self.overlay.neighbours()

    def direct_us(self, source: BrokerId, target: BrokerId) -> TimeUs:
        """As the overlay knows it; otherwise along the tree."""
        if self.overlay.direct_us is not None:
            return int(self.overlay.direct_us[source, target])
        if source not in self._paths:
            self._paths[source] = self.overlay.path_us(source)
        return self._paths[source][target]


@dataclass(frozen=True)
class Scheme:
    """One row of the table: what it is called, promises, reads and needs."""

    summary: str
    paper: str
    promise: Literal["exact", "best_effort"]
    config: type[Any]
    plan: Callable[[Overlay, Interests, Any, int], Plan]  # the last is a seed
    filters_traffic: bool  # whether no publication crosses a link that nobody behind it wants
    messages: tuple[type[Message], ...]  # all that its routers send
    # ring: plans its own links over any network; mesh: between brokers that can all reach others
    overlay: Literal["tree", "ring", "mesh"] = "tree"
    advertisements: bool = False  # whether publishers must say first what they will publish
    # Whether routes are what clients and neighbours have said, so that they can be kept on disk
    # and said again, and live brokers may survive crashes, have spare links, come and go.
    durable: bool = False
    # What `postroad plan` wrote for it, and the latency of links that the plan does not know.
    read_plan: Callable[[Path, TimeUs], Overlay] | None = None
    hand_over: Callable[[BrokerId, BrokerId], Message] | None = None  # of a seat, to a server
    parts: Callable[[Any], Sequence[str]] | None = None  # the schemes that parameters put together
    joins: Callable[[Any], bool] = lambda config: False  # whether brokers come and go by messages

    def grows(self, config: Any) -> bool:
        """Whether live brokers may come and go under these parameters."""
        return self.of(config).durable or self.joins(config)

    def of(self, config: Any) -> Scheme:
        """This row with what it can do under these parameters."""
        if self.parts is None:
            return self
        rows = [SCHEMES[name] for name in self.parts(config)]
        on_tree = all(row.overlay == "tree" for row in rows)
        return replace(
            self,
            overlay="tree" if on_tree else self.overlay,
            durable=all(row.durable for row in rows),
            advertisements=any(row.advertisements for row in rows),
        )


def _joins(config: Any) -> bool:
    return bool(config.membership == "messages")


def _tree(
    router_class: Callable[[BrokerId, Any, FilterPool], Router], covering: bool = False
) -> Callable[..., Plan]:
    """With `covering`, a parameter of that name says whether covered filters are suppressed."""

    def plan(overlay: Overlay, interests: Interests, config: Any, seed: int = 0) -> Plan:
        pool = FilterPool(covering and config.covering)
        return TreePlan(overlay, router_class, config, pool, seed)

    return plan


def _popsub(overlay: Overlay, interests: Interests, config: Any, seed: int = 0) -> Plan:
    def router(broker: BrokerId, config: popsub.Config, pool: FilterPool) -> Router:
        return popsub.PopSub(broker, config, pool, seed)

    return TreePlan(overlay, router, config, FilterPool(config.covering), seed)


def _hierarchical(overlay: Overlay, interests: Interests, config: Any, seed: int = 0) -> Plan:
    parents = hierarchical.parents(overlay, config)

    def router(broker: BrokerId, config: hierarchical.Config, pool: FilterPool) -> Router:
        return hierarchical.Hierarchical(broker, config, pool, parents[broker])

    return TreePlan(overlay, router, config, FilterPool(config.covering), seed)


def _fbr(overlay: Overlay, interests: Interests, config: Any, seed: int = 0) -> Plan:
    plain = subscription_forwarding.Config()
    router = subscription_forwarding.SubscriptionForwarding
    return TreePlan(fbr.tree(overlay), router, plain, FilterPool(), seed)


_SUBSCRIBING = (PublicationMessage, SubscriptionMessage, UnsubscriptionMessage)
_ADVERTISING = (*_SUBSCRIBING, AdvertisementMessage, UnadvertisementMessage)
_KYRA = "Cao, Singh: Efficient Event Routing in Content-based Publish-Subscribe Service Networks"

SCHEMES: dict[str, Scheme] = {
    "flooding": Scheme(
        summary="every publication to every broker; filters stay local",
        paper="Castelli, Costa, Picco: Modeling the Communication Costs of Content-based Routing",
        promise="exact",
        config=flooding.Config,
        plan=_tree(flooding.Flooding),
        filters_traffic=False,
        messages=(PublicationMessage,),
        durable=True,
    ),
    "subscription_forwarding": Scheme(
        summary="subscriptions flood; publications follow them back",
        paper="Castelli, Costa, Picco: Modeling the Communication Costs of Content-based Routing",
        promise="exact",
        config=subscription_forwarding.Config,
        plan=_tree(subscription_forwarding.SubscriptionForwarding, covering=True),
        filters_traffic=True,
        messages=_SUBSCRIBING,
        durable=True,
    ),
    "hierarchical": Scheme(
        summary="subscriptions go up to a root, publications too, and down where they are wanted",
        paper="Castelli, Costa, Picco: Modeling the Communication Costs of Content-based Routing",
        promise="exact",
        config=hierarchical.Config,
        plan=_hierarchical,
        filters_traffic=False,
        messages=_SUBSCRIBING,
    ),
    "advertisement_forwarding": Scheme(
        summary="subscriptions travel only towards advertisements they intersect",
        paper="Salehi, Zhang, Jacobsen: PopSub (its baseline)",
        promise="exact",
        config=advertisement_forwarding.Config,
        plan=_tree(advertisement_forwarding.AdvertisementForwarding, covering=True),
        filters_traffic=True,
        messages=_ADVERTISING,
        advertisements=True,
        durable=True,
    ),
    "popsub": Scheme(
        summary="popular publications over the tree, the others direct, batched or gossiped",
        paper="Salehi, Zhang, Jacobsen: Popularity-Based Publication Routing (PopSub)",
        promise="exact",
        config=popsub.Config,
        plan=_popsub,
        filters_traffic=True,
        messages=(AdvertisementMessage, UnadvertisementMessage, *popsub.messages.MESSAGES),
        advertisements=True,
    ),
    "beaconvey": Scheme(
        summary="ranges of a small-world ring, divided among subscribing fingers",
        paper="BeaConvey: Co-Design of Overlay and Routing for Topic-based Publish/Subscribe",
        promise="exact",
        config=beaconvey.Config,
        plan=joining.plan(beaconvey.BeaConvey, beaconvey.JoiningBeaConvey),
        filters_traffic=False,
        overlay="ring",
        messages=(ring.MembershipMessage, beaconvey.RangeMessage, *joining.MESSAGES),
        read_plan=small_world.load,
        joins=_joins,
    ),
    "scribe": Scheme(
        summary="a tree per topic from its subscribers to a rendezvous point on a ring",
        paper="BeaConvey: Co-Design of Overlay and Routing for Topic-based Publish/Subscribe",
        promise="exact",
        config=scribe.Config,
        plan=joining.plan(scribe.Scribe, scribe.JoiningScribe, told=False),
        filters_traffic=False,
        overlay="ring",
        messages=(
            ring.MembershipMessage,
            scribe.UpMessage,
            scribe.DownMessage,
            *scribe.JOINING,
            *joining.MESSAGES,
        ),
        read_plan=small_world.load,
        joins=_joins,
    ),
    "iscribe": Scheme(
        summary="the ways from a topic's rendezvous point on a ring to its subscribers",
        paper="BeaConvey: Co-Design of Overlay and Routing for Topic-based Publish/Subscribe",
        promise="exact",
        config=scribe.Config,
        plan=joining.plan(scribe.InvertedScribe, scribe.JoiningInvertedScribe),
        filters_traffic=False,
        overlay="ring",
        messages=(
            ring.MembershipMessage,
            scribe.UpMessage,
            scribe.TargetsMessage,
            *joining.MESSAGES,
        ),
        read_plan=small_world.load,
        joins=_joins,
    ),
    "kyra": Scheme(
        summary="subscriptions move within cliques; a filtered tree per zone of the content",
        paper=_KYRA,
        promise="exact",
        config=kyra.Config,
        plan=kyra.plan,
        filters_traffic=False,
        overlay="mesh",
        messages=kyra.MESSAGES,
        read_plan=kyra.read_plan,
        hand_over=kyra.HandOver,
    ),
    "fbr": Scheme(
        summary="subscription forwarding on the minimum spanning tree",
        paper=f"{_KYRA} (its baseline)",
        promise="exact",
        config=fbr.Config,
        plan=_fbr,
        filters_traffic=True,
        messages=_SUBSCRIBING,
        durable=True,
    ),
    "mbr": Scheme(
        summary="multicast groups of content that much the same servers want",
        paper=f"{_KYRA} (its baseline)",
        promise="exact",
        config=mbr.Config,
        plan=mbr.plan,
        filters_traffic=False,
        overlay="mesh",
        messages=(*direct.MESSAGES, *mbr.MESSAGES),
    ),
    "unicast": Scheme(
        summary="a copy from the publisher's server to each matching server",
        paper=f"{_KYRA} (its baseline)",
        promise="exact",
        config=direct.Config,
        plan=direct.plan(direct.Unicast),
        filters_traffic=False,
        overlay="mesh",
        messages=direct.MESSAGES,
    ),
    "broadcast": Scheme(
        summary="a copy from the publisher's server to every server",
        paper=f"{_KYRA} (its baseline)",
        promise="exact",
        config=direct.Config,
        plan=direct.plan(direct.Broadcast),
        filters_traffic=False,
        overlay="mesh",
        messages=direct.MESSAGES,
    ),
    "ideal_multicast": Scheme(
        summary="one copy over each link that the shortest paths to matching servers share",
        paper=f"{_KYRA} (its baseline)",
        promise="exact",
        config=direct.Config,
        plan=direct.plan(direct.IdealMulticast, direct.PathsPlan),
        filters_traffic=False,
        overlay="mesh",
        messages=direct.MESSAGES,
    ),
    "match_early": Scheme(
        summary="matched once at the publisher; the list of servers is split hop by hop",
        paper=f"{_KYRA} (its future work)",
        promise="exact",
        config=direct.Config,
        plan=direct.plan(direct.MatchEarly),
        filters_traffic=False,
        overlay="mesh",
        messages=direct.MESSAGES,
    ),
}
SCHEMES["mix"] = Scheme(
    summary="parts of the content, each with the scheme that suits it",
    paper="none: the schemes above, put together",
    promise="exact",
    config=mix.Config,
    plan=mix.plan,
    filters_traffic=False,
    overlay="mesh",
    messages=mix.messages(
        message
        for name, scheme in SCHEMES.items()
        if name not in mix.UNABLE
        for message in scheme.messages
    ),
    parts=lambda config: [part.scheme for part in config.read()],
)
