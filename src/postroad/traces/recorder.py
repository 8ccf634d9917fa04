"""One broker's events as rows: its driver reports each event, and takes the rows when it likes.

No clock and no file. Of publications only a share is recorded, the same ones at every broker:
the sample is a function of the key. Control traffic (subscriptions, advertisements, links, moves)
is always recorded.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zlib import crc32

import msgspec

from postroad.model import (
    BrokerId,
    Publication,
    PublicationKey,
    Scalar,
    Subscription,
    TimeUs,
)
from postroad.routing.base import (
    Advertise,
    Deliver,
    Effect,
    Input,
    LinkDown,
    LinkUp,
    Message,
    Migrate,
    Move,
    Note,
    Paused,
    PublicationMessage,
    Publish,
    Received,
    Resume,
    Send,
    Start,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from postroad.traces.schema import (
    CRASHED,
    DOWN,
    DUPLICATE,
    HASH,
    NO_MATCH,
    NO_WAY,
    NONE,
    UNADVERTISED,
    VERSION,
    Recording,
    Row,
)

HERE_MAX = 16_384  # publications that a broker remembers to have had, to tell repeated ones
_json = msgspec.json.Encoder(order="deterministic").encode


def sampler(share: float) -> Callable[[Publication], bool]:
    """Whether to record a publication: by its identifier's checksum, so that all brokers agree.

    It is asked of every publication, several times in a step, so the last answer is kept. Counters
    in identifiers spread evenly over the checksums.
    """
    if share >= 1:
        return lambda _: True
    below = int(share * 2**32)
    last: Publication | None = None
    answer = False

    def sampled(publication: Publication) -> bool:
        nonlocal last, answer
        if publication is not last:
            last, answer = publication, crc32(publication.id.encode()) < below
        return answer

    return sampled


def unsampled(share: float, prefix: str, first: int, most: int) -> int:
    """How many publications in a row are not recorded, from this number in their identifiers on."""
    if share >= 1:
        return 0
    below = int(share * 2**32)
    begun = crc32(f"{prefix}.".encode())
    for number in range(first, first + most):
        if crc32(b"%d" % number, begun) < below:
            return number - first
    return most


class Recorder:
    def __init__(
        self,
        trace_id: str,
        names: Sequence[str],
        broker: BrokerId,
        recording: Recording,
        life: int = 0,
        key: bytes = b"",
    ) -> None:
        """`key` is what hashes of attributes are keyed with."""
        self.trace_id, self.names, self.number = trace_id, names, broker
        self.broker = names[broker]
        self.life = life
        self.zero_us: TimeUs = 0  # rows have times from here
        self.rows: list[Row] = []
        self.sequence = 0
        self._key = hashlib.sha256(key or trace_id.encode()).digest()
        self._here: OrderedDict[PublicationKey, None] = OrderedDict()
        self._held: dict[PublicationKey, Publication] = {}  # that wait here and went nowhere yet
        self.configure(recording)

    def configure(self, recording: Recording) -> None:
        """Change what is recorded from now on."""
        self.recording = recording
        # Whether a publication is recorded, here and everywhere.
        self.sampled = sampler(recording.sample)
        self._hidden = frozenset(recording.exclude)

    def row(self, kind: str, now: TimeUs, **columns: Any) -> None:
        self.sequence += 1
        time_us = now - self.zero_us
        self.rows.append(
            Row(self.trace_id, self.broker, self.life, self.sequence, kind, time_us, **columns)
        )

    def take(self) -> list[Row]:
        rows, self.rows = self.rows, []
        return rows

    # The broker itself.

    def started(self, network: Mapping[str, Any], now: TimeUs) -> None:
        """`network` is all that a replay needs to know of it."""
        self.row("start", now, detail=_json({"schema": VERSION, **network}).decode())

    def loaded(self, measured: Mapping[str, Any], now: TimeUs) -> None:
        self.row("load", now, detail=_json(measured).decode())

    def more(self, subscription: Subscription) -> dict[str, Any]:
        """Further columns of a subscription that only the driver knows."""
        return {}

    # Steps of the router.

    def stepped(
        self,
        input: Input,
        effects: Sequence[Effect],
        now: TimeUs,
        holds: Callable[[Publication], bool],
    ) -> None:
        """One input and its effects. `holds` is whether a publication is queued at this broker."""
        kind = type(input)
        if kind is Publish:  # by far the most frequent inputs first, and mostly not sampled
            publication = input.publication  # type: ignore[union-attr]
            if self.sampled(publication):
                self.published(publication, now)
                self._carried(input, (publication,), effects, now, holds)
            elif effects and type(effects[0]) is Note:
                self._done(effects[0], now)
            return
        if kind is Received:
            message = input.message  # type: ignore[union-attr]
            if type(message) is PublicationMessage and not self.sampled(message.publication):
                return
            if not message.carries:
                self._effects(effects, now)
                return
            publications = message.publications
            if len(publications) != 1 or self.sampled(publications[0]):
                self._carried(input, publications, effects, now, holds)
            return
        self._said(input, now)
        self._effects(effects, now)
        if kind is LinkDown and self._held:
            for key, publication in list(self._held.items()):
                if not holds(publication):
                    del self._held[key]
                    self.stopped(publication, DOWN, now, peer=self.names[input.peer])  # type: ignore[union-attr]

    def _effects(self, effects: Sequence[Effect], now: TimeUs) -> set[PublicationKey]:
        """Record effects; the publications that they send on or deliver."""
        onward: set[PublicationKey] = set()
        for effect in effects:
            if type(effect) is Deliver:
                self._delivered(effect, now)
                onward.add(effect.publication.key)
            elif type(effect) is Send:
                if effect.message.carries:
                    onward.update(publication.key for publication in effect.message.publications)
            else:
                self._done(effect, now)
        if self._held:
            for key in onward & self._held.keys():
                del self._held[key]
        return onward

    def _carried(
        self,
        input: Input,
        publications: Sequence[Publication],
        effects: Sequence[Effect],
        now: TimeUs,
        holds: Callable[[Publication], bool],
    ) -> None:
        """An input that brings publications, of which some are sampled."""
        again = isinstance(input, Received) and input.sender == self.number  # kept by this broker
        onward = self._effects(effects, now)
        for publication in publications:
            if self.sampled(publication):
                repeated = not again and self._seen(publication)
                if again or publication.key in onward:
                    continue
                if holds(publication):
                    self._held[publication.key] = publication
                    continue
                reason = NO_MATCH
                if repeated:
                    reason = DUPLICATE
                elif effects and type(effects[0]) is Note:  # a router notes why it drops one
                    unknown = effects[0].text.startswith("dropped: nothing advertised")
                    reason = UNADVERTISED if unknown else NO_WAY
                self.stopped(publication, reason, now)

    def _seen(self, publication: Publication) -> bool:
        """Whether this broker has had it before; it is remembered from now on."""
        here, key = self._here, publication.key
        if key in here:
            return True
        here[key] = None
        if len(here) > HERE_MAX:
            here.popitem(last=False)
        return False

    def published(self, publication: Publication, now: TimeUs) -> None:
        if not self.sampled(publication):
            return
        self.row(
            "publish", now, publisher=publication.publisher, publication=publication.id,
            published_us=publication.time_us, client=publication.publisher,
            attributes=self.attributes(publication.attributes), bytes=len(publication.payload),
        )  # fmt: skip

    def attributes(self, attributes: Mapping[str, Scalar]) -> str | None:
        """As JSON, plain or hashed as the operator chose."""
        how = self.recording.attributes
        if how == NONE:
            return None
        shown = {name: value for name, value in attributes.items() if name not in self._hidden}
        if how == HASH:
            shown = {name: self._hash(value) for name, value in shown.items()}
        return _json(shown).decode()

    def _hash(self, value: Scalar) -> str:
        """A keyed hash: equal values of one network have equal hashes."""
        text = f"{type(value).__name__} {value}".encode()
        return hashlib.blake2b(text, digest_size=8, key=self._key).hexdigest()

    def _delivered(self, effect: Deliver, now: TimeUs) -> None:
        publication = effect.publication
        if self.sampled(publication):
            self.row(
                "deliver", now, publisher=publication.publisher, publication=publication.id,
                published_us=publication.time_us, subscription=effect.subscription_id,
                hops=effect.hops, mechanism=effect.via,
            )  # fmt: skip

    def _said(self, input: Input, now: TimeUs) -> None:
        """Record control input: subscriptions, advertisements, links, moves."""
        match input:
            case Subscribe(subscription):
                self.row(
                    "subscribe", now, client=subscription.client, subscription=subscription.id,
                    filter=str(subscription.filter), **self.more(subscription),
                )  # fmt: skip
            case Unsubscribe(subscription_id):
                self.row("unsubscribe", now, subscription=subscription_id)
            case Advertise(advertisement):
                self.row(
                    "advertise", now, client=advertisement.publisher,
                    advertisement=advertisement.id, epoch=advertisement.epoch,
                    filter=str(advertisement.filter),
                )  # fmt: skip
            case Unadvertise(advertisement_id):
                self.row("unadvertise", now, advertisement=advertisement_id)
            case LinkUp(peer):
                self.row("link", now, peer=self.names[peer], mechanism="up")
            case LinkDown(peer):
                self.row("link", now, peer=self.names[peer], mechanism="down")
            case Migrate(advertisement):
                self.row(
                    "move", now, client=advertisement.publisher, advertisement=advertisement.id,
                    epoch=advertisement.epoch, mechanism="arrive",
                )  # fmt: skip
            case Paused(advertisement_id, epoch):
                self.row(
                    "move", now, advertisement=advertisement_id, epoch=epoch, mechanism="pause"
                )
            case Start():
                pass  # `started` says more
            case _:
                pass  # timers, and answers to what a router asked its driver

    def _done(self, effect: Effect, now: TimeUs) -> None:
        match effect:
            case Note(text):
                self.row("note", now, reason=text)
            case Move(advertisement_id, target, epoch):
                self.row(
                    "move", now, advertisement=advertisement_id, peer=self.names[target],
                    epoch=epoch, mechanism="order",
                )  # fmt: skip
            case Resume(advertisement_id, epoch, _):
                self.row(
                    "move", now, advertisement=advertisement_id, epoch=epoch, mechanism="resume"
                )
            case _:
                pass  # timers, and questions to the driver

    # Messages between brokers.

    def sent(
        self, peer: BrokerId, message: Message, size: int | None, queue: int | None, now: TimeUs
    ) -> None:
        self._message("send", peer, message, size, queue, now)

    def received(
        self, peer: BrokerId, message: Message, size: int | None, queue: int | None, now: TimeUs
    ) -> None:
        """`queue` is the number of messages ahead of it."""
        self._message("receive", peer, message, size, queue, now)

    def _message(
        self,
        kind: str,
        peer: BrokerId,
        message: Message,
        size: int | None,
        queue: int | None,
        now: TimeUs,
    ) -> None:
        if type(message) is PublicationMessage and not self.sampled(message.publication):
            return
        publications = message.publications if message.carries else ()
        if len(publications) == 1 and not self.sampled(publications[0]):
            return
        if not publications:
            filter = message.about
            self.row(
                kind, now, peer=self.names[peer], mechanism=message.kind, bytes=size, queue=queue,
                filter=None if filter is None else str(filter), detail=str(message),
            )  # fmt: skip
            return
        several = len(publications) > 1
        for part, publication in enumerate(publications):
            if self.sampled(publication):
                self.row(
                    kind, now, peer=self.names[peer], mechanism=message.kind, bytes=size,
                    queue=queue, publisher=publication.publisher, publication=publication.id,
                    published_us=publication.time_us,
                    part=part if several else None, parts=len(publications) if several else None,
                )  # fmt: skip

    # Where publications stop.

    def crashed(self, now: TimeUs) -> None:
        """The broker crashed, and lost all that was queued in it."""
        for publication in self._held.values():
            self.stopped(publication, CRASHED, now)
        self._held.clear()
        self.row("end", now, reason="crash")

    def lost(self, message: Message, reason: str, now: TimeUs, peer: BrokerId | None) -> None:
        """A message was lost, with the publications that it carries."""
        name = None if peer is None else self.names[peer]
        publications = message.publications if message.carries else ()
        for publication in publications:
            self.stopped(publication, reason, now, peer=name)
        if not publications:
            self.row(
                "stop", now, peer=name, mechanism=message.kind, reason=reason,
                filter=None if message.about is None else str(message.about), detail=str(message),
            )  # fmt: skip

    def stopped(self, publication: Publication, reason: str, now: TimeUs, **columns: Any) -> None:
        """Columns may be `peer`, `subscription`, `client`."""
        if self.sampled(publication):
            self.row(
                "stop", now, publisher=publication.publisher, publication=publication.id,
                published_us=publication.time_us, reason=reason, **columns,
            )  # fmt: skip
