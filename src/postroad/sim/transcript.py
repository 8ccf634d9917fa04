"""A run as readable lines: what each broker was given, and what it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from postroad.model import BrokerId, TimeUs
from postroad.relocation.grape import TraceAnswer, TraceRequest
from postroad.relocation.migration import MigrationAbort, MigrationComplete, MigrationUpdate
from postroad.relocation.pop import RelocationAnswer, RelocationRequest, TraceResult
from postroad.routing.base import (
    Advertise,
    AdvertisementMessage,
    CancelTimer,
    Deliver,
    Effect,
    Input,
    LinkDown,
    LinkUp,
    Measure,
    Measured,
    Message,
    Migrate,
    Move,
    Note,
    Paused,
    Ping,
    Pinged,
    PublicationMessage,
    Publish,
    Received,
    Resume,
    Send,
    SetTimer,
    Start,
    Subscribe,
    SubscriptionMessage,
    TimerFired,
    Unadvertise,
    UnadvertisementMessage,
    Unsubscribe,
    UnsubscriptionMessage,
)
from postroad.routing.beaconvey import RangeMessage
from postroad.routing.direct import AnewMessage, ListedMessage, PathsMessage
from postroad.routing.kyra import (
    Done,
    Flushed,
    HandOver,
    Moving,
    NewPublication,
    Notification,
    ProxyMessage,
    Ready,
    Seated,
    TreePublication,
    TreeSubscription,
    TreeUnsubscription,
    UnproxyMessage,
)
from postroad.routing.popsub.messages import (
    Batch,
    CountedSubscription,
    CountedUnsubscription,
    DirectPost,
    Gossip,
    Post,
    Switch,
    TreePost,
)
from postroad.routing.scribe import DownMessage, TargetsMessage, UpMessage
from postroad.sim.engine import Observer


def transcribe(write: Callable[[str], object], names: Sequence[str]) -> Observer:
    """An observer that writes a line per input and an indented line per effect.

    Starts and links that come up without a word said are left out.
    """

    def observe(now: TimeUs, broker: BrokerId, given: Input, effects: Sequence[Effect]) -> None:
        if isinstance(given, (Start, LinkUp)) and not effects:
            return
        write(f"{now:>9} {names[broker]}: {said(given, names)}\n")
        for effect in effects:
            write(f"{'':>9}   {did(effect, names)}\n")

    return observe


def said(given: Input, names: Sequence[str]) -> str:
    match given:
        case Received(message, sender):
            return f"from {names[sender]}: {told(message)}"
        case Publish(publication):
            return (
                f"publish {publication.publisher}/{publication.id} {dict(publication.attributes)}"
            )
        case Subscribe(subscription):
            return f"subscribe {subscription.id}: {subscription.filter}"
        case Unsubscribe(subscription_id):
            return f"unsubscribe {subscription_id}"
        case Advertise(advertisement):
            return f"advertise {advertisement.id}: {advertisement.filter}"
        case Unadvertise(advertisement_id):
            return f"unadvertise {advertisement_id}"
        case LinkUp(peer):
            return f"link to {names[peer]} is up"
        case LinkDown(peer):
            return f"link to {names[peer]} is down"
        case TimerFired(name):
            return f"timer {name}"
        case Start():
            return "start"
        case Migrate(advertisement):
            return f"publisher of {advertisement.id} comes, epoch {advertisement.epoch}"
        case Paused(advertisement_id, epoch):
            return f"publisher of {advertisement_id} has paused, epoch {epoch}"
        case Pinged(advertisement_id, times_us):
            times = ", ".join(f"{names[broker]} {time_us} µs" for broker, time_us in times_us)
            return f"publisher of {advertisement_id} pinged {times}"
        case Measured(queue_us, match_us, _):
            return f"measured {queue_us} µs in the queue, {match_us} µs to match"


def did(effect: Effect, names: Sequence[str]) -> str:
    match effect:
        case Send(peer, message):
            return f"to {names[peer]}: {told(message)}"
        case Deliver(subscription_id, publication, hops, _):
            name = f"{publication.publisher}/{publication.id}"
            return f"deliver {name} to {subscription_id}, {hops} hops"
        case SetTimer(name, after_us):
            return f"set timer {name} in {after_us} µs"
        case CancelTimer(name):
            return f"cancel timer {name}"
        case Note(text):
            return f"note: {text}"
        case Move(advertisement_id, target, epoch):
            return f"publisher of {advertisement_id} is to go to {names[target]}, epoch {epoch}"
        case Resume(advertisement_id, epoch, _):
            return f"publisher of {advertisement_id} may go on here, epoch {epoch}"
        case Ping(advertisement_id, brokers, _):
            pinged = ", ".join(names[broker] for broker in brokers)
            return f"publisher of {advertisement_id} is to ping {pinged}"
        case Measure():
            return "measure"


def told(message: Message) -> str:
    match message:
        case PublicationMessage(publication, _):
            return f"publication {publication.publisher}/{publication.id}"
        case RangeMessage(publication, low, high, _):
            name = f"{publication.publisher}/{publication.id}"
            return f"publication {name} for positions {low} to before {high}"
        case UpMessage(publication, _) | DownMessage(publication, _):
            way = "up" if isinstance(message, UpMessage) else "down"
            return f"publication {publication.publisher}/{publication.id}, {way}"
        case TargetsMessage(publication, _, targets):
            name = f"{publication.publisher}/{publication.id}"
            return f"publication {name} for positions {', '.join(map(str, targets))}"
        case PathsMessage(publication, _, _):
            return f"publication {publication.publisher}/{publication.id} on shortest paths"
        case AnewMessage():
            return "anew"
        case ListedMessage(publication, servers, _):
            name = f"{publication.publisher}/{publication.id}"
            return f"publication {name} for brokers {', '.join(map(str, servers))}"
        case TreePublication(tree, _, _, publication, _):
            return f"publication {publication.publisher}/{publication.id} on tree {tree}"
        case NewPublication(_, publication, _) | Notification(publication, _):
            return f"{message.kind} {publication.publisher}/{publication.id}"
        case TreeSubscription(tree, _, _, filter) | TreeUnsubscription(tree, _, _, filter):
            return f"{message.kind} on tree {tree}: {filter}"
        case ProxyMessage(_, filter) | UnproxyMessage(_, filter):
            return f"{message.kind} {filter}"
        case HandOver(seat, to) | Moving(seat, to):
            return f"{message.kind} seat {seat} to broker {to}"
        case Seated(seat, proxied, heard):
            return f"seated {seat}: {len(proxied)} of the clique, {len(heard)} of the trees"
        case Flushed(seat) | Done(seat) | Ready(seat):
            return f"{message.kind} seat {seat}"
        case SubscriptionMessage(filter) | UnsubscriptionMessage(filter):
            return f"{message.kind} {filter}"
        case AdvertisementMessage(advertisement):
            return f"advertisement {advertisement.id}: {advertisement.filter}"
        case UnadvertisementMessage(advertisement_id):
            return f"unadvertisement {advertisement_id}"
        case CountedSubscription(name, filter, origin, hops):
            return f"subscription {name} of broker {origin}, {hops} hops: {filter}"
        case CountedUnsubscription(name):
            return f"unsubscription {name}"
        case TreePost(post, _):
            return f"publication {_name(post)}"
        case DirectPost(post):
            return f"directly {_name(post)}"
        case Batch(posts, _):
            return f"batch of {len(posts)}: {', '.join(map(_name, posts))}"
        case Switch(advertisement_id, _, to_gossip, number, _):
            return f"switch {advertisement_id} to {'gossip' if to_gossip else 'tree'} at {number}"
        case MigrationUpdate(advertisement):
            return f"{message.kind} {advertisement.id}, epoch {advertisement.epoch}"
        case MigrationComplete(advertisement_id, epoch) | MigrationAbort(advertisement_id, epoch):
            return f"{message.kind} {advertisement_id}, epoch {epoch}"
        case TraceResult(_, key, count):
            return f"{message.kind} {'/'.join(key)}: {count} behind here"
        case RelocationRequest(advertisement_id, total, _):
            return f"{message.kind} {advertisement_id}, {total:g} on this side"
        case RelocationAnswer(advertisement_id, path):
            return f"{message.kind} {advertisement_id}: broker {path[0]}"
        case TraceRequest(_, session):
            return f"{message.kind} {session}"
        case TraceAnswer(_, session, reports):
            brokers = ", ".join(
                f"{one.broker}: {one.deliveries} as {int.from_bytes(one.vector, 'little'):b}"
                for one in reports
            )
            return f"{message.kind} {session}: {brokers}"
        case Gossip():
            names = ", ".join(_name(post) for _, post in message.messages) or "nothing new"
            return f"gossip ({message.purpose}) about {message.advertisement_id}: {names}"
        case _:
            return f"{message.kind} {message}"


def _name(post: Post) -> str:
    return f"{post.publication.publisher}/{post.publication.id}"
