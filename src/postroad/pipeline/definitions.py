"""Every measure that comes from facts, defined once: what it means, its unit, and how it follows
from a run's totals, as SQL.

`pipeline/measure.py` makes the totals: of each fact its sum over the run (`sends`, `control`,
`deliveries`, …), of each broker and link what the measures need the greatest of (`state_max`,
`load_max`, `link_max`), how many there are (`brokers`, `links`), and delays in microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Definition:
    """What it means, its unit, and its value for a run, from totals."""

    definition: str
    unit: str
    sql: str


def _each(total: str, of: str = "publications") -> str:
    return f"{total} / greatest(1, {of})"


PER_CHANGE = _each("control", "subscriptions")
MEASURES: dict[str, Definition] = {
    "traffic": Definition(
        "messages per publication, control messages at the stated rate of change included",
        "messages",
        f"{_each('sends')} + {PER_CHANGE} * 1000 / nullif(publications_per_1000_changes, 0)",
    ),
    "messages": Definition("publication messages per publication", "messages", _each("sends")),
    "copies": Definition(
        "copies of publications in them, per publication", "copies", _each("copies")
    ),
    "pure_forwards": Definition(
        "pure forwards per publication", "messages", _each("pure_forwards")
    ),
    "false_sends": Definition("false sends per publication", "messages", _each("false_sends")),
    "matches": Definition("matches per publication", "matches", _each("matches")),
    "state_mean": Definition(
        "routing entries per broker, mean", "entries", "state / nullif(brokers, 0)"
    ),
    "state_max": Definition("routing entries per broker, max", "entries", "state_max"),
    "stress_mean": Definition(
        "publication messages sent and received per broker and publication, mean",
        "messages",
        "load / nullif(brokers, 0) / greatest(1, publications)",
    ),
    "stress_max": Definition("the same, busiest broker", "messages", _each("load_max")),
    "link_mean": Definition(
        "publication messages per used link and publication, mean",
        "messages",
        "sends / greatest(1, links) / greatest(1, publications)",
    ),
    "link_max": Definition("the same, busiest link", "messages", _each("link_max")),
    "delay_p50_ms": Definition("delivery delay, median, ms", "ms", "delay_us_p50 / 1000"),
    "delay_p90_ms": Definition("delivery delay, 90th percentile, ms", "ms", "delay_us_p90 / 1000"),
    "delay_p99_ms": Definition("delivery delay, 99th percentile, ms", "ms", "delay_us_p99 / 1000"),
    "delay_mean_ms": Definition(
        "delivery delay, mean, ms", "ms", "delay_us / nullif(deliveries, 0) / 1000"
    ),
    "hops": Definition("hops per delivery, mean", "hops", _each("hops", "deliveries")),
    "outside": Definition(
        "publication messages per publication between brokers that no link joins",
        "messages",
        _each("outside"),
    ),
    "control": Definition(
        "control messages per publication, set-up included", "messages", _each("control")
    ),
    "control_per_change": Definition(
        "control messages per change of a subscription", "messages", PER_CHANGE
    ),
    "queue_mean": Definition(
        "messages waiting at a broker, mean over time and brokers",
        "messages",
        "queue_us / greatest(1, duration_us) / nullif(brokers, 0)",
    ),
    "queue_max": Definition("messages waiting at a broker, max", "messages", "queue_max"),
    "publications": Definition("publications", "publications", "publications"),
    "deliveries": Definition("deliveries", "deliveries", "deliveries"),
    "lost": Definition("lost deliveries", "deliveries", "lost"),
    "duplicated": Definition("duplicate deliveries", "deliveries", "duplicated"),
    "unexpected": Definition("deliveries nobody asked for", "deliveries", "unexpected"),
}
TRACED = (
    "messages", "copies", "control", "stress_mean", "stress_max", "link_mean", "link_max",
    "delay_p50_ms", "delay_p90_ms", "delay_p99_ms", "delay_mean_ms", "hops", "publications",
)  # fmt: skip
"""Those that traces tell too; there their names begin with `trace.`."""
SUMS = (
    "publications", "subscriptions", "publications_per_1000_changes", "duration_us", "sends",
    "copies", "outside", "control", "matches", "pure_forwards", "false_sends", "state", "queue_us",
    "hops", "delay_us", "deliveries", "lost", "duplicated", "unexpected",
)  # fmt: skip
"""The facts that measures add up over a run."""

OF_PAPERS: dict[str, dict[str, tuple[str, str]]] = {
    "popsub": {
        "gain_ratio": ("gain of the link that a forward takes, mean over forwards", "ratio"),
        "pure_forwards": ("forwards by brokers that deliver nothing of it, of a run", "messages"),
        "unpopular_deliveries": ("deliveries by another mechanism than the tree", "deliveries"),
        "popular_pdl_ms": ("delay of deliveries over the tree, 99th percentile", "ms"),
        "unpopular_pdl_ms": ("delay of the other deliveries, 99th percentile", "ms"),
        "popular_pdl90_ms": ("delay of deliveries over the tree, 90th percentile", "ms"),
        "unpopular_pdl90_ms": ("delay of the other deliveries, 90th percentile", "ms"),
        "direct_forwards": ("direct sends of a publication, 99th percentile", "messages"),
        "gossip_groups": ("groups that gossip", "groups"),
        "gossip_false_positives": (
            "share of gossiped publications new to a broker that nobody there wants", "share"
        ),
        "matches_per_gossip": (
            "publications new to a broker that somebody there wants, per gossip received",
            "publications",
        ),
        "queue": ("length of the queue that an arrival finds, if it finds one, mean", "messages"),
    },
    "pop_grape": {
        "message_rate": ("messages that a broker handles, in the last third of the run", "1/s"),
        "input_utilisation": ("share of time that a broker matches and copies", "share"),
        "output_utilisation": ("share of time that sending to brokers and clients takes", "share"),
        "delay_ms": ("delivery delay, mean per subscriber, then over subscribers", "ms"),
        "hops": ("hops per delivery, mean", "hops"),
        "overhead": ("share of relocation messages among all between brokers", "%"),
        "state_bytes": ("a broker's state at the end, written down, mean over brokers", "bytes"),
        "table_entries": ("the most routing entries a broker held, mean over brokers", "entries"),
        "selection_ms": ("from asking for a better broker to the move, mean", "ms"),
        "wait_ms": ("how long a publisher that moves is held back, mean", "ms"),
        "moves": ("moves of publishers", "moves"),
        "lost": ("deliveries that are owed and did not happen", "deliveries"),
        "twice": ("deliveries that happened more than once", "deliveries"),
    },
    "kyra": {
        "storage": ("share of all subscriptions that a server keeps, mean", "share"),
        "processing": ("servers that match a publication, mean", "servers"),
        "node_mean": ("messages sent and received per server and 1,000 publications", "messages"),
        "node_max": ("the same, busiest server", "messages"),
        "link_mean": ("messages per used link of the underlay and 1,000 publications", "messages"),
        "link_mean_between": ("the same per link between any two servers", "messages"),
        "link_mean_all": ("the same per link", "messages"),
        "link_max": ("the same, busiest link", "messages"),
        "nru": ("latency times messages, against ideal multicast", "ratio"),
    },
    "beaconvey": {
        "overhead": ("messages received by nodes without interest, per publication", "messages"),
        "path_mean": ("hops per delivery, mean over deliveries", "hops"),
        "path_publication": ("hops per delivery, mean per publication, then over those", "hops"),
        "path_max": ("hops of the farthest delivery", "hops"),
        "overhead_but_rendezvous": ("overhead without rendezvous points", "messages"),
        "overhead_every_relay": ("overhead with relays that are interested", "messages"),
        "overhead_without_publisher": ("overhead if trees leave out the publisher", "messages"),
        "overhead_with_singles": ("overhead with topics of one subscriber too", "messages"),
        "overhead_clockwise": ("overhead if no message passes its target", "messages"),
        "path_clockwise": ("mean path length then", "hops"),
        "overhead_incoming_any": ("overhead if GSwicoL limits no incoming fingers", "messages"),
        "path_incoming_any": ("mean path length then", "hops"),
        "overhead_chord_begun": ("overhead if Chord has ⌈log2 n⌉ fingers", "messages"),
        "path_chord_begun": ("mean path length then", "hops"),
        "tco_support": (
            "TcoSuppR: of the merges of topic-connected components that are possible, those made",
            "share",
        ),
    },
}  # fmt: skip
"""What the kernels' runs compute themselves and the page of their paper shows; not from facts."""
