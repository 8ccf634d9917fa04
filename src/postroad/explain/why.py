"""Why a publication did, or did not, reach a client: one cause, and the way it went.

The answer comes from rows alone: what the client held when, which way the publication took, where
its branches stopped. `cause` is one of `CAUSES`; `sentence` says it with names, values and times.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from postroad.explain.history import History, Interested
from postroad.explain.predicates import MISSING, TYPE, Miss, misses
from postroad.filters import matches
from postroad.model import Scalar, TimeUs
from postroad.routing import SCHEMES
from postroad.traces import schema
from postroad.traces.schema import Row

CAUSES = {
    "delivered": "it was delivered",
    "waiting": "it waits in the client's session",
    "held": "a broker holds it back: a batch, an order, a publisher that moves",
    "under way": "it is on a link, as far as was recorded",
    "publication unknown": "no such publication was recorded",
    "publication refused": "the publisher's broker did not take it",
    "client unknown": "nothing was recorded of such a client",
    "no subscription": "the client held no subscription",
    "subscription refused": "the client's subscription was refused",
    "never matches": "the client's filter contradicts itself",
    "predicate false": "a predicate of the client's filter is false",
    "attribute missing": "the publication lacks an attribute that the filter asks about",
    "type differs": "an attribute has another type than the filter compares with",
    "topic differs": "the publication has another topic",
    "narrowed by rights": "the client's user may not see it",
    "subscribed later": "the client subscribed after the publication had passed",
    "subscription on its way": "the subscription had not reached a broker on the way",
    "subscription lost": "the subscription did not reach a broker on the way, because of a fault",
    "unsubscribed before": "the subscription had ended",
    "session ended": "the client's session had ended",
    "not advertised": "the publisher had not advertised it",
    "advertised later": "word of the publisher had not reached the subscriber's broker",
    "link down": "a link on the way was down",
    "lost on the link": "a link lost it",
    "queue full": "a broker's queue was full",
    "broker down": "a broker was down",
    "session full": "the client's session held as much as it may",
    "client away": "the client was away, at quality 0",
    "client too slow": "the client read too slowly, at quality 0",
    "expired": "it had expired",
    "no local": "it is the client's own, and the client asked for no own ones",
    "too large": "it is larger than the client takes",
    "out of order": "its successors had been delivered: it would have come out of order",
    "unexplained": "the rows do not tell",
}

_AT_CLIENT = {
    schema.FULL: "session full",
    schema.AWAY: "client away",
    schema.SLOW: "client too slow",
    schema.EXPIRED: "expired",
    schema.NO_LOCAL: "no local",
    schema.LARGE: "too large",
    schema.ENDED: "session ended",
    schema.LEVELS: "topic differs",
    schema.MALFORMED: "unexplained",
}
_AT_BROKER = {
    schema.FULL: "queue full",
    schema.DOWN: "link down",
    schema.LOST: "lost on the link",
    schema.CRASHED: "broker down",
    schema.UNADVERTISED: "not advertised",
    schema.LATE: "out of order",
    schema.EXPIRED: "expired",
}


@dataclass(frozen=True, slots=True)
class Visit:
    """What one broker did with the publication."""

    broker: str
    time_us: TimeUs  # since it was published
    came_from: str | None
    sent_to: list[str]
    delivered_to: list[str]  # subscriptions
    stopped: list[str]  # reasons
    towards: str | None = None  # the next broker on the way to the client
    entry: str | None = None  # the neighbour's filter that matched, or came closest
    misses: list[str] = field(default_factory=list)  # why it did not match


@dataclass(frozen=True, slots=True)
class Answer:
    publication: str
    client: str
    delivered: bool
    cause: str
    sentence: str
    broker: str | None = None  # where
    steps: list[Visit] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class _Cause(Exception):
    """Ends the search: the cause is established."""

    def __init__(self, cause: str, sentence: str, broker: str | None = None) -> None:
        super().__init__(sentence)
        assert cause in CAUSES, cause
        self.cause, self.sentence, self.broker = cause, sentence, broker


def explain(history: History, publication: str, client: str) -> Answer:
    """`publication` is PUBLISHER/ID, or a publisher: then its last one is meant."""
    rows, name = _rows_of(history, publication)
    question = _Question(history, rows, name, client)
    try:
        question.answer()
    except _Cause as verdict:
        return Answer(
            name, client, verdict.cause == "delivered", verdict.cause, verdict.sentence,
            verdict.broker, question.steps(),
        )  # fmt: skip
    raise AssertionError("every question has an answer")


def way(history: History, publication: str) -> tuple[str, list[Row], list[Visit]]:
    """A publication by its whole name, its rows, and what each broker did with it."""
    rows, name = _rows_of(history, publication)
    return name, rows, _Question(history, rows, name, "").steps()


def _rows_of(history: History, publication: str) -> tuple[list[Row], str]:
    publisher, _, number = publication.rpartition("/")
    rows = history.of_publication.get((publisher, number))
    if rows is not None:
        return rows, publication
    own = history.of_publisher.get(publication)
    if own:
        last = own[-1]
        if last.kind == "refuse":
            return [last], publication
        key = (str(last.publisher), str(last.publication))
        return history.of_publication[key], f"{key[0]}/{key[1]}"
    return [], publication


def _ms(time_us: TimeUs) -> str:
    """A duration with its unit."""
    if time_us < 1000:
        return f"{time_us} µs"
    return f"{time_us / 1000:,.1f} ms" if time_us < 1_000_000 else f"{time_us / 1e6:,.1f} s"


class _Question:
    def __init__(self, history: History, rows: list[Row], name: str, client: str) -> None:
        self.history, self.rows, self.name, self.client = history, rows, name, client
        self.published = next((row for row in rows if row.kind == "publish"), None)
        self.attributes: dict[str, Scalar] = {}
        if self.published is not None and self.published.attributes is not None:
            self.attributes = json.loads(self.published.attributes)
        self.target: Interested | None = None  # the subscription that the way is about
        scheme = SCHEMES.get(history.description.get("scheme", ""))
        self.tree = scheme is None or scheme.overlay == "tree"
        self.advertises = scheme is not None and scheme.advertisements

    # The way.

    def steps(self) -> list[Visit]:
        """What each broker did that had the publication, in order of time."""
        if self.published is None:
            return []
        start_us = self.published.time_us
        order: dict[str, list[Row]] = {}
        for row in self.rows:
            order.setdefault(row.broker, []).append(row)
        way = self._way()
        visits = []
        for broker, rows in order.items():
            first = next((row for row in rows if row.kind in ("publish", "receive")), rows[0])
            following = way[way.index(broker) + 1] if broker in way[:-1] else None
            entry, wrong = self._closest(broker, following, first.time_us)
            visits.append(
                Visit(
                    broker,
                    first.time_us - start_us,
                    first.peer if first.kind == "receive" else None,
                    [str(row.peer) for row in rows if row.kind == "send"],
                    [str(row.subscription) for row in rows if row.kind == "deliver"],
                    [
                        f"{row.reason}" + (f" ({row.peer or row.client})" if row.peer or row.client
                                           else "")
                        for row in rows
                        if row.kind == "stop"
                    ],
                    following, entry, wrong,
                )
            )  # fmt: skip
        return visits

    def _way(self) -> list[str]:
        """Over the tree from the publisher's broker to the client's."""
        if self.target is None or self.published is None or not self.tree:
            return []
        return self.history.path(self.published.broker, self.target.broker, self.published.time_us)

    def _closest(
        self, broker: str, peer: str | None, time_us: TimeUs
    ) -> tuple[str | None, list[str]]:
        """The filter of a neighbour that matched, or the one with the fewest false predicates."""
        if peer is None:
            return None, []
        best: tuple[int, str, list[Miss]] | None = None
        for text in self.history.entries(broker, peer, time_us):
            filter = self.history.filter(text)
            if matches(filter, self.attributes):
                return text, []
            wrong = misses(filter, self.attributes)
            if best is None or len(wrong) < best[0]:
                best = (len(wrong), text, wrong)
        return (None, []) if best is None else (best[1], [str(miss) for miss in best[2]])

    # The cause.

    def answer(self) -> None:
        """Raises what it finds."""
        self._look_at_publication()
        self._look_at_deliveries()
        held = self._look_at_client()
        matching = self._look_at_filters(held)
        standing = self._look_at_times(matching)
        self.target = standing
        self._look_at_route(standing)
        raise _Cause(
            "unexplained",
            f"{standing.id} matches and stood, and no row says where {self.name} stopped",
        )

    def _look_at_publication(self) -> None:
        rows = self.rows
        if not rows:
            raise _Cause(
                "publication unknown",
                f"no publication {self.name} was recorded: it was not published, not sampled, or "
                "before the first row",
            )
        if rows[0].kind == "refuse":
            raise _Cause(
                "publication refused",
                f"broker {rows[0].broker} refused it: {rows[0].reason} ({rows[0].detail})",
                rows[0].broker,
            )
        if self.published is None:
            raise _Cause("publication unknown", f"the publishing of {self.name} was not recorded")
        for row in rows:
            if row.kind == "stop" and row.broker == self.published.broker and row.peer is None:
                if row.reason == schema.CRASHED and row.time_us == self.published.time_us:
                    raise _Cause(
                        "broker down", f"broker {row.broker} was down when it was published",
                        row.broker,
                    )  # fmt: skip
                if row.reason == schema.UNADVERTISED:
                    raise _Cause(
                        "not advertised",
                        f"nothing that {row.publisher} had advertised at {row.broker} covers it",
                        row.broker,
                    )

    def _own(self, row: Row) -> Interested | None:
        held = self.history.subscriptions.get(str(row.subscription))
        return held if held is not None and held.client == self.client else None

    def _look_at_deliveries(self) -> None:
        """Delivered, or stopped between its broker and the client."""
        delivery = next((r for r in self.rows if r.kind == "deliver" and self._own(r)), None)
        if delivery is None:
            return
        held = self._own(delivery)
        assert held is not None
        assert self.published is not None
        self.target = held
        for row in self.rows:
            mine = row.client == self.client or (row.subscription and self._own(row))
            if row.kind == "stop" and row.broker == delivery.broker and row.peer is None and mine:
                cause = _AT_CLIENT.get(str(row.reason), "unexplained")
                raise _Cause(
                    cause,
                    f"it reached broker {row.broker} and stopped at the client's session: "
                    f"{row.reason}",
                    row.broker,
                )
        whole = [
            row for row in self.rows
            if row.kind == "stop" and row.broker == delivery.broker
            and row.reason in (schema.EXPIRED, schema.MALFORMED) and row.client is None
        ]  # fmt: skip
        if whole:
            raise _Cause(
                _AT_CLIENT[str(whole[0].reason)],
                f"it reached broker {delivery.broker} after it had expired", delivery.broker,
            )  # fmt: skip
        handed = next((r for r in self.rows if r.kind == "hand" and r.client == self.client), None)
        took = _ms(delivery.time_us - self.published.time_us)
        if handed is not None:
            raise _Cause(
                "delivered",
                f"delivered at {delivery.broker} {took} after it was published; it waited "
                f"{_ms(handed.waited_us or 0)} in the session",
                delivery.broker,
            )
        if not self.history.connected(self.client, delivery.time_us):
            raise _Cause(
                "waiting",
                f"it waits in the session of {self.client} at {delivery.broker}: the client is "
                "away",
                delivery.broker,
            )
        hops = "" if delivery.hops is None else f" over {delivery.hops} links"
        raise _Cause(
            "delivered",
            f"delivered at {delivery.broker}{hops}, {took} after it was published, for {held.id}",
            delivery.broker,
        )

    def _look_at_client(self) -> list[Interested]:
        history = self.history
        held = [one for one in history.subscriptions.values() if one.client == self.client]
        if held:
            return held
        rows = history.of_client.get(self.client, [])
        if not rows:
            raise _Cause("client unknown", f"nothing was recorded of a client {self.client}")
        refused = [row for row in rows if row.kind == "refuse"]
        if refused:
            raise _Cause(
                "subscription refused",
                f"broker {refused[-1].broker} refused it: {refused[-1].reason}",
                refused[-1].broker,
            )
        raise _Cause("no subscription", f"{self.client} was there and subscribed to nothing")

    def _look_at_filters(self, held: Sequence[Interested]) -> list[Interested]:
        """The subscriptions that match; otherwise why the one that comes closest does not."""
        history = self.history
        if not self.attributes:
            raise _Cause("unexplained", "the publication's attributes were not recorded")
        matching = [one for one in held if matches(history.filter(one.text), self.attributes)]
        if matching:
            return matching
        published_us = self.rows[0].time_us
        there = [one for one in held if one.stood(published_us)] or list(held)
        candidates = [(misses(history.filter(one.text), self.attributes), one) for one in there]
        wrong, one = min(candidates, key=lambda each: (not each[0], len(each[0])))
        self.target = one
        if not wrong:
            raise _Cause(
                "never matches", f"the filter of {one.id} contradicts itself: nothing matches it"
            )
        within = one.detail.get("within")
        if within:
            rights = {miss.attribute for miss in misses(history.filter(within), self.attributes)}
            if rights and {miss.attribute for miss in wrong} <= rights:
                raise _Cause(
                    "narrowed by rights",
                    f"{one.id} is narrowed to what its user may see ({within}): "
                    + "; ".join(map(str, wrong)),
                    one.broker,
                )
        said = "; ".join(map(str, wrong))
        if any(miss.attribute == "class" for miss in wrong) and one.detail.get("topic"):
            raise _Cause(
                "topic differs",
                f"{one.id} asks for topic {one.detail['topic']}, and it went to "
                f"{self.attributes.get('class')}",
                one.broker,
            )
        kinds = {miss.kind for miss in wrong}
        if all(kind == MISSING for kind in kinds):
            cause = "attribute missing"
        elif TYPE in kinds:
            cause = "type differs"
        else:
            cause = "predicate false"
        raise _Cause(cause, f"{one.id} asks for {said}", one.broker)

    def _look_at_times(self, matching: Sequence[Interested]) -> Interested:
        """A subscription that stood when the publication was made; otherwise why none did."""
        time_us = self.rows[0].time_us
        standing = [one for one in matching if one.stood(time_us)]
        if standing:
            return standing[0]
        for one in matching:
            gap = one.gap(time_us)
            if gap is not None:
                self.target = one
                raise _Cause(
                    "broker down",
                    f"broker {one.broker} of {one.id} was down: {_ms(time_us - gap[0])} before it "
                    f"was published, until {_ms(gap[1] - time_us)} after",
                    one.broker,
                )
        later = [one for one in matching if one.since_us > time_us]
        if later:
            one = min(later, key=lambda each: each.since_us)
            self.target = one
            # It may have been on its way when the publication passed.
            raise _Cause(
                "subscribed later",
                f"{one.id} began {_ms(one.since_us - time_us)} after it was published",
                one.broker,
            )
        one = max(matching, key=lambda each: each.until_us or 0)
        self.target = one
        before = _ms(time_us - (one.until_us or 0))
        cause = "session ended" if "session" in one.ended else "unsubscribed before"
        if one.ended.startswith("broker"):
            cause = "broker down"
        raise _Cause(cause, f"{one.id} had ended {before} before: {one.ended}", one.broker)

    def _look_at_route(self, held: Interested) -> None:
        """The subscription stood and matches: where did the publication stop?"""
        assert self.published is not None
        self._look_at_broker(held.broker, held)
        way = self._way()
        if way:
            for here, there in pairwise(way):
                self._look_at_link(here, there, held)
        # Schemes with ways of their own: the first branch that a fault ended.
        for row in self.rows:
            if row.kind == "stop" and row.reason in (
                schema.DOWN, schema.LOST, schema.FULL, schema.CRASHED
            ):  # fmt: skip
                self._stopped(row)
        if not self.tree:
            self._look_around(held)
        self._look_at_subscription(held)

    def _look_around(self, held: Interested) -> None:
        """Schemes with ways of their own: what is still on a link, and what was down."""
        history = self.history
        came = {(row.peer, row.broker) for row in self.rows if row.kind == "receive"}
        for row in self.rows:
            if row.kind == "send" and (row.broker, row.peer) not in came:
                raise _Cause(
                    "under way",
                    f"{row.broker} sent it to {row.peer}, where it had not come yet",
                    row.broker,
                )
        if not history.broker_up(held.broker, self.rows[0].time_us):
            raise _Cause("broker down", f"broker {held.broker} was down", held.broker)
        visits = {row.broker: row.time_us for row in reversed(self.rows) if row.kind != "deliver"}
        for broker, time_us in visits.items():
            links = [pair for pair in history.links if pair[0] == broker]
            links.sort(key=lambda pair: pair[1] != held.broker)  # straight there first
            for here, there in links:
                if not history.link_up(here, there, time_us):
                    raise _Cause(
                        "link down",
                        f"the link from {here} to {there} was down when {here} had it",
                        here,
                    )

    def _stopped(self, row: Row) -> None:
        cause = _AT_BROKER.get(str(row.reason))
        if cause is None:
            return
        to = f" to {row.peer}" if row.peer else ""
        raise _Cause(cause, f"it stopped at broker {row.broker}{to}: {row.reason}", row.broker)

    def _look_at_broker(self, broker: str, held: Interested) -> None:
        """It came to the subscriber's broker, and was not delivered."""
        here = [row for row in self.rows if row.broker == broker]
        came = next((row for row in here if row.kind in ("publish", "receive")), None)
        for row in here:
            if row.kind == "stop" and row.peer is None:
                self._stopped(row)
        if came is None:
            return
        if held.until_us is not None and came.time_us > held.until_us:
            cause = "session ended" if "session" in held.ended else "unsubscribed before"
            if held.ended.startswith("broker"):
                cause = "broker down"
            raise _Cause(
                cause,
                f"{held.id} ended {_ms(came.time_us - held.until_us)} before it came to {broker}: "
                f"{held.ended}",
                broker,
            )
        if any(row.kind == "send" for row in here) or not any(
            row.kind in ("stop", "deliver") for row in here
        ):
            raise _Cause("held", f"broker {broker} has it and has not delivered it yet", broker)

    def _look_at_link(self, here: str, there: str, held: Interested) -> None:
        """One link of the tree on the way: sent, and arrived? Otherwise why not."""
        rows = self.rows
        sent = next(
            (r for r in rows if r.kind == "send" and r.broker == here and r.peer == there), None
        )
        came = next((r for r in rows if r.kind == "receive" and r.broker == there), None)
        at = next((r for r in rows if r.broker == here and r.kind in ("publish", "receive")), None)
        if came is not None:
            for row in rows:  # it came, and its link went down while it waited there
                if row.kind == "stop" and row.broker == there and row.peer is None:
                    self._stopped(row)
            return
        for row in rows:
            if row.kind == "stop" and row.broker == here and row.peer == there:
                self._stopped(row)
        for row in rows:
            if row.kind == "stop" and row.broker == here and row.peer is None:
                self._stopped(row)
        if sent is not None:
            if not self.history.broker_up(there, sent.time_us):
                raise _Cause("broker down", f"broker {there} was down when {here} sent it", there)
            raise _Cause("under way", f"{here} sent it to {there}, where it had not come yet", here)
        if at is None:
            return
        time_us = at.time_us
        way = self._way()
        for a, b in pairwise(way[way.index(here) :]):  # a fault far off takes routes away here
            if not self.history.broker_up(b, time_us):
                raise _Cause("broker down", f"broker {b} was down when {here} had it", b)
            if not self.history.link_up(a, b, time_us):
                raise _Cause(
                    "link down", f"the link from {a} to {b} was down when {here} had it", a
                )
        self._look_at_entry(here, there, held, time_us)

    def _look_at_entry(self, here: str, there: str, held: Interested, time_us: TimeUs) -> None:
        """Nothing was sent over a link that was up: was it asked for there?"""
        history = self.history
        if SCHEMES.get(history.description.get("scheme", "")) is not None:
            for text in history.entries(here, there, time_us):
                if matches(history.filter(text), self.attributes):
                    raise _Cause("held", f"broker {here} has it, and has not sent it yet", here)
        if self.advertises:
            self._look_at_advertisement(held, time_us)
        later = history.asked_later(here, there, history.filter(held.text), time_us)
        if later is not None:
            raise _Cause(
                "subscription on its way",
                f"{held.id} began {_ms(time_us - held.since_us)} before and came to {here} "
                f"{_ms(later.time_us - time_us)} after it had passed there",
                here,
            )
        self._look_at_subscription(held)

    def _look_at_subscription(self, held: Interested) -> None:
        """The subscription is not known where it had to be."""
        assert self.published is not None
        history, time_us = self.history, self.published.time_us
        since_us = held.since_us
        if self.advertises:
            self._look_at_advertisement(held, time_us)
        lost = history.lost(history.filter(held.text), time_us)
        if lost is not None:
            raise _Cause(
                "subscription lost",
                f"word of {held.id} went from {lost.broker} to {lost.peer} and stopped: "
                f"{lost.reason}",
                lost.broker,
            )
        way = self._way()
        for here, there in pairwise(way):
            for a, b in ((here, there), (there, here)):
                for life in history.links.get((a, b), ()):
                    if life.until_us is not None and life.until_us >= since_us - 1:
                        raise _Cause(
                            "subscription lost",
                            f"the link between {here} and {there} was down after {held.id} began, "
                            f"so {here} did not know of it",
                            here,
                        )
        for broker in way[:-1]:
            for life in history.brokers.get(broker, ()):
                if life.until_us is not None and since_us <= life.until_us:
                    raise _Cause(
                        "subscription lost",
                        f"broker {broker} went down after {held.id} began and did not know of it",
                        broker,
                    )
        raise _Cause(
            "subscription on its way",
            f"{held.id} began {_ms(time_us - since_us)} before it was published, and had not come "
            "to every broker on the way",
            held.broker,
        )

    def _look_at_advertisement(self, held: Interested, time_us: TimeUs) -> None:
        """Where publishers advertise, subscriptions go where they have: had they?"""
        assert self.published is not None
        history, publisher = self.history, self.published.publisher
        own = [
            one
            for one in history.advertisements.values()
            if one.client == publisher and matches(history.filter(one.text), self.attributes)
        ]
        if not any(one.stood(time_us) for one in own):
            raise _Cause(
                "not advertised", f"{publisher} had advertised nothing that covers it",
                self.published.broker,
            )  # fmt: skip
        since_us = min(one.since_us for one in own if one.stood(time_us))
        came = [
            row.time_us
            for row in history.asked.get(held.broker, ())
            if row.mechanism == "advertisement" and row.time_us >= since_us
            and any(row.filter == one.text for one in own)
        ]  # fmt: skip
        if not came or came[0] > time_us:
            raise _Cause(
                "advertised later",
                f"{publisher} advertised it {_ms(max(0, time_us - since_us))} before, and broker "
                f"{held.broker} did not know of it yet",
                held.broker,
            )
