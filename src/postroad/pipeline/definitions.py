"""Every measure that comes from facts, defined once: what it means, its unit, and how it follows
from a run's totals, as SQL.

`pipeline/measure.py` makes the totals: of each fact its sum over the run (`sends`, `control`,
`deliveries`, …), of each broker and link what the measures need the greatest of (`state_max`,
`load_max`, `link_max`), how many there are (`brokers`, `links`), and delays in microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
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


@dataclass(frozen=True)
class OfPaper:
    """What the runs of a paper count, in facts of its own, and what follows from it."""

    facts: Mapping[str, str]
    measures: Mapping[str, Definition]
    several: bool = False
    """Whether a run tries several systems. A fact's `part` is then the system, and what it
    measures is called SYSTEM|MEASURE."""
    spread: tuple[str, ...] = ()
    """The facts that have percentiles."""
    delays: tuple[str, ...] = ()
    """The facts whose buckets are delays."""


def _mean(fact: str, of: str = "publications") -> str:
    return f"total['{fact}'] / greatest(1, total['{of}'])"


def _per_row(fact: str) -> str:
    return f"total['{fact}'] / rows['{fact}']"


def _per_bucket(fact: str) -> str:
    return f"weight['{fact}'] / total['{fact}']"


def _or_0(value: str) -> str:
    return f"coalesce({value}, 0)"


def _of_links(value: str) -> str:
    """0 if no link carries anything; none where there are no links at all."""
    return f"if(total['links'] > 0, {_or_0(value)}, NULL)"


def _percentile(fact: str, percent: int) -> str:
    return f"spread['{fact}'][{percent}]"


BOTH = {"p": "subscription", "e": "publication"}
"""The subscription-forwarding model's letters: patterns are subscribed to, events published."""
MILLION = 1_000_000
"""Facts are whole numbers: what is not is counted in millionths."""


def _against_model(kind: str, what: str) -> dict[str, Definition]:
    mean = f"total['off_{kind}'] / 1e6 / total['brokers']"
    squares = f"total['off_squares_{kind}'] / 1e6 / total['brokers']"
    deviation = f"sqrt(greatest(0, {squares} - pow({mean}, 2)))"
    percent = f"100 / nullif(total['load_max_{kind}'], 0)"
    return {
        f"traffic_{kind}": Definition(f"{what} messages", "messages", f"total['traffic_{kind}']"),
        f"predicted_traffic_{kind}": Definition(
            "the same by the closed form", "messages", f"total['predicted_traffic_{kind}'] / 1e6"
        ),
        f"load_max_{kind}": Definition(
            f"{what} messages that the busiest broker sends", "messages",
            f"total['load_max_{kind}']",
        ),
        f"load_difference_{kind}": Definition(
            "by how much the closed form exceeds what a broker sends, mean over brokers",
            "messages", mean,
        ),
        f"load_deviation_{kind}": Definition(
            "standard deviation of that", "messages", deviation
        ),
        f"load_difference_percent_{kind}": Definition(
            "the mean, of the greatest load", "%", _or_0(f"{mean} * {percent}")
        ),
        f"load_deviation_percent_{kind}": Definition(
            "the standard deviation, of the greatest load", "%", _or_0(f"{deviation} * {percent}")
        ),
    }  # fmt: skip


OF_PAPERS: dict[str, OfPaper] = {
    "subscription_forwarding_model": OfPaper(
        facts={"brokers": "brokers"}
        | {
            f"{name}_{kind}": text
            for kind, what in BOTH.items()
            for name, text in {
                "traffic": f"{what} messages",
                "predicted_traffic": "those that the closed form expects, in millionths",
                "load_max": f"{what} messages that the busiest broker sends",
                "off": "by how much the closed form exceeds a broker's count of them, in"
                " millionths, added up",
                "off_squares": "the same squared, in millionths, added up",
            }.items()
        },
        measures={
            name: one for kind, what in BOTH.items()
            for name, one in _against_model(kind, what).items()
        },
    ),
    "popsub": OfPaper(
        facts={
            "gain": "gains of the links that forwards took, in millionths, added up",
            "forwards": "forwards over the tree",
            "pure_forwards": "forwards by brokers that deliver nothing of it",
            "messages": "messages, by kind",
            "popular": "deliveries over the tree, by bucket of delay",
            "unpopular": "deliveries by the other mechanism, by bucket of delay",
            "direct": "publications, by how many direct sends they took",
            "gossip_groups": "groups that gossip",
            "gossips": "gossips received, duplicates included",
            "gossip_received": "publications in them that were new to the broker",
            "gossip_false": "of these, those that nobody there wants",
            "queued": "arrivals that found a queue",
            "queued_length": "the lengths that they found, added up",
        },
        measures={
            "gain_ratio": Definition(
                "gain of the link that a forward takes, mean over forwards", "ratio",
                f"{_mean('gain', 'forwards')} / 1e6",
            ),
            "pure_forwards": Definition(
                "forwards by brokers that deliver nothing of it, of a run", "messages",
                "total['pure_forwards']",
            ),
            "messages": Definition("messages, of a run", "messages", "total['messages']"),
            "deliveries": Definition(
                "deliveries, of a run", "deliveries",
                _or_0("total['popular']") + " + " + _or_0("total['unpopular']"),
            ),
            "unpopular_deliveries": Definition(
                "deliveries by another mechanism than the tree", "deliveries",
                _or_0("total['unpopular']"),
            ),
            "popular_pdl_ms": Definition(
                "delay of deliveries over the tree, 99th percentile", "ms",
                f"{_or_0(_percentile('popular', 99))} / 1000",
            ),
            "unpopular_pdl_ms": Definition(
                "delay of the other deliveries, 99th percentile", "ms",
                f"{_or_0(_percentile('unpopular', 99))} / 1000",
            ),
            "popular_pdl90_ms": Definition(
                "delay of deliveries over the tree, 90th percentile", "ms",
                f"{_or_0(_percentile('popular', 90))} / 1000",
            ),
            "unpopular_pdl90_ms": Definition(
                "delay of the other deliveries, 90th percentile", "ms",
                f"{_or_0(_percentile('unpopular', 90))} / 1000",
            ),
            "direct_forwards": Definition(
                "direct sends of a publication, 99th percentile", "messages",
                _or_0(_percentile("direct", 99)),
            ),
            "gossip_groups": Definition(
                "groups that gossip", "groups", "total['gossip_groups']"
            ),
            "gossip_false_positives": Definition(
                "share of gossiped publications new to a broker that nobody there wants", "share",
                _mean("gossip_false", "gossip_received"),
            ),
            "matches_per_gossip": Definition(
                "publications new to a broker that somebody there wants, per gossip received",
                "publications",
                "(total['gossip_received'] - total['gossip_false'])"
                " / greatest(1, total['gossips'])",
            ),
            "queue": Definition(
                "length of the queue that an arrival finds, if it finds one, mean", "messages",
                _mean("queued_length", "queued"),
            ),
        },
        spread=("popular", "unpopular", "direct"),
        delays=("popular", "unpopular"),
    ),
    "pop_grape": OfPaper(
        facts={
            "window_us": "the last third of the run, in which the next three are counted",
            "handled": "messages and publications that a broker handled",
            "copies": "copies of publications that a broker made, for brokers and clients",
            "outputs": "messages that a broker sent, to brokers and clients",
            "service_us": "what handling a message takes",
            "copy_us": "what a copy takes",
            "delay_us": "delays of the deliveries published in the last third, added up, by how"
            " many of them their subscriber has",
            "subscribers": "subscribers that have such deliveries",
            "deliveries": "those deliveries",
            "hops": "their hops, added up",
            "messages": "messages between brokers, by kind, of the whole run",
            "relocating": "of these, those that relocation sends",
            "state": "the most routing entries that a broker held",
            "state_bytes": "a broker's state at the end, written down",
            "selection_us": "from asking for a better broker to the move, a row for each move",
            "wait_us": "how long the publisher was held back, a row for each move",
            "lost": "deliveries that are owed and did not happen",
            "twice": "deliveries that happened more than once",
        },
        measures={
            "message_rate": Definition(
                "messages that a broker handles, in the last third of the run", "1/s",
                f"{_per_row('handled')} / total['window_us'] * 1e6",
            ),
            "input_utilisation": Definition(
                "share of time that a broker matches and copies", "share",
                "(total['service_us'] * total['handled'] + total['copy_us'] * total['copies'])"
                " / total['window_us'] / rows['handled']",
            ),
            "output_utilisation": Definition(
                "share of time that sending to brokers and clients takes", "share",
                f"total['copy_us'] * {_per_row('outputs')} / total['window_us']",
            ),
            "delay_ms": Definition(
                "delivery delay, mean per subscriber, then over subscribers", "ms",
                "each['delay_us'] / total['subscribers'] / 1000",
            ),
            "hops": Definition(
                "hops per delivery, mean", "hops", _mean("hops", "deliveries")
            ),
            "overhead": Definition(
                "share of relocation messages among all between brokers", "%",
                f"100 * {_mean('relocating', 'messages')}",
            ),
            "state_bytes": Definition(
                "a broker's state at the end, written down, mean over brokers", "bytes",
                _per_row("state_bytes"),
            ),
            "table_entries": Definition(
                "the most routing entries a broker held, mean over brokers", "entries",
                _per_row("state"),
            ),
            "selection_ms": Definition(
                "from asking for a better broker to the move, mean", "ms",
                _or_0(f"{_per_row('selection_us')} / 1000"),
            ),
            "wait_ms": Definition(
                "how long a publisher that moves is held back, mean", "ms",
                _or_0(f"{_per_row('wait_us')} / 1000"),
            ),
            "moves": Definition("moves of publishers", "moves", _or_0("rows['wait_us']")),
            "lost": Definition(
                "deliveries that are owed and did not happen", "deliveries", "total['lost']"
            ),
            "twice": Definition(
                "deliveries that happened more than once", "deliveries", "total['twice']"
            ),
        },
    ),
    "kyra": OfPaper(
        facts={
            "clique": "servers of a clique, a row for each",
            "publications": "publications",
            "subscriptions": "subscriptions of all servers",
            "kept": "servers, by how many subscriptions they keep",
            "matches": "servers that match a publication, added up",
            "stress": "messages that a server sends and receives",
            "link": "links between routers of the underlay, by how many messages they carry",
            "links": "links of the underlay, in both directions",
            "links_between": "of these, those on a shortest path between two servers",
            "used_us": "latencies of the links that messages take, added up",
            "ideal_us": "the same for ideal multicast",
        },
        measures={
            "storage": Definition(
                "share of all subscriptions that a server keeps, mean", "share",
                f"{_per_bucket('kept')} / greatest(1, total['subscriptions'])",
            ),
            "processing": Definition(
                "servers that match a publication, mean", "servers", _mean("matches")
            ),
            "node_mean": Definition(
                "messages sent and received per server and 1,000 publications", "messages",
                _per_row("stress"),
            ),
            "node_max": Definition("the same, busiest server", "messages", "most['stress']"),
            **{
                f"node_p{percent}": Definition(
                    f"the same, percentile {percent} over servers", "messages",
                    _percentile("stress", percent),
                )
                for percent in range(0, 101, 5)
            },
            "link_mean": Definition(
                "messages per used link of the underlay and 1,000 publications", "messages",
                _of_links(_per_bucket("link")),
            ),
            "link_mean_between": Definition(
                "the same per link between any two servers", "messages",
                _of_links("weight['link'] / greatest(1, total['links_between'])"),
            ),
            "link_mean_all": Definition(
                "the same per link", "messages", _of_links("weight['link'] / total['links']")
            ),
            "link_max": Definition(
                "the same, busiest link", "messages", _of_links(_percentile("link", 100))
            ),
            "nru": Definition(
                "latency times messages, against ideal multicast", "ratio",
                _mean("used_us", "ideal_us"),
            ),
            "clique_mean": Definition("servers of a clique, mean", "servers", _per_row("clique")),
            "clique_max": Definition("the same, largest clique", "servers", "most['clique']"),
        },
        several=True,
        spread=("stress", "link"),
    ),
    "beaconvey": OfPaper(
        facts={
            "publications": "publications",
            "messages": "messages",
            "deliveries": "deliveries",
            "returns": "publications that come back to their publisher",
            "pure_forwards": "messages received by nodes without interest",
            "idle_roots": "publications that come to a rendezvous point without interest",
            "hops": "hops of deliveries, added up, by how many deliveries the publication has",
            "path": "hops of a publication's farthest delivery, the greatest",
            **{
                f"{reading}_{name}": f"{text}, {where}"
                for reading, where in {
                    "clockwise": "if no message passes its target",
                    "incoming_any": "if GSwicoL limits no incoming fingers",
                    "chord_begun": "if Chord has ⌈log2 n⌉ fingers",
                }.items()
                for name, text in {
                    "pure_forwards": "messages received by nodes without interest",
                    "hops": "hops of deliveries, added up",
                    "deliveries": "deliveries",
                }.items()
            },
            "without_publisher_pure_forwards": "messages received by nodes without interest, if"
            " trees leave out the publisher",
            "with_singles_pure_forwards": "the same with topics of one subscriber too",
            "merges_possible": "topic-connected components without any link, less those with all",
            "merges": "topic-connected components without any link, less those of the overlay",
        },
        measures={
            "overhead": Definition(
                "messages received by nodes without interest, per publication", "messages",
                _mean("pure_forwards"),
            ),
            "path_mean": Definition(
                "hops per delivery, mean over deliveries", "hops",
                "total['hops'] / total['deliveries']",
            ),
            "path_publication": Definition(
                "hops per delivery, mean per publication, then over those", "hops",
                "each['hops'] / total['publications']",
            ),
            "path_max": Definition("hops of the farthest delivery", "hops", "most['path']"),
            "overhead_but_rendezvous": Definition(
                "overhead without rendezvous points", "messages",
                "(total['pure_forwards'] - total['idle_roots']) / total['publications']",
            ),
            "overhead_every_relay": Definition(
                "overhead with relays that are interested", "messages",
                "(total['messages'] - total['deliveries'] - total['returns'])"
                " / total['publications']",
            ),
            "overhead_without_publisher": Definition(
                "overhead if trees leave out the publisher", "messages",
                _mean("without_publisher_pure_forwards"),
            ),
            "overhead_with_singles": Definition(
                "overhead with topics of one subscriber too", "messages",
                _mean("with_singles_pure_forwards"),
            ),
            **{
                name: one
                for reading, where in {
                    "clockwise": "if no message passes its target",
                    "incoming_any": "if GSwicoL limits no incoming fingers",
                    "chord_begun": "if Chord has ⌈log2 n⌉ fingers",
                }.items()
                for name, one in {
                    f"overhead_{reading}": Definition(
                        f"overhead {where}", "messages", _mean(f"{reading}_pure_forwards")
                    ),
                    f"path_{reading}": Definition(
                        "mean path length then", "hops",
                        f"total['{reading}_hops'] / total['{reading}_deliveries']",
                    ),
                }.items()
            },
            "tco_support": Definition(
                "TcoSuppR: of the merges of topic-connected components that are possible, those"
                " made", "share",
                "if(total['merges_possible'] = 0, 1, total['merges'] / total['merges_possible'])",
            ),
        },
        several=True,
    ),
}  # fmt: skip
"""What the runs of the papers count and measure."""
ABOUT_PAPERS = """
The runs of `postroad reproduce` count in facts of their own, called `PAPER.FACT`. Facts are whole
numbers: what is not is counted in millionths. What a paper measures is SQL over its facts: `total`
is a fact's sum over the run, `most` its greatest row, `rows` how many rows it has, `weight` the sum
of its counts, each times its bucket, `each` the same divided by it (a mean of means), and `spread`
its percentiles: of buckets, weighted by their counts, or without buckets of the counts. Where a run
tries several systems (`kyra`, `beaconvey`), `part` is the system and all of this is of each.

Not from facts: how long planning took (`plan_s`), how many nodes a sample has (`nodes_found`), the
root's links (`root_degree`), the kernel's steps (`steps`): these describe a run, and nothing is
added up. Kyra's α (Figure 7) is fitted to one network while the page is made, not to runs. The
subscription-forwarding model's closed form is computed beside each run, because it needs the run's
tree; how far it is off is counted.
"""
