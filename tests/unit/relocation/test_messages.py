"""What relocation adds to the messages between brokers travels over live links unchanged."""

from __future__ import annotations

import pytest

from postroad.filters import parse
from postroad.live.links.messages import Codec
from postroad.model import Advertisement, Publication, Trace
from postroad.relocation.grape import TraceAnswer, TraceRequest
from postroad.relocation.migration import MigrationAbort, MigrationComplete, MigrationUpdate
from postroad.relocation.pop import RelocationAnswer, RelocationRequest, TraceResult
from postroad.relocation.selection import TraceReport, packed
from postroad.routing.base import AdvertisementMessage, Message, PublicationMessage

MOVED = Advertisement("a", parse("x = 1"), "p", epoch=3)
MESSAGES: list[Message] = [
    MigrationUpdate(MOVED),
    MigrationComplete("a", 3, True),
    MigrationAbort("a", 3),
    TraceResult("a", ("p", "1"), 4),
    RelocationRequest("a", 2.5, (1, 2)),
    RelocationAnswer("a", (3, 2, 1)),
    TraceRequest("a", "B1-M5"),
    TraceAnswer("a", "B1-M5", (TraceReport(1, packed(1 << 12_799), 2, 30, ((2, 40), (3, 50))),)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.kind)
def test_messages_come_back_as_they_were_sent(message: Message) -> None:
    codec = Codec()
    assert codec.decode(codec.encode(message)) == message


def test_epochs_and_trace_headers_travel_along() -> None:
    codec = Codec()
    heard = codec.decode(codec.encode(AdvertisementMessage(MOVED)))
    assert isinstance(heard, AdvertisementMessage)
    assert heard.advertisement.epoch == 3
    publication = Publication("p", "1", {"x": 1}, trace=Trace("a", "B1-M5", 7))
    carried = codec.decode(codec.encode(PublicationMessage(publication, 1)))
    assert isinstance(carried, PublicationMessage)
    assert carried.publication.trace == publication.trace
