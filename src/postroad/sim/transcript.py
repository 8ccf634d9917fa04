"""A run as readable lines: what each broker was given, and what it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from postroad.model import BrokerId, TimeUs
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
    Migrate,
    Move,
    Note,
    Paused,
    Ping,
    Pinged,
    Publish,
    Received,
    Resume,
    Send,
    SetTimer,
    Start,
    Subscribe,
    TimerFired,
    Unadvertise,
    Unsubscribe,
)
from postroad.sim.engine import Observer


def transcribe(write: Callable[[str], object], names: Sequence[str]) -> Observer:
    """An observer that writes a line per input and an indented line per effect.

    Starts and links that come up without a word said are left out.
    """

    def observe(now: TimeUs, broker: BrokerId, input: Input, effects: Sequence[Effect]) -> None:
        if isinstance(input, (Start, LinkUp)) and not effects:
            return
        write(f"{now:>9} {names[broker]}: {said(input, names)}\n")
        for effect in effects:
            write(f"{'':>9}   {did(effect, names)}\n")

    return observe


def said(input: Input, names: Sequence[str]) -> str:
    match input:
        case Received(message, sender):
            return f"from {names[sender]}: {message}"
        case Publish(publication):
            return f"publish {publication.name} {dict(publication.attributes)}"
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
        case Leave():
            return "leave"
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
            return f"to {names[peer]}: {message}"
        case Deliver(subscription_id, publication, hops, _):
            return f"deliver {publication.name} to {subscription_id}, {hops} hops"
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
