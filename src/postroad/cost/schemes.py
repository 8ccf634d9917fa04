"""Kyra's and PopSub's expected traffic in closed form, for networks of any size.

**Kyra**: n servers in cliques of c, each server with the zone of one c-th of the content. A pattern
lies in one zone. Who subscribes to it tells the proxy server of its clique, unless it is that; the
m = n/c proxy servers of the zone are a tree of subscription forwarding, in which one wants the
pattern with chance 1 - (1 - σ)^c. A publication goes to the proxy server of the publisher's clique,
along the tree, and from proxy servers to the servers that want it, except to the publisher's own.
The trees are taken to have grown breadth-first with the network's mean fan-out.

**PopSub** with direct delivery: a share of the publications is popular and goes over the tree, the
rest straight from the publisher's broker to each broker that wants it. Subscriptions travel one by
one, equal ones too, wherever someone beyond has advertised; advertisements each for itself.

Brokers are independent of each other, as in the model of subscription forwarding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from postroad.cost import forwarding, shapes
from postroad.cost.estimate import Chances
from postroad.cost.shapes import FloatArray, Links
from postroad.cost.variants import VariantEstimate, summed_up
from postroad.errors import InputError

SCHEMES = ("kyra", "popsub")
Cost = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class SchemeTraffic:
    """Messages of one pattern by σ, of one publication by μ, and besides for each pattern."""

    subscriptions: Cost
    publications: Cost
    besides: float = 0.0


def kyra(brokers: float, fanout: float, clique: int) -> SchemeTraffic:
    if clique < 1 or brokers < 2 * clique:
        raise InputError(
            f"cliques of {clique} among {brokers:g} brokers",
            remedy="let there be two cliques at least, of a server or more",
        )
    cliques = brokers / clique
    tree = shapes.mean_fanout(fanout, cliques)
    other = 1 - 1 / clique  # the chance that a server is not the proxy server itself

    def subscriptions(sigma: FloatArray) -> FloatArray:
        within = brokers * sigma * other
        return within + forwarding.subscription_traffic(tree, forwarding.some(sigma, clique))

    def publications(mu: FloatArray) -> FloatArray:
        notices = mu * (brokers - cliques - other)
        between = forwarding.publication_traffic(tree, forwarding.some(mu, clique))
        return other + between + notices

    return SchemeTraffic(subscriptions, publications)


def popsub(links: Links, popular: float, advertise: float) -> SchemeTraffic:
    share = float(forwarding.check_probability("popular", popular))
    chance = float(forwarding.check_probability("advertise", advertise))
    brokers = float(links.brokers)
    nodes, below = links.nodes[1:], links.subtree[1:]
    above = brokers - below
    # Links that one subscription crosses, by a broker drawn with equal chances.
    crossed = below * forwarding.some(chance, above) + above * forwarding.some(chance, below)
    ways = float(nodes @ crossed)

    def subscriptions(sigma: FloatArray) -> FloatArray:
        return sigma * ways

    def publications(mu: FloatArray) -> FloatArray:
        over_tree = forwarding.publication_traffic(links, mu)
        return share * over_tree + (1 - share) * mu * (brokers - 1)

    return SchemeTraffic(subscriptions, publications, chance * brokers * (brokers - 1))


def of_network(
    scheme: str, brokers: float, costs: SchemeTraffic, patterns: Chances, issued: Chances
) -> VariantEstimate:
    """The whole answer; what one broker sends is not part of it."""
    asked = float(patterns.counts @ costs.subscriptions(patterns.values))
    sent = float(issued.counts @ costs.publications(issued.values))
    return summed_up(scheme, brokers, patterns, issued, asked, sent, costs.besides)
