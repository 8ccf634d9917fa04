"""The simulator: a clock, a heap, and a loop that performs what routers ask for.

Events of one time happen in the order in which they were scheduled, so a run is a pure function
of its scenario; the heap holds each time once, because many events share one. Links are FIFO: a
message never overtakes an earlier one on the same link and direction, also when a fault delays
that one. A broker with a service rate handles one input at a time, first come first served, from
a queue that may be bounded: a publication that finds it full is dropped and counted; control
messages are always admitted, because a lost subscription would silently lose every publication
after it. What costs its sender time (a direct send of PopSub) joins the sender's own queue, and
leaves when its turn is over.

Faults are data. A link that is down loses what is on it and both ends are told at once; a
broker that crashes forgets everything, and when it restarts its clients come back by
themselves: they advertise and subscribe again.

A publisher stands beside the broker it first connects to, at no distance. A scheme may move it
to another broker; the way there takes as long as the way between the two brokers.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from postroad import draws
from postroad.cost.service import MEASURED, Costs
from postroad.model import (
    Advertisement,
    AdvertisementId,
    BrokerId,
    PublicationKey,
    Subscription,
    SubscriptionId,
    TimeUs,
)
from postroad.relocation.publisher import GRACE_US, MOVE_US, Outbound, Publisher
from postroad.routing.base import (
    Advertise,
    CancelTimer,
    Deliver,
    Effect,
    Input,
    Leave,
    LinkDown,
    LinkUp,
    Measure,
    Measured,
    Message,
    Migrate,
    Move,
    Note,
    Ping,
    Pinged,
    Plan,
    Publish,
    Received,
    Resume,
    Router,
    Send,
    SetTimer,
    Start,
    Subscribe,
    TimerFired,
    ToPublisher,
    Unadvertise,
    Unsubscribe,
)
from postroad.traces.schema import CRASHED, DOWN, FULL, LOST

if TYPE_CHECKING:
    from postroad.sim.scenario import Deviations
    from postroad.sim.tracing import Tracing

_LOOK_EVERY = 256

Observer = Callable[[TimeUs, BrokerId, Input, Sequence[Effect]], None]
Delivery = tuple[PublicationKey, SubscriptionId, BrokerId, TimeUs, int, str]
"""Publication, subscription, broker, time, hops, and by which mechanism it came."""
Pause = tuple[BrokerId, bool, int]
"""A publisher's home, whether it waits, and for which grace."""
Act = tuple[Callable[..., None], tuple[object, ...]]
"""What to call, and with what."""
Arrival = tuple[Received, "Link", int]
"""A message, its link, and how often that had gone down when it was sent."""
Event = Act | Arrival
FaultKind = Literal["link_down", "link_delay", "link_loss", "aside_loss", "crash", "leave"]


@dataclass(frozen=True, slots=True)
class Fault:
    """From `start_us` to `end_us`: a link is down, late or lossy, or a broker has crashed.

    One that leaves is told at `start_us`, when its clients have gone, and stops for good at
    `end_us`. `where` is `(a, b)` for a link, `(a,)` for a broker and `()` for `aside_loss`, which
    loses messages that do not travel over the tree; `amount` is the added delay in microseconds, or
    the share of messages lost.
    """

    kind: FaultKind
    where: tuple[BrokerId, ...]
    start_us: TimeUs
    end_us: TimeUs
    amount: float = 0.0


@dataclass(slots=True)
class Link:
    """One direction of a link between two brokers."""

    source: BrokerId
    target: BrokerId
    latency_us: TimeUs
    downs: int = 0  # how many faults hold it down; up when 0
    epoch: int = 0  # grows whenever it goes down: what was on it then is lost
    free_us: TimeUs = 0  # nothing may arrive before this: links are FIFO
    delay_us: TimeUs = 0
    loss: float = 0.0
    drawn: int = 0
    measured_us: Sequence[TimeUs] = ()  # how much later than `latency_us` messages arrive
    lost: int = 0
    # Whether messages arrive after `latency_us`, and nothing else is to be seen to.
    plain: bool = False
    messages: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    copies: int = 0  # publications in those messages


@dataclass(slots=True)
class MovingPublisher:
    """A publisher that has been moved: where it stands, and its layer that knows where it is."""

    name: str
    origin: BrokerId
    publisher: Publisher
    free_us: dict[BrokerId, TimeUs] = field(default_factory=dict)  # connections are FIFO
    paused_us: TimeUs = 0
    source: BrokerId = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """A publisher paused at one broker and went on at another, or at the same after a fault."""

    advertisement_id: AdvertisementId
    source: BrokerId
    target: BrokerId
    time_us: TimeUs
    wait_us: TimeUs


@dataclass(slots=True)
class Sends:
    """Messages of one step that cost their sender time, in its queue."""

    messages: list[tuple[Link, Received]]


@dataclass(slots=True)
class Broker:
    """One broker's router, queue and counters."""

    router: Router
    up: bool = True
    queue: deque[tuple[Input | Sends, Link | None, int]] = field(default_factory=deque)
    served_count: int = 0
    busy_us: TimeUs = 0
    copying_us: TimeUs = 0
    queue_max: int = 0
    queue_area: int = 0  # sum of length times microseconds
    queue_since: TimeUs = 0
    life: int = 0  # grows at each crash: what was scheduled for an earlier life is void
    timers: dict[str, int] = field(default_factory=dict)
    subscriptions: dict[SubscriptionId, Subscription] = field(default_factory=dict)
    advertisements: dict[str, Advertisement] = field(default_factory=dict)
    received: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    # Added up from its links after a run.
    sent: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    matches_count: int = 0  # of earlier lives; the router counts the present one
    table_entries_max: int = 0
    deliveries: int = 0
    pure_forwards: int = 0
    false_sends: int = 0  # publications received here that were neither delivered nor sent on
    dropped: int = 0
    refused: int = 0


class Agenda(dict[TimeUs, list[Event]]):
    """The events of each time, in the order in which they were scheduled.

    `times` is a heap of these times. `due` goes through the events of now; what is scheduled for
    now meanwhile comes after them, as if it were a later time.
    """

    def __init__(self) -> None:
        self.times: list[TimeUs] = []
        self.now: TimeUs = 0
        self.due: Iterator[Event] = iter(())

    def __missing__(self, time_us: TimeUs) -> list[Event]:
        heapq.heappush(self.times, time_us)
        events: list[Event] = []
        self[time_us] = events
        return events

    def is_due(self) -> bool:
        """Whether something more is scheduled for now."""
        return bool(self.times) and self.times[0] == self.now

    def advance(self) -> TimeUs:
        """Go to the next time; which it is."""
        self.now = heapq.heappop(self.times)
        self.due = iter(self.pop(self.now))
        return self.now


class Simulator:
    # Python looks up attributes, and methods, faster in slots than in a dict of more than thirty.
    __slots__ = (
        "_acts",
        "_agenda",
        "_arrived",
        "_chatter",
        "_look",
        "_movers",
        "_pending",
        "_planned",
        "_sent",
        "_under_way",
        "_watched",
        "aside_loss",
        "asides",
        "brokers",
        "buffer_max",
        "check",
        "clients",
        "copy_us",
        "costs",
        "deliveries",
        "links",
        "measured",
        "moves",
        "notes",
        "now",
        "observer",
        "plan",
        "refused",
        "seed",
        "sending_us",
        "service_us",
        "steps_count",
        "tracing",
    )

    def __init__(
        self,
        plan: Plan,
        *,
        seed: int = 0,
        service_us: TimeUs | Sequence[TimeUs] = 0,
        copy_us: TimeUs = 0,
        costs: Costs = MEASURED,
        buffer_max: int | None = None,
        observer: Observer | None = None,
        check: bool = False,
        tracing: Tracing | None = None,
        measured: Deviations | None = None,
        hasty: bool = False,
    ) -> None:
        self.plan = plan
        self.seed = seed
        self.copy_us = copy_us
        self.costs = costs
        self.buffer_max = buffer_max
        self.observer = observer
        self.check = check
        self.tracing = tracing
        self._watched = check or bool(copy_us) or observer is not None or tracing is not None
        self.measured = measured
        # While the network is set up in haste: messages in the order in which they were sent.
        self._under_way: deque[tuple[Received, Link]] | None = deque() if hasty else None
        self.now: TimeUs = 0
        self.steps_count = 0
        self.deliveries: list[Delivery] = []
        self.notes: list[tuple[TimeUs, BrokerId, str]] = []
        self.refused: set[PublicationKey] = set()
        self.clients: dict[AdvertisementId, MovingPublisher] = {}  # the publishers that were moved
        self._movers: dict[
            tuple[BrokerId, str], MovingPublisher
        ] = {}  # the same, by where they stand
        self.moves: list[Moved] = []
        self._agenda = Agenda()
        self._acts = 0  # that were put on the agenda
        self._sent = 0  # messages that were put on it,
        self._arrived = 0  # and those of them that have come
        self._chatter = 0  # messages under way that are no reason to go on by themselves
        self._look = 0  # whether a run is over when so many events have been on the agenda
        self._planned = 0  # inputs of clients and faults on the agenda
        self._pending = 0  # inputs in service, and what publishers and brokers tell each other
        peers = plan.links()
        self.service_us = [service_us] * len(peers) if isinstance(service_us, int) else service_us
        self.sending_us = [round(us * costs.sending) for us in self.service_us]
        self.links: list[dict[BrokerId, Link]] = [
            {peer: Link(broker, peer, latency) for peer, latency in links.items()}
            for broker, links in enumerate(peers)
        ]
        self.aside_loss = 0.0
        self.asides: dict[tuple[BrokerId, BrokerId], Link] = {}
        for link in self._all_links():
            self._look_over(link)
        self.brokers = [Broker(plan.router(broker)) for broker in range(len(peers))]
        for links in self.links:
            for link in links.values():
                self._count_introductions(link, plan.introductions(link.source, link.target))
        for number in range(len(self.brokers)):
            self._step(number, Start())
        for number, links in enumerate(self.links):
            for peer in links:
                self._step(number, LinkUp(peer))

    def _count_introductions(self, link: Link, counts: Mapping[str, int]) -> None:
        """Routers that start from what a planner knew have in effect been told."""
        received = self.brokers[link.target].received
        for kind, count in counts.items():
            link.messages[kind] += count
            received[kind] += count

    # What a caller does: schedule inputs and faults, then run.

    def at(self, time_us: TimeUs, broker: BrokerId, input: Input) -> None:
        """A client's input, at this time."""
        self._planned += 1
        self._push(time_us, self._client, (broker, input))

    def fault(self, fault: Fault) -> None:
        self._planned += 2
        self._push(fault.start_us, self._begin, (fault,))
        self._push(fault.end_us, self._end, (fault,))

    def settle(self) -> TimeUs:
        """Run until no message is under way; timers may remain. The time then."""
        if self._under_way is not None:
            self._hurry(self._under_way)
        agenda = self._agenda
        while self._sent > self._arrived or self._pending or agenda.is_due():
            self.now = agenda.advance()
            for event in agenda.due:
                if len(event) == 3:
                    input, link, epoch = event
                    self._arrive(input, link, epoch)
                else:
                    act, arguments = event
                    act(*arguments)
        return self.now

    def _hurry(self, under_way: deque[tuple[Received, Link]]) -> None:
        """Settle without time: brokers take none, and messages arrive in the order in which they
        were sent, as if all links were as long."""
        brokers, agenda, step = self.brokers, self._agenda, self._step
        while under_way or agenda.is_due():
            if agenda.is_due():
                agenda.advance()
                for event in agenda.due:
                    assert len(event) == 2, "messages are not on the agenda"
                    act, arguments = event
                    act(*arguments)
                continue
            input, link = under_way.popleft()
            brokers[link.target].received[input.message.kind] += 1
            step(link.target, input)

    def run(self, until_us: TimeUs | None = None) -> None:
        """Run until nothing is under way and every router is idle, or until this time."""
        if self._under_way is not None:
            self._under_way = None
            for link in self._all_links():
                self._look_over(link)
        self._look = 0
        agenda, times = self._agenda, self._agenda.times
        over = self._is_over()
        while not over:
            for event in agenda.due:
                if len(event) == 3:
                    input, link, epoch = event
                    self._arrive(input, link, epoch)
                else:
                    act, arguments = event
                    act(*arguments)
                if not self._planned and self._is_over():
                    over = True
                    break
            else:
                if not times or (until_us is not None and times[0] > until_us):
                    break
                self.now = agenda.advance()
        for broker in self.brokers:
            self._count_queue(broker)
            broker.sent.clear()
        for link in self._all_links():
            sent = self.brokers[link.source].sent
            for kind, count in link.messages.items():
                sent[kind] += count

    def _is_over(self) -> bool:
        """Whether there is no reason to go on: timers, chatter and idle routers are none."""
        if self._planned or self._pending or self._sent > self._arrived + self._chatter:
            return False
        if self._sent + self._acts < self._look:
            return False
        if not any(_pause_of(client.publisher)[1] for client in self.clients.values()) and all(
            each.router.idle() for each in self.brokers if each.up
        ):
            return True
        # To ask every router is not free: look again only after so many new events.
        self._look = self._sent + self._acts + _LOOK_EVERY
        return False

    def _all_links(self) -> Iterator[Link]:
        for links in self.links:
            yield from links.values()
        yield from self.asides.values()

    def end(self) -> None:
        """Forget what is left to do: it knows the simulator, which could not go without a search
        for garbage."""
        self._agenda = Agenda()

    # The loop.

    def _push(
        self, time_us: TimeUs, act: Callable[..., None], arguments: tuple[object, ...]
    ) -> None:
        assert time_us >= self.now, "time does not run backwards"
        self._acts += 1
        self._agenda[time_us].append((act, arguments))

    def _client(self, number: BrokerId, input: Input) -> None:
        self._planned -= 1
        self._ask(number, input)

    def _ask(self, number: BrokerId, input: Input) -> None:
        """A client asks its broker for something, or publishes."""
        if self.clients:
            client = self._moved(number, input)
            if client is not None:
                self._tell(client, client.publisher.give(input))
                return
        broker = self.brokers[number]
        match input:  # what a client holds is known to the client: it survives a crash
            case Subscribe(subscription):
                broker.subscriptions[subscription.id] = subscription
            case Unsubscribe(subscription_id):
                broker.subscriptions.pop(subscription_id, None)
            case Advertise(advertisement):
                known = broker.advertisements.get(advertisement.id)
                if known is not None:
                    input = Advertise(replace(advertisement, epoch=known.epoch + 1))
                broker.advertisements[advertisement.id] = input.advertisement
            case Unadvertise(advertisement_id):
                broker.advertisements.pop(advertisement_id, None)
            case Publish() if not broker.up:
                self._refuse(number, input)
            case _:
                pass
        if broker.up:
            self._take(number, input)

    def _arrive(self, input: Received, link: Link, epoch: int) -> None:
        message, number = input.message, link.target
        self._arrived += 1
        if self._chatter and message.chatter:
            self._chatter -= 1
        if link.epoch != epoch:
            self._lose_message(link, input, DOWN)
            return
        broker = self.brokers[number]
        broker.received[message.kind] += 1
        if self.tracing is not None:
            recorder = self.tracing.recorders[number]
            recorder.received(link.source, message, None, len(broker.queue), self.now)
        if self.service_us[number]:
            self._wait(number, input, link, epoch)
        else:
            self._step(number, input)

    def _take(self, number: BrokerId, input: Input) -> None:
        """Handle what comes over no link at once, or queue it."""
        if self.service_us[number] and self._under_way is None:
            self._wait(number, input, None, 0)
        else:
            self._step(number, input)

    def _wait(self, number: BrokerId, input: Input, link: Link | None, epoch: int) -> None:
        """Queue an input behind what the broker is busy with, unless it finds the queue full."""
        broker = self.brokers[number]
        if (
            self.buffer_max is not None
            and len(broker.queue) >= self.buffer_max
            and _publication(input)
        ):
            broker.dropped += 1
            if self.tracing is not None:
                self.tracing.stopped(number, input, FULL, self.now)
            return
        self._queue(number, broker, input, link, epoch)

    def _queue(
        self,
        number: BrokerId,
        broker: Broker,
        waiting: Input | Sends,
        link: Link | None,
        epoch: int,
    ) -> None:
        self._count_queue(broker)
        queue = broker.queue
        queue.append((waiting, link, epoch))
        length = len(queue)
        if length > broker.queue_max:
            broker.queue_max = length
        if length == 1:
            self._serve(number, broker)

    def _serve(self, number: BrokerId, broker: Broker) -> None:
        self._pending += 1
        first = broker.queue[0][0]
        took_us = self.service_us[number]
        if type(first) is Sends:
            took_us = self.sending_us[number] * len(first.messages)
        elif type(first) is Received and first.message.carries:
            message = first.message
            took_us = round(took_us * self.costs.units(message.kind, message.size))
        broker.served_count += 1
        broker.busy_us += took_us
        self._push(self.now + took_us, self._served, (number, broker.life))

    def _served(self, number: BrokerId, life: int) -> None:
        self._pending -= 1
        broker = self.brokers[number]
        if broker.life != life:
            return
        input, link, epoch = broker.queue[0]
        if type(input) is Sends:
            self._next(number, broker)
            for aside, message in input.messages:
                self._send(aside, message, 0)
            return
        assert not isinstance(input, Sends)
        if self.copy_us and (link is None or link.epoch == epoch):
            # The broker stays busy for each copy it makes, and the next input waits.
            late_us = self._step(number, input)
            broker.copying_us += late_us
            self._pending += 1
            self._push(self.now + late_us, self._copied, (number, life))
            return
        self._next(number, broker)
        if link is None or link.epoch == epoch:
            self._step(number, input)
        else:  # it had come, and its link has gone down since
            link.lost += 1
            if self.tracing is not None:
                self.tracing.stopped(number, input, DOWN, self.now)

    def _copied(self, number: BrokerId, life: int) -> None:
        self._pending -= 1
        if self.brokers[number].life == life:
            self._next(number, self.brokers[number])

    def _next(self, number: BrokerId, broker: Broker) -> None:
        self._count_queue(broker)
        broker.queue.popleft()
        if broker.queue:
            self._serve(number, broker)

    def _count_queue(self, broker: Broker) -> None:
        now = self.now
        if broker.queue:
            broker.queue_area += len(broker.queue) * (now - broker.queue_since)
        broker.queue_since = now

    def _step(self, number: BrokerId, input: Input) -> TimeUs:
        """One step of one router, and its effects in order; how long its copies take."""
        broker = self.brokers[number]
        effects = broker.router.step(input, self.now)
        self.steps_count += 1
        late_us = self._watch(number, broker.router, input, effects) if self._watched else 0
        if effects:
            self._perform(number, broker, effects, late_us)
        if type(input) is Received:
            carries = input.message.carries
            if carries and not effects:
                broker.false_sends += 1
        else:
            carries = type(input) is Publish
        if not carries:
            entries = broker.router.table_entries()
            if entries > broker.table_entries_max:
                broker.table_entries_max = entries
        return late_us

    def _watch(
        self, number: BrokerId, router: Router, input: Input, effects: Sequence[Effect]
    ) -> TimeUs:
        """Show a step to those who look on; how long its copies take."""
        if self.observer is not None:
            self.observer(self.now, number, input, effects)
        if self.tracing is not None:
            self.tracing.recorders[number].stepped(input, effects, self.now, router.holds)
            self.tracing.stepped()
        if self.check:
            router.check()
        return self.copy_us * _copies(effects) if self.copy_us else 0

    def _perform(
        self, number: BrokerId, broker: Broker, effects: Sequence[Effect], late_us: TimeUs
    ) -> None:
        """The effects of a step, in order."""
        now, links, agenda = self.now, self.links[number], self._agenda
        forwards, delivered = False, broker.deliveries
        laborious: list[tuple[Link, Received]] = []
        message: Message | None = None
        for effect in effects:
            if type(effect) is Send:  # by far the most frequent effects first
                if effect.message is not message:  # else it goes to several
                    message = effect.message
                    input, kind = Received(message, number), message.kind
                    plain, copies = not message.chatter, 0
                    if message.carries:
                        plain, copies = plain and not message.laborious, message.size
                        forwards = forwards or message.forwards
                link = links.get(effect.peer) or self._aside(number, effect.peer)
                if plain and link.plain:
                    link.messages[kind] += 1
                    if copies:
                        link.copies += copies
                    self._sent += 1
                    agenda[now + link.latency_us].append((input, link, link.epoch))
                elif message.laborious and self.sending_us[number] and self._under_way is None:
                    laborious.append((link, input))
                else:
                    self._send(link, input, late_us)
            elif type(effect) is Deliver:
                publication = effect.publication
                self.deliveries.append(
                    (
                        (publication.publisher, publication.id), effect.subscription_id, number,
                        now + late_us, effect.hops, effect.via,
                    )
                )  # fmt: skip
                broker.deliveries += 1
            else:
                self._perform_other(number, broker, effect)
        if laborious:
            self._queue(number, broker, Sends(laborious), None, 0)
        if forwards and broker.deliveries == delivered:
            broker.pure_forwards += 1

    def _perform_other(self, number: BrokerId, broker: Broker, effect: Effect) -> None:
        """An effect that is neither a message nor a delivery."""
        match effect:
            case Send() | Deliver():
                pass  # seen to by `_perform`
            case SetTimer(name, after_us):
                self._acts += 1
                broker.timers[name] = self._acts
                self._push(self.now + after_us, self._fire, (number, name, self._acts, broker.life))
            case CancelTimer(name):
                broker.timers.pop(name, None)
            case Note(text):
                self.notes.append((self.now, number, text))
            case Move() | Resume() | Ping():
                self._say(number, effect)
            case Measure():
                self._pending += 1
                self._push(self.now, self._measure, (number, broker.life))

    def _aside(self, source: BrokerId, target: BrokerId) -> Link:
        """The way to a broker that is no neighbour, opened when it is first used."""
        link = self.asides.get((source, target))
        if link is None:
            link = Link(source, target, self.plan.direct_us(source, target))
            link.downs = 0 if self.brokers[target].up else 1
            link.loss = self.aside_loss
            self._look_over(link)
            self.asides[source, target] = link
        return link

    def _send(self, link: Link, input: Received, late_us: TimeUs) -> None:
        message = input.message
        link.messages[message.kind] += 1
        if message.carries:
            link.copies += message.size
        if self.tracing is not None:
            recorder = self.tracing.recorders[link.source]
            recorder.sent(link.target, message, None, None, self.now)
        if link.downs:
            self._lose_message(link, input, DOWN)
            return
        if self._under_way is not None:
            self._under_way.append((input, link))
            return
        if link.loss:
            link.drawn += 1
            key = link.source * len(self.brokers) + link.target
            if draws.uniform(self.seed, "link_loss", key, link.drawn) < link.loss:
                self._lose_message(link, input, LOST)
                return
        arrival = self.now + late_us + link.latency_us + link.delay_us
        if link.measured_us:
            arrival = max(self.now, arrival + self._deviation_us(link))
        if arrival < link.free_us:
            arrival = link.free_us
        link.free_us = arrival
        self._sent += 1
        if message.chatter:
            self._chatter += 1
        self._agenda[arrival].append((input, link, link.epoch))

    def _look_over(self, link: Link) -> None:
        """See which latencies a link has, and whether all else about it is plain."""
        if self.measured is not None:
            link.measured_us = self.measured.of_link_us.get((link.source, link.target), ())
        link.plain = not (
            link.measured_us
            or link.downs
            or link.delay_us
            or link.loss
            or self.copy_us
            or self.tracing is not None
            or self._under_way is not None
        )

    def _deviation_us(self, link: Link) -> TimeUs:
        """How much later than usual the next message arrives."""
        measured_us, n = link.measured_us, link.drawn
        link.drawn += 1
        assert self.measured is not None
        if self.measured.in_order:
            return measured_us[n] if n < len(measured_us) else 0
        key = link.source * len(self.brokers) + link.target
        return measured_us[draws.below(len(measured_us), self.seed, "link_time", key, n)]

    def _lose_message(self, link: Link, input: Input, reason: str) -> None:
        link.lost += 1
        if self.tracing is not None:
            self.tracing.stopped(link.source, input, reason, self.now, link.target)

    def _refuse(self, number: BrokerId, input: Publish) -> None:
        """A publication finds its broker down."""
        self.brokers[number].refused += 1
        self.refused.add(input.publication.key)
        if self.tracing is not None:
            self.tracing.stopped(number, input, CRASHED, self.now)

    def _fire(self, number: BrokerId, name: str, stamp: int, life: int) -> None:
        broker = self.brokers[number]
        if broker.life == life and broker.timers.get(name) == stamp:
            del broker.timers[name]
            self._step(number, TimerFired(name))

    # Publishers that move.

    def _moved(self, number: BrokerId, input: Input) -> MovingPublisher | None:
        """The moved publisher that gives this input, if it is one."""
        match input:
            case Publish(publication):
                return self._movers.get((number, publication.publisher))
            case Advertise(Advertisement(name)) | Unadvertise(name) if name in self.clients:
                return self.clients[name] if self.clients[name].origin == number else None
            case _:
                return None

    def _way_us(self, client: MovingPublisher, broker: BrokerId) -> TimeUs:
        return 0 if broker == client.origin else self.plan.direct_us(client.origin, broker)

    def _say(self, number: BrokerId, word: ToPublisher) -> None:
        """A broker speaks to a publisher."""
        name = word.advertisement_id
        client = self.clients.get(name)
        if client is None:
            advertisement = self.brokers[number].advertisements.get(name)
            if advertisement is None:
                return  # it has withdrawn meanwhile
            if not isinstance(word, Ping):
                del self.brokers[number].advertisements[name]
            client = MovingPublisher(
                advertisement.publisher, number, Publisher(advertisement, number)
            )
            if not isinstance(word, Ping):
                self.clients[name] = self._movers[number, client.name] = client
        self._pending += 1
        self._push(self.now + self._way_us(client, number), self._hear, (client, number, word))

    def _hear(self, client: MovingPublisher, number: BrokerId, word: ToPublisher) -> None:
        self._pending -= 1
        publisher = client.publisher
        before = _pause_of(publisher)
        match word:
            case Move():
                outbound = publisher.on_move(word, number)
            case Resume():
                outbound = publisher.on_resume(word, number)
            case Ping(name, brokers, _):
                times = tuple((broker, self._way_us(client, broker)) for broker in brokers)
                outbound = [(number, Pinged(name, times))]
        self._act(client, outbound, before)

    def _act(self, client: MovingPublisher, outbound: Outbound, before: Pause) -> None:
        """What a publisher says after a word to it, and whether it has begun or ended to wait."""
        publisher = client.publisher
        home, paused, grace = before
        self._tell(client, outbound)
        if any(isinstance(input, Migrate) for _, input in outbound):
            epoch = publisher.advertisement.epoch
            self._push(self.now + MOVE_US, self._overdue, (client, epoch))
        if publisher.grace and publisher.grace != grace:
            self._pending += 1
            self._push(self.now + GRACE_US, self._grace, (client, publisher.grace))
        waits = _pause_of(publisher)[1]
        if waits and not paused:
            client.paused_us, client.source = self.now, home
        elif paused and not waits:
            wait_us = self.now - client.paused_us
            name = publisher.advertisement.id
            self.moves.append(Moved(name, client.source, publisher.home, self.now, wait_us))

    def _grace(self, client: MovingPublisher, grace: int) -> None:
        self._pending -= 1
        before = _pause_of(client.publisher)
        self._act(client, client.publisher.on_grace(grace), before)

    def _overdue(self, client: MovingPublisher, epoch: int) -> None:
        before = _pause_of(client.publisher)
        self._act(client, client.publisher.on_overdue(epoch), before)

    def _tell(self, client: MovingPublisher, outbound: Outbound) -> None:
        """A publisher speaks to brokers."""
        for broker, input in outbound:
            if isinstance(input, Unadvertise) and broker == client.publisher.home:
                self.clients.pop(input.advertisement_id, None)  # it withdraws for good
                self._movers.pop((client.origin, client.name), None)
            arrival = self.now + self._way_us(client, broker)
            arrival = max(arrival, client.free_us.get(broker, 0))
            client.free_us[broker] = arrival
            self._pending += 1
            self._push(arrival, self._reach_broker, (client, broker, input))

    def _reach_broker(self, client: MovingPublisher, number: BrokerId, input: Input) -> None:
        self._pending -= 1
        broker = self.brokers[number]
        if broker.up:
            self._take(number, input)
        elif isinstance(input, Publish):
            self._refuse(number, input)
        elif isinstance(input, Migrate):
            self._lose(client, number)

    def _lose(self, client: MovingPublisher, number: BrokerId) -> None:
        """A publisher learns that a broker is down."""
        before = _pause_of(client.publisher)
        self._act(client, client.publisher.on_lost(number), before)

    def _measure(self, number: BrokerId, life: int) -> None:
        self._pending -= 1
        broker = self.brokers[number]
        if broker.life == life:
            self._count_queue(broker)
            served = max(1, broker.served_count)
            match_us = broker.busy_us // served
            copying_us = broker.copying_us // served
            queue_us = max(0, broker.queue_area // served - match_us - copying_us)
            output = tuple(
                (peer, copying_us + link.latency_us) for peer, link in self.links[number].items()
            )
            self._step(number, Measured(queue_us, match_us, output, copying_us))

    # Faults.

    def _begin(self, fault: Fault) -> None:
        self._planned -= 1
        if fault.kind == "crash":
            self._crash(fault.where[0])
            return
        if fault.kind == "leave":
            self._leave(fault.where[0])
            return
        if fault.kind == "aside_loss":
            self._set_aside_loss(fault.amount)
            return
        for link in self._both(fault):
            link.plain = False  # for good: what is late must not be overtaken after the fault
            if fault.kind == "link_down":
                self._cut(link)
            elif fault.kind == "link_delay":
                link.delay_us += round(fault.amount)
            else:
                link.loss = fault.amount

    def _end(self, fault: Fault) -> None:
        self._planned -= 1
        if fault.kind == "crash":
            self._restart(fault.where[0])
            return
        if fault.kind == "leave":
            self._crash(fault.where[0])
            return
        if fault.kind == "aside_loss":
            self._set_aside_loss(0.0)
            return
        for link in self._both(fault):
            if fault.kind == "link_down":
                self._mend(link)
            elif fault.kind == "link_delay":
                link.delay_us -= round(fault.amount)
            else:
                link.loss = 0.0

    def _set_aside_loss(self, share: float) -> None:
        self.aside_loss = share
        for link in self.asides.values():
            link.plain = False
            link.loss = share

    def _both(self, fault: Fault) -> tuple[Link, Link]:
        a, b = fault.where
        return self.links[a][b], self.links[b][a]

    def _cut(self, link: Link) -> None:
        """One direction goes down; its source is told (the other end by the other direction)."""
        link.plain = False
        link.downs += 1
        link.epoch += 1
        if link.downs == 1 and self.brokers[link.source].up:
            self._step(link.source, LinkDown(link.target))

    def _mend(self, link: Link) -> None:
        link.downs -= 1
        if link.downs == 0:
            link.free_us = self.now
            self._step(link.source, LinkUp(link.target))

    def _crash(self, number: BrokerId) -> None:
        broker = self.brokers[number]
        self._count_queue(broker)
        broker.up = False
        broker.life += 1
        waiting: list[Input] = []
        for first, _, _ in broker.queue:
            if isinstance(first, Sends):
                waiting += [message for _, message in first.messages]
            else:
                waiting.append(first)
        broker.dropped += sum(map(_publication, waiting))
        if self.tracing is not None:
            for input in waiting:
                self.tracing.stopped(number, input, CRASHED, self.now)
            self.tracing.crashed(number, self.now)
        broker.queue.clear()
        broker.timers.clear()
        for peer, link in self.links[number].items():
            self._cut(link)
            self._cut(self.links[peer][number])
        for link in self.asides.values():
            if number in (link.source, link.target):
                link.plain = False
                link.downs += 1
                link.epoch += 1
        for client in list(self.clients.values()):
            self._lose(client, number)

    def _leave(self, number: BrokerId) -> None:
        broker = self.brokers[number]
        for name in list(broker.subscriptions):
            self._ask(number, Unsubscribe(name))
        for advertisement_id in list(broker.advertisements):
            self._ask(number, Unadvertise(advertisement_id))
        self._take(number, Leave())

    def _restart(self, number: BrokerId) -> None:
        broker = self.brokers[number]
        broker.up = True
        broker.matches_count += broker.router.matches_count
        broker.router = self.plan.router(number)
        if self.tracing is not None:
            self.tracing.restarted(number, self.now)
        for link in self.asides.values():  # before any is opened by what follows
            if number in (link.source, link.target):
                link.downs -= 1
        self._step(number, Start())
        for peer, link in self.links[number].items():
            self._mend(link)
            self._mend(self.links[peer][number])
        for advertisement in list(broker.advertisements.values()):
            self._take(number, Advertise(advertisement))
        for subscription in list(broker.subscriptions.values()):
            self._take(number, Subscribe(subscription))
        for client in list(self.clients.values()):
            before = _pause_of(client.publisher)
            self._act(client, client.publisher.on_back(number), before)


def _pause_of(publisher: Publisher) -> Pause:
    waits = publisher.target is not None or publisher.grace > 0
    return publisher.home, waits, publisher.grace


def _copies(effects: Sequence[Effect]) -> int:
    """How many copies of publications a step makes, for neighbours and for clients."""
    return sum(
        effect.message.carries if type(effect) is Send else type(effect) is Deliver
        for effect in effects
    )


def _publication(input: Input) -> bool:
    if type(input) is Received:
        return input.message.carries
    return type(input) is Publish
