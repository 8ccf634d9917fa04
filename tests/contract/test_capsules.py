"""A scheme is a capsule: one file, one row. Nothing else in the package knows its messages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from postroad.filters import Filter, matches
from postroad.live.links.messages import Codec
from postroad.model import BrokerId, Publication, Subscription, SubscriptionId, TimeUs
from postroad.overlay import Overlay
from postroad.relocation import RELOCATIONS, all_messages
from postroad.routing import SCHEMES, Scheme, TreePlan
from postroad.routing.base import (
    CarriesOne,
    Deliver,
    Effect,
    Interests,
    Message,
    Received,
    Router,
    Send,
)
from postroad.routing.pool import FilterPool
from postroad.sim.facts import carrying
from postroad.sim.oracle import compare
from postroad.sim.run import run
from postroad.sim.scenario import from_dict
from postroad.sim.transcript import transcribe


@dataclass(frozen=True, slots=True)
class Shout(CarriesOne):
    """Everything to everyone, and how loud."""

    kind = "shout"
    wire = "toy.Shout"
    publication: Publication
    volume: int

    def __str__(self) -> str:
        return f"SHOUT {self.publication.name} at {self.volume}"


@dataclass(frozen=True)
class Config:
    volume: int = 11


class Toy(Router):
    """Flooding by another name."""

    def __init__(self, broker: BrokerId, config: Config, pool: FilterPool) -> None:
        self.config = config
        self.peers: dict[BrokerId, None] = {}
        self.local: dict[SubscriptionId, Filter] = {}

    def on_link_up(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        self.peers[peer] = None
        return []

    def on_subscribe(self, subscription: Subscription, now: TimeUs) -> list[Effect]:
        self.local[subscription.id] = subscription.filter
        return []

    def on_unsubscribe(self, subscription_id: SubscriptionId, now: TimeUs) -> list[Effect]:
        del self.local[subscription_id]
        return []

    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]:
        return self._shout(publication, self.config.volume, None)

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        assert isinstance(message, Shout)
        return self._shout(message.publication, message.volume - 1, sender)

    def _shout(self, publication: Publication, volume: int, sender: int | None) -> list[Effect]:
        found: list[Effect] = [
            Deliver(name, publication, self.config.volume - volume, "tree")
            for name, filter in self.local.items()
            if matches(filter, publication.attributes)
        ]
        peers = [peer for peer in self.peers if peer != sender]
        return found + [Send(peer, Shout(publication, volume)) for peer in peers]

    def table_entries(self) -> int:
        return len(self.local)


def plan(overlay: Overlay, interests: Interests, config: Config, seed: int) -> TreePlan:
    return TreePlan(overlay, Toy, config, FilterPool(), seed)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> str:
    row = Scheme("shouts", "none", "exact", Config, plan, False, (Shout,))
    monkeypatch.setitem(SCHEMES, "toy", row)
    return "toy"


def test_a_toy_scheme_needs_one_row_to_be_simulated_written_compared_and_sent(toy: str) -> None:
    scenario = from_dict(
        {
            "scheme": toy,
            "parameters": {"volume": 5},
            "overlay": {"kind": "full_tree", "fanout": 2, "height": 2},
            "workload": {"generate": {"subscriptions": 40, "publications": 30}},
        },
        "toy",
        Path(),
    )
    lines: list[str] = []
    result = run(scenario, transcribe(lines.append, scenario.overlay.names), check=True)
    compare(scenario, [delivery[:2] for delivery in result.deliveries]).require()
    assert any("SHOUT p" in line for line in lines)
    assert result.summary()["messages"]["shout"] == 30 * 6
    assert "shout" in carrying()
    codec, message = Codec(), Shout(Publication("p", "1", {"x": 1}), 3)
    assert codec.decode(codec.encode(message)) == message
    assert b"toy.Shout" in codec.encode(message)


def test_no_two_messages_have_one_wire_name_and_each_reads_as_itself() -> None:
    names = [message.wire for message in all_messages()]
    assert len(set(names)) == len(names)
    for message in all_messages():
        assert "__str__" in vars(message), message
        if message.carries:
            assert message.publications is not Message.publications, message


@pytest.mark.parametrize("name", SCHEMES)
def test_a_row_lists_its_messages_and_they_say_what_they_carry(name: str) -> None:
    """A run of every scheme sends nothing that its row does not name."""
    listed = set(SCHEMES[name].messages)
    seen: set[type[Message]] = set()

    def watch(now: TimeUs, broker: BrokerId, given: object, effects: object) -> None:
        if isinstance(given, Received):
            message = given.message
            seen.add(type(message))
            assert len(message.publications) == (message.size if message.carries else 0) or (
                message.chatter
            )

    overlay = {"kind": "transit_stub", "servers": 12}
    scenario = from_dict(
        {
            "scheme": name,
            "overlay": overlay,
            "workload": {"generate": {"subscriptions": 60, "publications": 60, "churn": 0.3}},
        },
        name,
        Path(),
    )
    run(scenario, watch)
    assert seen <= listed
    assert any(message.carries for message in seen)


def test_wire_names_are_those_of_networks_that_run_already() -> None:
    """Stores and links hold them: a name may be added, never changed."""
    assert {message.wire for message in SCHEMES["advertisement_forwarding"].messages} == {
        "base.PublicationMessage",
        "base.SubscriptionMessage",
        "base.UnsubscriptionMessage",
        "base.AdvertisementMessage",
        "base.UnadvertisementMessage",
    }
    assert SCHEMES["popsub"].messages[-1].wire == "messages.Gossip"
    assert RELOCATIONS["grape"].messages[-1].wire == "grape.TraceAnswer"
