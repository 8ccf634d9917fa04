"""Publications of quality 0 that come alone to a quiet broker, for the driver: where one goes that
takes no turn, and the count of it afterwards. What is written to whom is the driver's to do.
"""

from __future__ import annotations

from postroad.live.edge import mqtt
from postroad.live.edge.latency import TIMED
from postroad.live.edge.mqtt import V3, Malformed
from postroad.live.edge.runs import Edge
from postroad.live.edge.session import Connection
from postroad.live.edge.ways import Destinations
from postroad.live.links.messages import RunMessage
from postroad.model import BrokerId, TimeUs


class Alone:
    def __init__(self, clients: Edge) -> None:
        self.clients, self.broker, self.ways = clients, clients.broker, clients.ways

    def destinations(self, connection: Connection, data: bytes) -> Destinations | None:
        """A publication came alone while there was nothing to do: where it goes as it is, as does
        another of this client to its topic until the next turn.

        None if it has to go through a turn.
        """
        session, size = connection.session, len(data)
        if session is None or size < 5 or data[0] != 0x30 or connection.input:
            return None
        body, length = 2, data[1]
        if length >= 128 and data[2]:
            body, length = 3, length & 127 | data[2] << 7
        topic_end = body + 2 + (data[body] << 8 | data[body + 1])
        old = connection.level == V3
        if body + length != size or topic_end > size:
            return None
        if not old and not data.startswith(b"\0", topic_end):  # it has properties
            return None
        topic = session.ready.get(data[body + 2 : topic_end])
        if topic is None or not connection.reading or self.clients.limits.bytes_per_s:
            return None
        payload = topic_end if old else topic_end + 1
        return self.ways.destinations(topic, data[body:payload], data[payload:], None)

    def destinations_from(self, sender: BrokerId, run: RunMessage) -> Destinations | None:
        """The same of a run of one from a neighbour."""
        try:
            field = mqtt.topic_field(run.topic) + b"\0"
        except Malformed:
            return None
        if not mqtt.goes_alone(run.packets, field):
            return None
        payload = run.packets[(2 if run.packets[1] < 128 else 3) + len(field) :]
        return self.ways.destinations(run.topic, field, payload, sender)

    def went(self, connection: Connection, data: bytes, copies: int, now: TimeUs) -> None:
        """A client's publication goes to so many clients without a turn."""
        self.broker.advance(now)
        connection.heard_us = now
        tally = self.clients.tally
        tally.bytes_received += len(data)
        tally.numbered += 1
        tally.published += 1
        self.copied(copies, 0)

    def copied(self, copies: int, took_us: TimeUs) -> None:
        """A publication went to so many clients without a turn, so long after it was published."""
        self.broker.passed(1)
        self.clients.tally.delivered += copies
        if copies:
            latency = self.clients.latency
            latency.handed += 1
            if latency.handed % TIMED == 0:
                latency.add(took_us)

    def as_run(self, connection: Connection, data: bytes, topic: str) -> RunMessage:
        """The publication that went last, for neighbours."""
        session = connection.session
        assert session is not None
        packet = mqtt.as_of_other_level(data, True) if connection.level == V3 else data
        broker, number = self.broker, self.clients.tally.numbered
        return RunMessage(session.client_id, broker.boot, number, topic, packet, broker.now, 1)
