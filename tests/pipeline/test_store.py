"""Tables: atomic, with lineage, made once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from postroad import __version__
from postroad.cli import cli
from postroad.errors import InputError, RunFailed
from postroad.pipeline import run, session, store
from postroad.pipeline.schemas import EDGES, conform
from postroad.pipeline.store import Recipe

pytestmark = pytest.mark.spark


def edges(spark, *pairs):
    return spark.createDataFrame(list(pairs), EDGES)


def put(frame, path, parameters):
    store.write(frame, str(path))
    store.publish(str(path), Recipe("test", parameters))


def content(spark, path):
    return sorted(tuple(row) for row in store.read(spark, str(path), EDGES).collect())


def test_a_job_killed_at_any_moment_leaves_the_old_table_or_the_new_one(
    spark, tmp_path, monkeypatch
):
    path = tmp_path / "edges"

    class Killed(BaseException):
        pass

    class Files:
        """A file system that dies before its nth change."""

        def __init__(self, real, left):
            self.real, self.left = real, left

        def __getattr__(self, name):
            if name in ("move", "delete_dir", "open_output_stream"):
                self.left[0] -= 1
                if self.left[0] < 0:
                    raise Killed
            return getattr(self.real, name)

    real = store.local
    seen = []
    for moment in range(12):
        monkeypatch.setattr(store, "local", real)
        put(edges(spark, (1, 2)), path, {"version": "old"})
        left = [moment]
        monkeypatch.setattr(
            store, "local", lambda p, left=left: (Files(real(p)[0], left), real(p)[1])
        )
        try:
            put(edges(spark, (3, 4)), path, {"version": "new"})
            done = True
        except Killed:
            done = False
        monkeypatch.setattr(store, "local", real)
        seen.append(content(spark, path))
        version = store.read_lineage(str(path))["parameters"]["version"]
        assert seen[-1] == [(1, 2)] if version == "old" else [(3, 4)]
        if done:
            break
    assert done
    assert seen[0] == [(1, 2)]
    assert seen[-1] == [(3, 4)]
    assert [(3, 4)] in seen[:-1], "a cut-short publication was never finished"


def test_lineage_names_command_parameters_version_and_inputs(spark, tmp_path):
    source = tmp_path / "graph.txt"
    source.write_text("1 2\n2 3\n3 1\n")
    job = run.Job(command="postroad pipeline ingest graph.txt")
    run.ingest([str(source)], "edges", str(tmp_path / "t"), job)
    run.sample(str(tmp_path / "t/edges"), str(tmp_path / "s"), job, nodes=2)
    made = json.loads((tmp_path / "t/edges/_lineage.json").read_text())
    assert made["command"] == "postroad pipeline ingest graph.txt"
    assert made["version"] == __version__
    assert made["parameters"]["kind"] == "edges"
    assert list(made["inputs"]) == [str(source)]
    sampled = json.loads((tmp_path / "s/edges/_lineage.json").read_text())
    assert sampled["inputs"] == {str(tmp_path / "t/edges"): made["fingerprint"]}


def test_a_finished_stage_is_redone_only_when_something_changed(spark, tmp_path):
    source = tmp_path / "graph.txt"
    source.write_text("1 2\n2 3\n3 1\n")
    folder = str(tmp_path / "t")
    assert not run.ingest([str(source)], "edges", folder, run.Job())["unchanged"]
    part = next((tmp_path / "t/edges").glob("part-*"))
    again = run.ingest([str(source)], "edges", folder, run.Job(command="another"))
    assert again["unchanged"]
    assert again["records"] == 3
    assert part.exists()
    assert not run.ingest([str(source)], "edges", folder, run.Job(force=True))["unchanged"]
    assert not run.ingest([str(source)], "edges", folder, run.Job(), undirected=True)["unchanged"]
    source.write_text("1 2\n2 3\n")
    os.utime(source, ns=(1, 1))
    assert not run.ingest([str(source)], "edges", folder, run.Job(), undirected=True)["unchanged"]


def test_a_rerun_that_has_nothing_to_do_starts_no_spark(tmp_path, spark, monkeypatch):
    source = tmp_path / "graph.txt"
    source.write_text("1 2\n")
    run.ingest([str(source)], "edges", str(tmp_path / "t"), run.Job())
    monkeypatch.setattr(session, "session", lambda *a: pytest.fail("Spark was started"))
    assert run.ingest([str(source)], "edges", str(tmp_path / "t"), run.Job())["unchanged"]


def test_reading_what_is_not_such_a_table(spark, tmp_path):
    with pytest.raises(InputError, match="there is no table"):
        store.read(spark, str(tmp_path / "nothing"), EDGES)
    spark.range(3).write.parquet(str(tmp_path / "foreign"))
    with pytest.raises(InputError, match="not follower, followee"):
        store.read(spark, str(tmp_path / "foreign"), EDGES)


def test_conform_fails_loudly(spark):
    with pytest.raises(AssertionError, match="followee"):
        conform(spark.createDataFrame([(1,)], "follower bigint"), EDGES)
    nulls = spark.createDataFrame([(1, None)], "follower bigint, followee bigint")
    with pytest.raises(Exception, match="column followee is null"):
        conform(nulls, EDGES).collect()


def test_names_of_the_place_beside():
    assert store.beside("a/b/edges") == "a/b/.edges.writing"
    assert store.beside("edges", "next") == ".edges.next"
    assert store.beside("/edges/") == "/.edges.writing"
    assert store.uri("hdfs://x/y") == "hdfs://x/y"
    assert store.uri("/x/y") == "file:///x/y"
    assert Path(store.local("x")[1]).is_absolute()


def test_a_filter_on_a_table_reaches_its_files_and_a_foreign_table_is_checked(spark, tmp_path):
    put(edges(spark, (1, 2), (3, 4)), tmp_path / "ours", {})
    table = store.read(spark, str(tmp_path / "ours"), EDGES).where("follower = 3")
    plan = table._jdf.queryExecution().executedPlan().toString()
    assert "EqualTo(follower,3)" in plan.partition("PushedFilters")[2].partition("]")[0]
    assert [tuple(row) for row in table.collect()] == [(3, 4)]
    nulls = spark.createDataFrame([(1, None)], "follower bigint, followee bigint")
    nulls.write.parquet(str(tmp_path / "foreign"))
    with pytest.raises(Exception, match="column followee is null"):
        store.read(spark, str(tmp_path / "foreign"), EDGES).collect()


HOLD = """
import sys, time
from postroad.pipeline import store
with store.locked(sys.argv[1], "postroad pipeline sweep grid.toml"):
    print("locked", flush=True)
    time.sleep(600)
"""


def test_a_folder_has_one_writer_and_a_killed_one_gives_it_up(tmp_path):
    folder = str(tmp_path / "out")
    holder = subprocess.Popen([sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"locked\n"
        owner = rf"'{folder}' is being written by postroad pipeline sweep grid.toml \(process "
        with pytest.raises(RunFailed, match=rf"{owner}{holder.pid} on ") as caught:
            run.sample(str(tmp_path), folder, run.Job(), nodes=1)
        assert "\n" not in str(caught.value)
        holder.kill()
        holder.wait()
        assert (tmp_path / "out" / store.LOCK).exists(), "the killed one left its mark"
        with store.locked(folder), pytest.raises(RunFailed), store.locked(folder):
            pass
        assert not list((tmp_path / "out").iterdir())
        with store.locked(folder):
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def test_a_command_that_fails_leaves_no_empty_folder(tmp_path):
    (tmp_path / "kept").mkdir()
    for folder in ("kept", "a/b/c"):
        with pytest.raises(ValueError, match="in vain"), store.locked(str(tmp_path / folder)):
            raise ValueError("in vain")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    with store.locked(str(tmp_path / "a/b")):
        (tmp_path / "a/b/result").touch()
    assert (tmp_path / "a/b/result").exists()


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write to"), store.locked(str(tmp_path / "file")):
        pass


def test_a_table_of_another_schema_version_is_refused_with_a_remedy(spark, tmp_path):
    path = tmp_path / "edges"
    store.write(edges(spark, (1, 2)), str(path))
    recipe = Recipe("ingest", {}, command="postroad pipeline ingest g.txt --as edges -o d")
    store.publish(str(path), recipe)
    assert store.is_current(str(path), recipe)
    lineage = json.loads((path / store.LINEAGE).read_text())
    (path / store.LINEAGE).write_text(json.dumps(lineage | {"schema": 99}))
    told = r"edges: the table has schema version 99, this Postroad reads \d+; use .*"
    with pytest.raises(InputError, match=told + "postroad pipeline ingest g.txt --as edges -o d"):
        store.read(spark, str(path), EDGES)
    assert not store.is_current(str(path), recipe), "it is made again"
    del lineage["schema"]
    (path / store.LINEAGE).write_text(json.dumps(lineage))
    assert content(spark, path) == [(1, 2)]


def test_the_tables_of_a_folder_are_listed(spark, tmp_path):
    source = tmp_path / "graph.txt"
    source.write_text("1 2\n2 3\n3 3\n")
    job = run.Job(command="postroad pipeline ingest graph.txt")
    run.ingest([str(source)], "edges", str(tmp_path / "t"), job, bad_share=0.5)
    (tmp_path / "t/.edges.next.old").mkdir()
    (tmp_path / "t/.edges.next.old/_lineage.json").write_text("not a table in its place")
    found = CliRunner().invoke(cli, ["pipeline", "tables", str(tmp_path), "--json"])
    rows = json.loads(found.output)
    assert [(Path(row["table"]).name, row["rows"]) for row in rows] == [
        ("edges", 2),
        ("edges_quarantine", 1),
    ]
    assert rows[0]["quality"] == {"records": 3, "quarantined": 1}
    assert rows[0]["inputs"] == [str(source)]
    said = CliRunner().invoke(cli, ["pipeline", "tables", str(tmp_path)]).output
    assert "edges: 2 rows, 3 records, 1 quarantined" in said
    assert "by postroad pipeline ingest graph.txt" in said
    assert CliRunner().invoke(cli, ["pipeline", "tables", "/nowhere"]).exception is not None
