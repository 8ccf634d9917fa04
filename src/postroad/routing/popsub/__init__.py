"""PopSub (Salehi, Zhang, Jacobsen: Popularity-Based Publication Routing for Content-based
Pub/Sub), on top of advertisement-based forwarding.

Idea: a broker estimates for each link and advertisement the gain of forwarding one publication
one hop: the matching subscriptions behind the link over their average distance. Every period a
publisher's broker fills a share φ of its capacity τ with the entries of highest gain; those are
popular and travel over the tree. The rest travels in another way, so that the tree carries what
is worth most: `direct` (straight to the subscribers' brokers), `batching` (together over the
tree), or `gossip` (among the subscribers' brokers). `tree` keeps everything on the tree: the
baseline, with gains measured.

State: each subscription with the link it came over, its origin and distance; per link and
advertisement the gain, the rate and the popularity; buffers; gossip groups (gossip.py). Messages:
those of advertisement-based forwarding, with subscriptions that carry origin and hop count, and
`direct`, `batch`, `switch`, `gossip`.

How we read the paper, and where we differ:
- Subscriptions propagate one by one (section 4.1 asks for it), also when filters are equal;
  tables are still kept per filter.
- Section 4.2 evaluates all table entries, so what a publisher's broker forwards for others fills
  its capacity too; `entries = "own"` fills it with the broker's own advertisements alone. Only its
  own are affected either way: brokers further on forward without regard to popularity (sections
  4.4 and 4.5), so a broker that has no advertisements has nothing to evaluate.
- `rule = "printed"` is Algorithm 1: an entry is popular while what was filled before it is below
  τ·φ. `rule = "prose"` is the paragraph below it: entries are popular until one would exceed τ·φ,
  and all whose gain is not above that one's are unpopular.
- `covering`: subscriptions propagate all the same (section 4.1), but of those that came over one
  link a broker matches publications only against those that no other from there covers. For direct
  delivery a publisher's broker needs the origin of every match, and so all of them.
- `throughputs_per_s`: each broker draws its τ from this set (section 5.1 speaks of a set of
  measurements).
- A rate is what was offered to an entry, popular or not; rates of tree traffic alone would make
  every demoted entry look cheap and Algorithm 1 thrash.
- With no popular entry there is no g_min: a buffer then waits for its timeout.
- When an entry becomes popular again its buffer is sent before the next publication, so that
  batching keeps the publisher's order.
- The publication that carries switchToGossip would reach only its own matches. We send the flag
  as a message of its own to all brokers whose subscriptions intersect the advertisement, and
  straight to those that subscribe later; who leaves waits until it has what was gossiped, also
  when the advertisement is withdrawn.
- `reorder_s` is the buffer that section 4.5 suggests: each broker holds a publication for so long
  before it delivers, and delivers in the publisher's order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import msgspec

from postroad import draws
from postroad.errors import InputError
from postroad.filters import Filter, literal, matches, parse
from postroad.model import (
    Advertisement,
    AdvertisementId,
    BrokerId,
    Publication,
    Subscription,
    SubscriptionId,
    TimeUs,
)
from postroad.routing import advertisement_forwarding
from postroad.routing.advertisement_forwarding import meet
from postroad.routing.base import CancelTimer, Deliver, Effect, Message, Note, Send, SetTimer
from postroad.routing.pool import FilterPool, Offer, Offers
from postroad.routing.popsub.gossip import CACHE_MAX, HOME_ROUNDS, Group
from postroad.routing.popsub.messages import (
    EPOCH,
    Batch,
    CountedSubscription,
    CountedUnsubscription,
    DirectPost,
    Gossip,
    Post,
    Switch,
    TreePost,
)
from postroad.routing.tables import LOCAL, Outgoing

MECHANISMS = ("direct", "batching", "gossip", "tree")
ENTRIES = ("all", "own")
RULES = ("printed", "prose")
SECOND = 1_000_000
Key = tuple[BrokerId, AdvertisementId]
GroupKey = tuple[AdvertisementId, int]  # and the epoch in which it began


@dataclass(frozen=True, slots=True)
class Config:
    """The paper's defaults; `throughput_per_s` is τ, which the paper measured and does not say."""

    unpopular: str = "direct"
    phi: float = 0.05
    entries: str = "all"
    rule: str = "printed"
    covering: bool = False
    throughput_per_s: float = 2500.0
    throughputs_per_s: list[float] = field(default_factory=list)
    reevaluate_s: float = 2.0
    hysteresis: float = 0.1
    batch_timeout_s: float = 3.0
    view: int = 10
    fanout: int = 2
    gossip_interval_s: float = 10.0
    reorder_s: float = 0.0
    priority: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name, choices in (("unpopular", MECHANISMS), ("entries", ENTRIES), ("rule", RULES)):
            if getattr(self, name) not in choices:
                raise InputError(
                    f"{name} is {getattr(self, name)!r}",
                    remedy=f"choose one of: {', '.join(choices)}",
                )
        if any(not rate > 0 for rate in self.throughputs_per_s):
            raise InputError(
                f"throughputs_per_s is {self.throughputs_per_s}", remedy="give rates above 0"
            )
        if not 0 < self.phi <= 1:
            raise InputError(f"phi is {self.phi}", remedy="give a share above 0, at most 1")
        for name in ("throughput_per_s", "reevaluate_s", "batch_timeout_s", "gossip_interval_s"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}", remedy="give more than 0")
        for name in ("view", "fanout"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", remedy="give 1 or more")
        for name in ("hysteresis", "reorder_s"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} is {getattr(self, name)}", remedy="give 0 or more")


@dataclass(slots=True)
class Gain:
    """One entry of the gain table: subscriptions behind a link that an advertisement meets."""

    count: int = 0
    hops: int = 0
    popular: bool = True
    rate: float = 0.0
    offered: int = 0
    gossiping: bool = False

    @property
    def ratio(self) -> float:
        """Subscriptions over their average distance."""
        return self.count * self.count / self.hops if self.hops else 0.0


class Entry(msgspec.Struct, frozen=True):
    """A subscription as a broker knows it."""

    filter: Filter
    source: BrokerId
    origin: BrokerId
    hops: int


Gains = dict[AdvertisementId, Gain]  # of one link


@dataclass(slots=True)
class Buffer:
    """Unpopular publications of one entry, waiting to be sent together."""

    posts: list[Post] = field(default_factory=list)
    gain: float = 0.0  # the sum of their gains when they came


class PopSub(advertisement_forwarding.AdvertisementForwarding):
    stateless = False

    def __init__(self, broker: BrokerId, config: Config, pool: FilterPool, seed: int = 0) -> None:
        super().__init__(broker, advertisement_forwarding.Config(), pool)
        self.popsub = config
        self.priority = (
            parse(f"class IN ({', '.join(map(literal, config.priority))})")
            if config.priority
            else None
        )
        self.seed = seed
        throughput = config.throughput_per_s
        if config.throughputs_per_s:
            throughput = draws.throughput(config.throughputs_per_s, seed, broker)
        self.capacity = throughput * config.phi
        self.uncovered: dict[BrokerId, Outgoing] = {}  # with covering, what each link asked for
        self.entries: dict[SubscriptionId, Entry] = {}
        self.ids: dict[tuple[Filter, BrokerId], dict[SubscriptionId, None]] = {}
        self.sent: dict[BrokerId, dict[SubscriptionId, None]] = {}
        self.gains: dict[BrokerId, Gains] = {}
        self.gains_changed = False
        self.met: dict[Filter, list[Offer]] = {}
        self._advertised: Offers | None = None
        self.gain_min: float | None = None
        self.buffers: dict[Key, Buffer] = {}
        self.groups: dict[GroupKey, Group] = {}
        self.evaluating = False
        self.draws_count = 0
        self.numbers: dict[AdvertisementId, int] = {}
        self.seen: dict[AdvertisementId, set[int]] = {}
        self.held: dict[AdvertisementId, dict[int, list[Deliver]]] = {}
        self.released: dict[AdvertisementId, int] = {}
        self.measures: dict[str, float] = {}
        self.direct_forwards: dict[int, int] = {}  # how many publications took so many sends

    # Links and subscriptions.

    def on_link_up(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        self.sent[peer] = {}
        self.gains[peer] = {}
        if self.popsub.covering:
            self.uncovered[peer] = Outgoing(self.pool)
        return super().on_link_up(peer, now)

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        if peer not in self.sent:
            return []
        effects: list[Effect] = []
        del self.sent[peer]
        del self.outgoing[peer]
        lost = [name for name, entry in self.entries.items() if entry.source == peer]
        for subscription_id in lost:
            effects += self._forget(subscription_id)
        del self.gains[peer]
        self.uncovered.pop(peer, None)
        for key in [key for key in self.buffers if key[0] == peer]:
            del self.buffers[key]
            effects.append(CancelTimer(_batch_timer(key)))
        gone = [name for name, (_, source) in self.advertisements.items() if source == peer]
        for advertisement_id in gone:
            effects += self.withdraw(advertisement_id, peer)
        return effects

    def on_subscribe(self, subscription: Subscription, now: TimeUs) -> list[Effect]:
        return self._learn(
            subscription.id, Entry(subscription.filter, LOCAL, self.broker, 0), subscription
        )

    def on_unsubscribe(self, subscription_id: SubscriptionId, now: TimeUs) -> list[Effect]:
        if subscription_id not in self.entries:
            return []
        return self._forget(subscription_id) + self._leave_unwanted_groups()

    def _learn(
        self, name: SubscriptionId, entry: Entry, subscription: Subscription | None = None
    ) -> list[Effect]:
        filter, source = entry.filter, entry.source
        self.entries[name] = entry
        names = self.ids.get((filter, source))
        if names is None:
            self.ids[filter, source] = {name: None}
        else:
            names[name] = None
        if subscription is not None:
            self.table.subscribe(subscription)
        elif names is None:
            self.table.add(filter, source)
        uncovered = self.uncovered.get(source)
        if uncovered is not None and filter not in uncovered:
            uncovered.add(filter)
        if filter not in self.towards:
            self._track([filter])
        effects = self._tell(name, entry)
        gains = self.gains.get(source)
        if gains is not None:
            for advertisement, towards in self._met(filter):
                if towards != source:
                    gain = self._count_gain(gains, entry, advertisement.id, 1)
                    if gain.gossiping:
                        effects += self._invite(advertisement.id, entry.origin)
        return effects

    def _met(self, filter: Filter) -> list[Offer]:
        """The advertisements that a filter intersects, found once until advertisements change."""
        offers = self.met.get(filter)
        if offers is None:
            if self._advertised is None:
                self._advertised = self.pool.offers(self.advertisements.values())
            offers = self.pool.meeting(filter, self._advertised)
            self.met[filter] = offers
        return offers

    def count_met(self, advertisement: Advertisement, source: BrokerId, step: int) -> list[Filter]:
        self.met.clear()  # whatever changes the advertisements counts them in or out
        self._advertised = None
        return super().count_met(advertisement, source, step)

    def _forget(self, name: SubscriptionId) -> list[Effect]:
        entry = self.entries.pop(name)
        effects: list[Effect] = []
        for peer, sent in self.sent.items():
            if name in sent:
                del sent[name]
                effects.append(Send(peer, CountedUnsubscription(name)))
        gains = self.gains.get(entry.source)
        if gains is not None:
            for advertisement, source in self._met(entry.filter):
                if source != entry.source:
                    self._count_gain(gains, entry, advertisement.id, -1)
        names = self.ids[entry.filter, entry.source]
        del names[name]
        if entry.source == LOCAL:
            self.table.unsubscribe(name)
        if not names:
            del self.ids[entry.filter, entry.source]
            if entry.source in self.uncovered:
                self.uncovered[entry.source].remove(entry.filter)
            if entry.source != LOCAL:
                self.table.remove(entry.filter, entry.source)
            self._track([entry.filter])
            if entry.filter not in self.towards:
                self.met.pop(entry.filter, None)
        return effects

    def _tell(self, name: SubscriptionId, entry: Entry) -> list[Effect]:
        """Pass a subscription on to the neighbours that lead to advertisements it meets."""
        onward: CountedSubscription | None = None  # one for all neighbours
        effects: list[Effect] = []
        for peer in self.towards[entry.filter]:
            sent = self.sent.get(peer)
            if sent is not None and peer != entry.source and name not in sent:
                sent[name] = None
                onward = onward or CountedSubscription(
                    name, entry.filter, entry.origin, entry.hops + 1
                )
                effects.append(Send(peer, onward))
        return effects

    def refresh(self, filters: list[Filter], peers: list[BrokerId]) -> list[Effect]:
        """An advertisement came from these peers, or went: pass on, or withdraw, what it met."""
        self._track(filters)
        effects: list[Effect] = []
        for peer in peers:
            sent = self.sent[peer]
            for filter in filters:
                wanted = peer in self.towards.get(filter, {})
                for source in list(self.table.sources.get(filter, ())):
                    if source == peer:
                        continue
                    for name in self.ids[filter, source]:
                        if wanted and name not in sent:
                            sent[name] = None
                            entry = self.entries[name]
                            effects.append(
                                Send(
                                    peer,
                                    CountedSubscription(name, filter, entry.origin, entry.hops + 1),
                                )
                            )
                        elif not wanted and name in sent:
                            del sent[name]
                            effects.append(Send(peer, CountedUnsubscription(name)))
        return effects

    # Advertisements and gains.

    def announce(self, advertisement: Advertisement, source: BrokerId) -> list[Effect]:
        if advertisement.id in self.advertisements:
            return super().announce(advertisement, source)
        if source == LOCAL:
            self.numbers[advertisement.id] = advertisement.epoch * EPOCH
        effects = super().announce(advertisement, source)
        self.count_gains(advertisement, source)
        return effects

    def withdraw(self, advertisement_id: AdvertisementId, source: BrokerId) -> list[Effect]:
        effects: list[Effect] = []
        if source == LOCAL:
            for key in [key for key in self.buffers if key[1] == advertisement_id]:
                effects += self.send_batch(key)
            effects += self.end_gossip(advertisement_id)
            self.numbers.pop(advertisement_id, None)
        effects += super().withdraw(advertisement_id, source)
        if advertisement_id not in self.advertisements:
            for gains in self.gains.values():
                gains.pop(advertisement_id, None)
            for group in self._groups_of(advertisement_id):
                if group.leave_after is None:
                    del self.groups[group.key]
            self._forget_seen(advertisement_id)
        return effects

    def _forget_seen(self, advertisement_id: AdvertisementId) -> None:
        if advertisement_id not in self.advertisements and not self._groups_of(advertisement_id):
            self.seen.pop(advertisement_id, None)

    def count_gains(self, advertisement: Advertisement, source: BrokerId) -> None:
        """Count in all subscriptions that an advertisement meets which has come from `source`."""
        for entry in self.entries.values():
            if entry.source not in (LOCAL, source) and meet(advertisement.filter, entry.filter):
                self._count_gain(self.gains[entry.source], entry, advertisement.id, 1)

    def _count_gain(
        self, gains: Gains, entry: Entry, advertisement_id: AdvertisementId, step: int
    ) -> Gain:
        """Count a subscription in or out of the gains of the link that it came over."""
        gain = _gain_of(gains, advertisement_id)
        gain.count += step
        gain.hops += step * entry.hops
        self.gains_changed = True
        return gain

    def _evaluate(self) -> None:
        """Algorithm 1, with the 10% rule of section 4.5 and priority classes first (4.2)."""
        config, capacity = self.popsub, self.capacity
        rows: list[tuple[bool, float, BrokerId, AdvertisementId, Gain]] = []
        for peer, gains in self.gains.items():
            for advertisement_id, gain in gains.items():
                if config.entries == "all" or advertisement_id in self.numbers:
                    gain.rate = gain.offered / config.reevaluate_s
                    gain.offered = 0
                    if gain.count:
                        ordinary = not self._has_priority(advertisement_id)
                        rows.append((ordinary, -gain.ratio, peer, advertisement_id, gain))
        rows.sort(key=lambda row: row[:4])
        filled = sum(gain.rate for *_, gain in rows if gain.popular)
        if self.gains_changed or abs(filled - capacity) > config.hysteresis * capacity:
            filled = 0.0
            cut: tuple[bool, float] | None = None
            for ordinary, loss, *_, gain in rows:
                if config.rule == "printed":
                    gain.popular = filled < capacity
                else:
                    gain.popular = cut is None and filled + gain.rate <= capacity
                if gain.popular:
                    filled += gain.rate
                elif cut is None:
                    cut = (ordinary, loss)
            if config.rule == "prose" and cut is not None:
                for ordinary, loss, *_, gain in rows:
                    gain.popular = gain.popular and (ordinary, loss) < cut
        self.gains_changed = False
        self.gain_min = min((gain.ratio for *_, gain in rows if gain.popular), default=None)

    def _has_priority(self, advertisement_id: AdvertisementId) -> bool:
        filter = self.advertisements[advertisement_id][0].filter
        return self.priority is not None and meet(self.priority, filter)

    # Publications.

    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]:
        advertisement_id = self._advertisement_of(publication)
        if advertisement_id is None:
            return [Note(f"dropped: nothing advertised covers {publication.key}")]
        self.numbers[advertisement_id] += 1
        post = Post(publication, advertisement_id, self.numbers[advertisement_id])
        effects: list[Effect] = []
        links = self._match(post, 0, "tree", effects)
        direct = 0
        for peer in sorted(links):
            gain = _gain_of(self.gains[peer], advertisement_id)
            gain.offered += 1
            if gain.popular or self.keeps_to_tree(publication):
                effects += self._send_popular(peer, post, gain)
            elif self.popsub.unpopular == "direct":
                origins = sorted({self.entries[name].origin for name in links[peer]})
                direct += len(origins)
                for origin in origins:
                    self._measure_gain(1.0)
                    effects.append(Send(origin, DirectPost(post)))
            elif self.popsub.unpopular == "batching":
                effects += self._buffer((peer, advertisement_id), post, gain)
            else:
                effects += self._gossip_over(peer, post, gain)
        if direct:
            self.direct_forwards[direct] = self.direct_forwards.get(direct, 0) + 1
        if links:
            effects += self._evaluate_later()
        return effects

    def _evaluate_later(self) -> list[Effect]:
        if self.evaluating:
            return []
        self.evaluating = True
        return [SetTimer("evaluate", round(self.popsub.reevaluate_s * SECOND))]

    def _count_forwarded(self, counts: dict[BrokerId, int], name: AdvertisementId) -> list[Effect]:
        """So many publications of another broker's advertisement go on over each link."""
        if self.popsub.entries == "own" or not self.numbers or not counts:
            return []
        for peer, count in counts.items():
            gain = self.gains[peer].get(name)
            if gain is not None:
                gain.offered += count
        return self._evaluate_later()

    def keeps_to_tree(self, publication: Publication) -> bool:
        """Whether a publication travels over the tree even if it is unpopular."""
        return self.popsub.unpopular == "tree"

    def _advertisement_of(self, publication: Publication) -> AdvertisementId | None:
        own = None
        for name in self.numbers:
            advertisement = self.advertisements[name][0]
            if matches(advertisement.filter, publication.attributes):
                if advertisement.publisher == publication.publisher:
                    return name
                own = own or name
        return own

    def _match(
        self, post: Post, hops: int, via: str, effects: list[Effect], sender: BrokerId = LOCAL
    ) -> dict[BrokerId, list[SubscriptionId]]:
        """Deliver here, once; per other link, the subscriptions behind it that match."""
        self.matches_count += 1
        whole = not self.popsub.covering or (sender == LOCAL and self._needs_origins())
        links: dict[BrokerId, list[SubscriptionId]] = {}
        local: list[SubscriptionId] = []
        for filter in self.pool.match(post.publication):
            for source in self.table.sources.get(filter, ()):
                if source == LOCAL:
                    local += self.ids[filter, LOCAL]
                elif source != sender and (whole or filter in self.uncovered[source].asked):
                    links.setdefault(source, []).extend(self.ids[filter, source])
        if local and self._first_time(post):
            local.sort()
            effects += self._deliver(
                post, [Deliver(name, post.publication, hops, via) for name in local]
            )
        return links

    def _needs_origins(self) -> bool:
        """Whether this broker sends directly, and so has to know every subscription."""
        return self.popsub.unpopular == "direct" and bool(self.numbers)

    def _first_time(self, post: Post) -> bool:
        """Whether this broker has not delivered the publication before."""
        if self.popsub.unpopular != "gossip":
            return True
        seen = self.seen.setdefault(post.advertisement_id, set())
        if post.number in seen:
            return False
        seen.add(post.number)
        if len(seen) > 2 * CACHE_MAX:
            self.seen[post.advertisement_id] = set(sorted(seen)[CACHE_MAX:])
        return True

    def _send_popular(self, peer: BrokerId, post: Post, gain: Gain) -> list[Effect]:
        effects: list[Effect] = []
        key = (peer, post.advertisement_id)
        if key in self.buffers:
            effects += self.send_batch(key)
        if gain.gossiping:
            gain.gossiping = False
            group = self.groups[self._group_key(post.advertisement_id)]
            effects.append(Send(peer, self._switch(group, to_gossip=False)))
        self._measure_gain(gain.ratio)
        effects.append(Send(peer, TreePost(post, 1)))
        return effects

    def _forward(
        self, links: dict[BrokerId, list[SubscriptionId]], message: TreePost
    ) -> list[Effect]:
        effects: list[Effect] = []
        onward = TreePost(message.post, message.hops + 1)
        for peer in sorted(links):
            gain = self.gains[peer].get(message.post.advertisement_id)
            self._measure_gain(gain.ratio if gain else 0.0)
            effects.append(Send(peer, onward))
        return effects + self._count_forwarded(
            dict.fromkeys(links, 1), message.post.advertisement_id
        )

    # Batching (algorithms 2 and 3).

    def _buffer(self, key: Key, post: Post, gain: Gain) -> list[Effect]:
        buffer = self.buffers.setdefault(key, Buffer())
        buffer.posts.append(post)
        buffer.gain += gain.ratio
        if len(buffer.posts) == 1:
            timeout_us = round(self.popsub.batch_timeout_s * SECOND)
            return [SetTimer(_batch_timer(key), timeout_us)]
        if self.gain_min is not None and buffer.gain > 0:
            average = buffer.gain / len(buffer.posts)
            # The small step keeps 5 / (1/3) at 15, which floats make a little more.
            if len(buffer.posts) > math.ceil(self.gain_min / average - 1e-9):
                return self.send_batch(key)
        return []

    def send_batch(self, key: Key) -> list[Effect]:
        buffer = self.buffers.pop(key)
        self._measure_gain(buffer.gain)
        return [CancelTimer(_batch_timer(key)), Send(key[0], Batch(tuple(buffer.posts), 1))]

    def _on_batch(self, message: Batch, sender: BrokerId) -> list[Effect]:
        effects: list[Effect] = []
        onward: dict[BrokerId, list[Post]] = {}
        for post in message.posts:
            for peer in self._match(post, message.hops, "batching", effects, sender):
                onward.setdefault(peer, []).append(post)
        for peer in sorted(onward):
            posts = onward[peer]
            gain = self.gains[peer].get(posts[0].advertisement_id)
            self._measure_gain(len(posts) * gain.ratio if gain else 0.0)
            effects.append(Send(peer, Batch(tuple(posts), message.hops + 1)))
        if not onward:
            return effects
        counts = {peer: len(posts) for peer, posts in onward.items()}
        return effects + self._count_forwarded(counts, message.posts[0].advertisement_id)

    # Gossip (algorithms 4 and 5).

    def _group_key(self, name: AdvertisementId) -> GroupKey:
        """The group of an own advertisement."""
        return name, self.advertisements[name][0].epoch

    def _groups_of(self, name: AdvertisementId) -> list[Group]:
        return [group for key, group in self.groups.items() if key[0] == name]

    def _gossip_over(self, peer: BrokerId, post: Post, gain: Gain) -> list[Effect]:
        effects: list[Effect] = []
        key = self._group_key(post.advertisement_id)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(*key, self.broker, self.broker, 0, {})
            effects.append(SetTimer(_gossip_timer(key), self._interval_us()))
        if not gain.gossiping:
            gain.gossiping = True
            effects.append(Send(peer, self._switch(group, to_gossip=True)))
            self._measure_gain(gain.ratio)
            effects.append(Send(peer, TreePost(post, 1)))
        elif group.posts.get(group.highest) is not post:  # one number, however many links
            group.take(group.highest + 1, post)
        return effects

    def _switch(self, group: Group, to_gossip: bool) -> Switch:
        view = (self.broker, *group.view)[: self.popsub.view]
        return Switch(*group.key, self.broker, to_gossip, group.highest, view)

    def _invite(self, name: AdvertisementId, origin: BrokerId) -> list[Effect]:
        return [Send(origin, self._switch(self.groups[self._group_key(name)], to_gossip=True))]

    def end_gossip(self, name: AdvertisementId) -> list[Effect]:
        """Nothing more comes here of a publisher: who lacks something asks for it, then leaves."""
        effects: list[Effect] = []
        for group in self._groups_of(name):
            if group.publisher == self.broker and group.leave_after is None:
                group.leave_after, group.quiet = group.highest, 0
                over = self._switch(group, to_gossip=False)
                for peer, gains in self.gains.items():
                    if name in gains and gains[name].count:
                        effects.append(Send(peer, over))
        return effects

    def _on_switch(self, message: Switch, sender: BrokerId) -> list[Effect]:
        name, key = message.advertisement_id, (message.advertisement_id, message.epoch)
        effects: list[Effect] = []
        if sender in self.sent:  # over the tree: on to all who may want the advertisement
            for peer, gains in self.gains.items():
                gain = gains.get(name)
                if peer != sender and gain is not None and gain.count:
                    effects.append(Send(peer, message))
        group = self.groups.get(key)
        if not message.to_gossip:
            if group is not None and group.publisher != self.broker:
                group.leave_after = message.number
                group.highest = max(group.highest, message.number)
                effects += self._leave_if_done(group)
            return effects
        if not self._wants(name):
            return effects
        if group is None:
            for older in self._groups_of(name):
                if older.leave_after is None and older.epoch < message.epoch:
                    older.leave_after = older.highest  # a fault kept back that it is over
            view = {member: None for member in message.view if member != self.broker}
            view[message.publisher] = None
            group = self.groups[key] = Group(
                *key, message.publisher, self.broker, message.number, view, message.number
            )
            effects.append(SetTimer(_gossip_timer(key), self._interval_us()))
            effects.append(Send(message.publisher, self._introduction(group)))
        group.leave_after = None
        group.quiet = 0
        return effects

    def _introduction(self, group: Group) -> Gossip:
        group.subscribers[self.broker] = None
        return group.gossip([], "ask")

    def _wants(self, advertisement_id: AdvertisementId) -> bool:
        """Whether a local subscription meets the advertisement, or may have met it."""
        if advertisement_id not in self.advertisements:
            return bool(self.table.holders)
        filter = self.advertisements[advertisement_id][0].filter
        return any(meet(filter, other) for other in self.table.holders)

    def _on_gossip(self, message: Gossip, sender: BrokerId) -> list[Effect]:
        group = self.groups.get((message.advertisement_id, message.epoch))
        if group is None:
            return []
        if sender == group.publisher:
            group.answered = True
        effects: list[Effect] = []
        news: list[int] = []
        self._measure("gossips", 1)
        for number, post in message.messages:
            if not group.take(number, post):
                continue
            news.append(number)
            before = len(effects)
            self._match_locally(post, "gossip", effects)
            self._measure("gossip_publications", 1)
            self._measure("gossip_false_positives", len(effects) == before)
        removable = group.meet(message, sender, self.popsub.view)
        while len(group.view) > self.popsub.view and removable:
            member = removable.pop(self._draw(len(removable)))
            group.evict(member, self.popsub.view)
        if news:  # pass on at once what is new here
            group.fresh.clear()
            relay = group.gossip(news, "relay")
            effects += [Send(member, relay) for member in self._some(group) if member != sender]
        if message.purpose in ("ask", "round"):
            answer = group.answer(message)
            if answer or message.purpose == "ask":
                effects.append(Send(sender, group.gossip(answer, "answer")))
        if message.purpose == "ask" and group.over():
            group.quiet = 0
            effects.append(Send(sender, self._switch(group, to_gossip=False)))
        if (message.purpose in ("round", "relay") or message.messages) and group.can_give(message):
            effects.append(Send(sender, group.gossip([], "ask")))
        return effects + self._leave_if_done(group)

    def _match_locally(self, post: Post, via: str, effects: list[Effect]) -> None:
        self.matches_count += 1
        local: list[SubscriptionId] = []
        for filter in self.pool.match(post.publication):
            if LOCAL in self.table.sources.get(filter, ()):
                local += self.ids[filter, LOCAL]
        if local and self._first_time(post):
            local.sort()
            effects += self._deliver(
                post, [Deliver(name, post.publication, 1, via) for name in local]
            )

    def _on_round(self, key: GroupKey) -> list[Effect]:
        group = self.groups.get(key)
        if group is None:
            return []
        group.rounds += 1
        group.quiet += 1
        numbers, group.fresh = group.fresh, []
        message = group.gossip(numbers, "round")
        effects: list[Effect] = [Send(member, message) for member in self._some(group)]
        if group.publisher != self.broker and (
            not group.answered or group.rounds % HOME_ROUNDS == 0 or group.lacking()
        ):
            effects.append(Send(group.publisher, group.gossip([], "ask")))
        effects += self._leave_if_done(group)
        if key in self.groups:
            effects.append(SetTimer(_gossip_timer(key), self._interval_us()))
        return effects

    def _leave_if_done(self, group: Group) -> list[Effect]:
        return self._leave(group) if group.done() else []

    def _leave(self, group: Group) -> list[Effect]:
        """Gossip an unsubscription and forget the group."""
        del self.groups[group.key]
        self._forget_seen(group.advertisement_id)
        group.unsubscribers[self.broker] = None
        group.subscribers.pop(self.broker, None)
        message = group.gossip([], "relay")
        effects: list[Effect] = [Send(member, message) for member in self._some(group)]
        return [*effects, CancelTimer(_gossip_timer(group.key))]

    def _leave_unwanted_groups(self) -> list[Effect]:
        effects: list[Effect] = []
        for group in list(self.groups.values()):
            if group.publisher != self.broker and not self._wants(group.advertisement_id):
                effects += self._leave(group)
        return effects

    def _some(self, group: Group) -> list[BrokerId]:
        """`fanout` members of the view, drawn without replacement."""
        members = list(group.view)
        return [
            members.pop(self._draw(len(members)))
            for _ in range(min(self.popsub.fanout, len(members)))
        ]

    def _draw(self, bound: int) -> int:
        self.draws_count += 1
        return draws.below(bound, self.seed, "popsub.gossip", self.broker, self.draws_count)

    def _interval_us(self) -> TimeUs:
        return round(self.popsub.gossip_interval_s * SECOND)

    # Order.

    def _deliver(self, post: Post, deliveries: list[Deliver]) -> list[Effect]:
        """Deliver now, or hold for `reorder_s` so that earlier publications can come first."""
        if not self.popsub.reorder_s:
            return list(deliveries)
        name = post.advertisement_id
        if post.number < self.released.get(name, 0):
            note = Note(f"out of order: {post.publication.key} came after the reorder buffer")
            return [note, *deliveries]
        held = self.held.setdefault(name, {})
        held.setdefault(post.number, []).extend(deliveries)
        timer = f"release {post.number} {name}"
        return [SetTimer(timer, round(self.popsub.reorder_s * SECOND))]

    def holds(self, publication: Publication) -> bool:
        """In a batch, in a gossip group, or until earlier ones may have come."""
        posts = [post for buffer in self.buffers.values() for post in buffer.posts]
        posts += [post for group in self.groups.values() for post in group.posts.values()]
        held = (
            delivery.publication
            for numbered in self.held.values()
            for deliveries in numbered.values()
            for delivery in deliveries
        )
        return any(post.publication == publication for post in posts) or publication in held

    def _release(self, name: AdvertisementId, upto: int) -> list[Effect]:
        held = self.held.get(name, {})
        effects: list[Effect] = []
        for number in sorted(number for number in held if number <= upto):
            effects += held.pop(number)
        self.released[name] = max(self.released.get(name, 0), upto)
        if not held:
            self.held.pop(name, None)
        return effects

    # The doors.

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        match message:
            case TreePost(post, hops):
                effects: list[Effect] = []
                links = self._match(post, hops, "tree", effects, sender)
                return effects + self._forward(links, message)
            case CountedSubscription():
                name = message.subscription_id
                if name in self.entries:
                    return [Note(f"dropped: {sender} had already sent subscription {name}")]
                entry = Entry(message.filter, sender, message.origin, message.hops)
                return self._learn(name, entry)
            case CountedUnsubscription(name):
                if name not in self.entries or self.entries[name].source != sender:
                    return [Note(f"dropped: subscription {name} did not come from {sender}")]
                return self._forget(name)
            case DirectPost(post):
                effects = []
                self._match_locally(post, "direct", effects)
                return effects
            case Batch():
                return self._on_batch(message, sender)
            case Switch():
                return self._on_switch(message, sender)
            case Gossip():
                return self._on_gossip(message, sender)
            case _:
                return super().on_message(message, sender, now)

    def on_timer(self, name: str, now: TimeUs) -> list[Effect]:
        word, _, rest = name.partition(" ")
        if word == "evaluate":
            active = any(
                gain.offered or gain.rate
                for gains in self.gains.values()
                for gain in gains.values()
            )
            self._evaluate()
            self.evaluating = active
            return [SetTimer(name, round(self.popsub.reevaluate_s * SECOND))] if active else []
        if word == "batch":
            peer, _, advertisement_id = rest.partition(" ")
            key = (int(peer), advertisement_id)
            return self.send_batch(key) if key in self.buffers else []
        if word == "gossip":
            epoch, _, advertisement_id = rest.partition(" ")
            return self._on_round((advertisement_id, int(epoch)))
        number, _, advertisement_id = rest.partition(" ")
        return self._release(advertisement_id, int(number))

    def idle(self) -> bool:
        return (
            not self.buffers
            and not self.held
            and all(group.idle() for group in self.groups.values())
        )

    def _measure(self, name: str, amount: float) -> None:
        self.measures[name] = self.measures.get(name, 0) + amount

    def _measure_gain(self, gain: float) -> None:
        self._measure("forwards", 1)
        self._measure("gain", gain)

    def table_entries(self) -> int:
        known = len(self.entries) + len(self.advertisements)
        if not self.uncovered or self._needs_origins():
            return known
        return known - sum(
            len(self.ids[filter, peer])
            for peer, uncovered in self.uncovered.items()
            for filter in uncovered.covered_by
        )

    def check(self) -> None:
        self.table.check()
        assert self.towards.keys() == self.table.sources.keys()
        assert sum(map(len, self.ids.values())) == len(self.entries)
        assert self.sent.keys() == self.gains.keys() == self.outgoing.keys()
        behind: dict[BrokerId, list[Entry]] = {peer: [] for peer in self.gains}
        for name, entry in self.entries.items():
            filter, source = entry.filter, entry.source
            assert name in self.ids[filter, source]
            assert source in self.table.sources[filter]
            towards = self.towards[filter]
            for peer, sent in self.sent.items():
                assert (name in sent) == (peer != source and peer in towards)
            if source in behind:
                behind[source].append(entry)
        for peer, uncovered in self.uncovered.items():
            uncovered.check()
            wanted = {filter for filter, source in self.ids if source == peer}
            assert wanted == uncovered.asked.keys() | uncovered.covered_by.keys()
        for peer, gains in self.gains.items():
            for advertisement_id, gain in gains.items():
                advertisement, source = self.advertisements[advertisement_id]
                counted = [
                    entry.hops
                    for entry in behind[peer]
                    if peer != source and meet(advertisement.filter, entry.filter)
                ]
                assert (gain.count, gain.hops) == (len(counted), sum(counted))


def _gain_of(gains: Gains, advertisement_id: AdvertisementId) -> Gain:
    gain = gains.get(advertisement_id)
    if gain is None:
        gain = gains[advertisement_id] = Gain()
    return gain


def _batch_timer(key: Key) -> str:
    return f"batch {key[0]} {key[1]}"


def _gossip_timer(key: GroupKey) -> str:
    return f"gossip {key[1]} {key[0]}"
