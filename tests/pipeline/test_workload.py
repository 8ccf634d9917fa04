"""Every workload: its shares, its independence of partitions, and that its filters work."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postroad.errors import InputError
from postroad.filters import matches, parse
from postroad.pipeline import run, session, store, workload
from postroad.pipeline.schemas import EDGES, LATENCY, QUOTES
from postroad.workloads import topics
from postroad.workloads.followed import followers_of

pytestmark = pytest.mark.spark


def source(spark, partitions=2):
    return workload.Source(
        lambda count: spark.range(0, count, 1, partitions),
        lambda columns, schema: session.small_table(spark, columns, schema),
    )


def whole(frame):
    """Nothing is cut."""
    return frame


def made_by(spark, partitions):
    """One small workload of every kind."""
    rows = source(spark, partitions)
    edges = spark.createDataFrame(
        [(n, (n * 7 + k) % 40) for n in range(40) for k in range(1, 4)], EDGES
    ).repartition(partitions)
    latency = spark.createDataFrame(
        [(a, b, 1000 * abs(a - b)) for a in range(12) for b in range(12) if a != b], LATENCY
    ).repartition(partitions)
    quotes = workload.made_up_quotes(rows, 4, 30, 1)
    followers = followers_of(10)
    sizes = {"subscriptions": 60, "publications": 50, "publishers": 10, "brokers": 9, "seed": 3}
    servers = {"interest": 0.1, "servers": 12, "values": 40, "publications": 30, "seed": 3}
    return {
        "follower": workload.follower(rows, followers=followers, **sizes),
        "class": workload.follower(rows, followers=None, exponent=1.5, **sizes),
        **{
            popularity: workload.topics(
                rows, whole, nodes=30, topics=50, popularity=popularity, per_node=5, publications=40
            )
            for popularity in ("zipf", "unif", "expo")
        },
        "social": workload.social(rows, edges, publications=40, brokers=9, seed=3),
        **{
            name: workload.content(rows, distribution=name, **servers)
            for name in ("uniform", "zipf-uniform", "multimodal")
        },
        "regional": workload.regional(rows, **servers),
        "regional latency": workload.regional(
            rows, latency=latency, distances=np.arange(1.0, 12.0) * 1000, **servers
        ),
        **{
            name: workload.stock(
                rows, quotes, subscribers=name, publishers=3, per_publisher=20, brokers=9, seed=3
            )
            for name in ("random", "enterprise")
        },
        "patterns": workload.patterns(rows, brokers=30, patterns=20, sigma=0.2, publications=40),
        "wide": workload.patterns(
            rows, brokers=30, patterns=20, sigma=0.1, mu=0.4, publications=40
        ),
        "zipf patterns": workload.patterns(
            rows, brokers=30, patterns=20, sigma=0.2, exponent=1.0, publications=40
        ),
    }


def rows_of(one):
    """All three tables in one job."""
    tables = (one.subscriptions, one.advertisements, one.publications)
    texts = [
        table.select(F.lit(number).alias("table"), F.to_json(F.struct("*")).alias("row"))
        for number, table in enumerate(tables)
    ]
    rows = texts[0].union(texts[1]).union(texts[2]).collect()
    return tuple(
        sorted((json.loads(row["row"]) for row in rows if row["table"] == number), key=str)
        for number in range(3)
    )


@pytest.fixture(scope="module")
def small(spark):
    return {name: rows_of(one) for name, one in made_by(spark, 1).items()}


def test_no_workload_depends_on_partitions(spark, small):
    for name, one in made_by(spark, 7).items():
        assert rows_of(one) == small[name], name


def test_every_filter_parses_and_publications_keep_what_they_advertise(small):
    for name, (subscriptions, advertisements, publications) in small.items():
        assert subscriptions, name
        assert publications, name
        for row in subscriptions:
            parse(row["filter"])
        announced = {}
        for row in advertisements:
            place = row["publisher"], row["broker"]
            announced.setdefault(place, []).append(parse(row["filter"]))
        for row in publications:
            content = json.loads(row["attributes"])
            promised = announced[row["publisher"], row["broker"]]
            assert any(matches(one, content) for one in promised), (name, content)
            assert row["time_us"] >= 0
        for ids in (
            [row["subscription"] for row in subscriptions],
            [row["advertisement"] for row in advertisements],
            [(row["publisher"], row["publication"]) for row in publications],
        ):
            assert len(set(ids)) == len(ids), name


def test_the_same_filter_text_is_a_spark_predicate(spark, small):
    subscriptions, _, publications = small["random"]
    shape = "class string, symbol string, volume bigint, `highLow%Diff` double"
    table = spark.createDataFrame(
        [(row["attributes"],) for row in publications], "attributes string"
    ).select("attributes", F.from_json("attributes", shape).alias("a"))
    for text in sorted({row["filter"] for row in subscriptions})[:4]:
        contents = [row["attributes"] for row in publications]
        ours = {one for one in contents if matches(parse(text), json.loads(one))}
        theirs = table.select("attributes", "a.*").where(text).select("attributes").collect()
        assert {row[0] for row in theirs} == ours
        assert ours


def test_alias_table_gives_back_its_weights():
    weights = topics.zipf(50, 1.3)
    cut, other = workload.alias_table(weights)
    share = cut.copy()
    for slot, target in enumerate(other):
        share[target] += 1.0 - cut[slot]
    assert np.allclose(share / 50, weights / weights.sum())


def test_followers_decide_how_often_a_publisher_is_subscribed_to(spark):
    followers = followers_of(200)
    assert followers[0] == followers.max()
    one = workload.follower(
        source(spark), followers=followers, subscriptions=200_000, publications=1
    )
    counts = (
        one.subscriptions.select(
            F.regexp_extract("filter", r"publisher = 'p(\d+)'", 1).cast("int").alias("p")
        )
        .groupBy("p")
        .count()
        .collect()
    )
    found = np.zeros(200)
    for row in counts:
        found[row["p"]] = row["count"]
    top = np.sort(found)[::-1][:40].sum() / found.sum()
    expected = np.sort(followers)[::-1][:40].sum() / followers.sum()
    assert top == pytest.approx(expected, abs=0.005)
    assert 0.6 < expected < 0.75  # the paper's follower trace: 71.7%


@pytest.mark.parametrize("popularity", ["zipf", "unif", "expo"])
def test_every_node_gets_its_topics_and_popularity_is_as_asked(spark, popularity):
    one = workload.topics(
        source(spark),
        DataFrame.cache,
        nodes=1000,
        topics=100,
        popularity=popularity,
        publications=10,
        seed=1,
    )
    per_node = one.subscriptions.groupBy("client").agg(F.count_distinct("filter")).collect()
    assert {row[1] for row in per_node} == {20}
    counts = Counter(
        {row[0]: row[1] for row in one.subscriptions.groupBy("filter").count().collect()}
    )
    # Drawn one after another without replacement, checked against a direct simulation.
    rng = np.random.default_rng(0)
    weights = topics.popularity(popularity, 100, 2.0)
    weights = weights / weights.sum()
    drawn = np.zeros(100)
    for _ in range(1000):
        drawn[rng.choice(100, size=20, replace=False, p=weights)] += 1
    found = np.array([counts[f"topic = {n}"] for n in range(100)])
    assert np.abs(found - drawn).max() < 90  # five deviations of a difference of two counts
    assert found.sum() == 20_000


def test_a_draw_of_topics_costs_in_proportion_to_what_is_drawn(spark):
    numbers = []

    def table(columns, schema):
        numbers.append(len(next(iter(columns.values()))))
        return session.small_table(spark, columns, schema)

    rows = workload.Source(lambda count: spark.range(0, count, 1, 2), table)
    weights = topics.popularity("zipf", 100_000, 1.0)
    drawn = workload._taken(rows, 40, weights / weights.sum(), 20, 1).groupBy("node").count()
    assert {row["count"] for row in drawn.collect()} == {20}
    likely, counts, every = numbers
    assert likely + counts < 400, "drawn for each node"
    assert every == 100_000, "looked up, once for each draw"


def test_topics_are_numbered_without_gaps_and_not_through_one_partition(spark):
    rows = spark.range(0, 3000, 3, 7).withColumnRenamed("id", "topic")
    numbered = workload._numbered(rows, "topic", "number")
    found = sorted(row["number"] for row in numbered.collect())
    assert found == list(range(1000))
    again = workload._numbered(rows.repartition(3), "topic", "number")
    assert sorted(numbered.collect()) == sorted(again.collect())
    plan = numbered._jdf.queryExecution().executedPlan().toString()
    windows = [line for line in plan.splitlines() if "Window [" in line or "Window(" in line]
    assert windows
    assert all("[_bucket" in line for line in windows), windows


@pytest.mark.parametrize("distribution", ["uniform", "zipf-uniform", "multimodal", "regional"])
@pytest.mark.parametrize("interest", [0.01, 0.1, 0.5])
def test_servers_are_interested_as_often_as_asked(spark, distribution, interest):
    told = {"interest": interest, "servers": 100, "values": 400, "publications": 3000, "seed": 2}
    if distribution == "regional":
        one = workload.regional(source(spark), **told)
    else:
        one = workload.content(source(spark), distribution=distribution, **told)
    asked = one.subscriptions.select(F.regexp_extract("filter", r"= (\d+)", 1).alias("v"))
    said = one.publications.select(F.get_json_object("attributes", "$.value").alias("v"))
    if distribution != "regional":
        # The rate is that of a value of the content space, wherever a workload of Kyra is drawn.
        assert asked.count() / (400 * 100) == pytest.approx(interest, rel=0.1)
        told |= {"interest_over": "publications"}
        one = workload.content(source(spark), distribution=distribution, **told)
        asked = one.subscriptions.select(F.regexp_extract("filter", r"= (\d+)", 1).alias("v"))
        said = one.publications.select(F.get_json_object("attributes", "$.value").alias("v"))
    pairs = said.groupBy("v").count().join(asked, on="v", how="inner").agg(F.sum("count")).head()[0]
    # Regional servers ask others, not themselves: 99 of 100 count.
    assert pairs / (3000 * 100) == pytest.approx(interest, rel=0.3 if interest == 0.01 else 0.15)


def test_random_and_enterprise_subscribers_sink_their_shares(spark):
    quotes = workload.made_up_quotes(source(spark), 10, 200, 1)
    for name, shares in (("random", (0.7, 0.25, 0.05)), ("enterprise", (0.95, 0.0, 0.05))):
        one = workload.stock(
            source(spark), quotes, subscribers=name, publishers=10, per_publisher=1000,
            brokers=20, spread=6, seed=4,
        )  # fmt: skip
        rows = one.subscriptions.collect()
        low = [row for row in rows if "highLow%Diff" in row["filter"]]
        medium = [row for row in rows if "volume" in row["filter"]]
        parts = {row["subscription"] for row in (*low, *medium)}
        high = [row for row in rows if row["subscription"] not in parts]
        found = [len(part) / len(rows) for part in (low, medium, high)]
        assert found == pytest.approx(shares, abs=0.02)
        assert len({row["broker"] for row in rows}) == 6
        if name == "enterprise":
            assert len({row["broker"] for row in high}) == 1
            assert not {row["broker"] for row in high} & {row["broker"] for row in low}
        symbol = rows[0]["filter"].split("'")[3]
        quoted = [
            json.loads(row["attributes"])
            for row in one.publications.where(F.col("publisher") == symbol).collect()
        ]
        sinks = {
            part: sum(matches(parse(text), quote) for quote in quoted) / len(quoted)
            for part, text in (
                (part, next(r["filter"] for r in group if f"'{symbol}'" in r["filter"]))
                for part, group in (("low", low), ("medium", medium), ("high", high))
                if group
            )
        }
        assert sinks["low"] == pytest.approx(0.1, abs=0.03)
        assert sinks["high"] == 1.0
        if medium:
            assert sinks["medium"] == pytest.approx(0.5, abs=0.03)


def test_patterns_reach_brokers_with_sigma_and_mu(spark):
    told = {"brokers": 400, "patterns": 50, "sigma": 0.05, "publications": 60, "seed": 6}
    for mu in (None, 0.2):
        one = workload.patterns(source(spark), mu=mu, **told)
        subscriptions = [(row["broker"], row["filter"]) for row in one.subscriptions.collect()]
        assert len(subscriptions) == pytest.approx(400 * 50 * 0.05, rel=0.1)
        filters = {text: parse(text) for text in {text for _, text in subscriptions}}
        received = 0
        for row in one.publications.collect():
            content = json.loads(row["attributes"])
            hit = {text for text, one_filter in filters.items() if matches(one_filter, content)}
            received += len({broker for broker, text in subscriptions if text in hit})
        assert received / (60 * 400) == pytest.approx(mu or 0.05, rel=0.15)
    with pytest.raises(InputError, match="sigma"):
        workload.patterns(source(spark), **(told | {"mu": 0.01}))


def test_derived_attributes(spark):
    import datetime

    row = (datetime.date(1996, 9, 5), "YHOO", 18.37, 18.6, 18.37, 18.37, None, 6200)
    quote = spark.createDataFrame([row], QUOTES)
    one = workload.stock(
        source(spark), quote, subscribers="random", publishers=1, per_publisher=1, brokers=1
    )
    content = json.loads(one.publications.head()["attributes"])
    assert content["openClose%Diff"] == 0.0
    assert round(content["highLow%Diff"], 3) == 0.013  # the paper prints 0.014
    assert content["closeEqualsLow"] is True
    assert content["closeEqualsHigh"] is False
    assert content["date"] == "1996-09-05"


def test_simulate_reads_what_workload_writes(spark, tmp_path):
    from postroad.sim.run import run as simulate
    from postroad.sim.scenario import from_dict

    told = {"brokers": 7, "patterns": 10, "sigma": 0.3, "publications": 20, "seed": 1}
    facts = run.workload("patterns", str(tmp_path), run.Job(), jsonl=True, **told)
    assert facts["publications"] == 20
    names = ("publications", "subscriptions", "advertisements")
    assert facts["tables"] == [str(tmp_path / name) for name in names]
    scenario = {
        "scheme": "subscription_forwarding",
        "overlay": {"kind": "full_tree", "fanout": 2, "height": 2},
        "workload": {name: f"{name}.jsonl" for name in names},
    }
    result = simulate(from_dict(scenario, "here", tmp_path)).summary()
    subscriptions = store.rows_of(str(tmp_path / "subscriptions"))
    publications = store.rows_of(str(tmp_path / "publications"))
    expected = sum(
        matches(parse(one["filter"]), json.loads(two["attributes"]))
        for one in subscriptions
        for two in publications
    )
    assert result["deliveries"] == expected > 0
    assert result["missing"] == 0
    assert not list(tmp_path.glob(".*"))
    again = run.workload("patterns", str(tmp_path), run.Job(), jsonl=True, **told)
    assert again == {**facts, "unchanged": True}
