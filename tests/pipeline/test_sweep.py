"""Sweeps: the grid, paired seeds, failures that stop nothing, resumption."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from postroad.cli import cli
from postroad.errors import InputError, RunFailed
from postroad.pipeline import run, session, store, sweep
from postroad.pipeline.run.job import guarded

pytestmark = pytest.mark.spark
POINT = 'seed = 5\nrun = "points:point"\n'


@pytest.fixture(autouse=True)
def _points(monkeypatch):
    """The driver finds the runs under test; the session's Python workers are told where."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def experiment(tmp_path, text, name="experiment.toml"):
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


def test_the_grid_is_paired_and_run_ids_are_its_rows(tmp_path, monkeypatch):
    text = POINT + 'replicates = 3\n[vary]\nscheme = ["a", "b"]\nx = [1, 2]\n[fixed]\nn = 4\n'
    rows = sweep.expand(sweep.load(experiment(tmp_path, text)))
    assert len(rows) == 12
    assert len({row.run_id for row in rows}) == 12
    assert len({row.seed for row in rows}) == 3
    assert {row.replicate: row.seed for row in rows[:3]} == {
        row.replicate: row.seed for row in rows[9:]
    }
    assert rows[0].parameters == {"n": 4, "scheme": "a", "x": 1}
    again = sweep.expand(sweep.load(experiment(tmp_path, text, "other.toml")))
    assert [row.run_id for row in again] == [row.run_id for row in rows]
    more = sweep.expand(sweep.load(experiment(tmp_path, text.replace("[1, 2]", "[2, 3]"))))
    assert {row.run_id for row in more} & {row.run_id for row in rows} == {
        row.run_id for row in rows if row.parameters["x"] == 2
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("sed = 3\n", "unknown key 'sed'; did you mean 'seed'"),
        ("seed = 'x'\n", "seed is 'x'"),
        ("seed = 3\n", "neither a scenario nor a run"),
        (POINT + "replicates = 0\n", "replicates is 0"),
        (POINT + "[vary]\nx = 3\n", r"vary.x is 3; give a list"),
        (POINT + "[vary]\nx = [1, 1]\n", "vary.x repeats a value"),
        (POINT + "[vary]\nx = [1]\n[fixed]\nx = 2\n", "x is both fixed and varied"),
        ('run = "nowhere:f"\n', "cannot import run 'nowhere:f'"),
        ('run = "points:nothing"\n', "cannot import run 'points:nothing'"),
        ('scenario = "none.toml"\n', r"cannot read '.*none.toml'"),
        ("seed =\n", "not TOML"),
        ("[scenario]\nscheme = 'flooding'\n[fixed]\n'overlay.fanuot' = 2\n", "overlay"),
    ],
)
def test_a_wrong_experiment_is_told_before_anything_runs(tmp_path, text, complaint):
    with pytest.raises(InputError, match=complaint):
        run.sweep(experiment(tmp_path, text), str(tmp_path / "out"), run.Job())
    assert not (tmp_path / "out").exists()


def test_the_command_ends_with_its_answer_and_a_picture(spark, tmp_path):
    text = POINT + "replicates = 3\n[vary]\nx = [7, 4, 9]\n"
    out = tmp_path / "out"
    words = ["pipeline", "sweep", experiment(tmp_path, text), "-o", str(out)]
    done = CliRunner().invoke(cli, [*words, "--metric", "value"], catch_exceptions=False)
    assert "value: least with x = 4" in done.stdout
    assert "then x = 7" in done.stdout
    assert "3 pairs)" in done.stdout
    assert (out / "answer.png").stat().st_size > 1000
    values = {}
    for row in store.rows_of(f"{out}/runs"):
        values.setdefault(row["parameters"]["x"], {})[row["replicate"]] = row["metrics"]["value"]
    differences = [values["7"][n] - values["4"][n] for n in range(3)]
    assert f"The difference is {sum(differences) / 3:,.4g} " in done.stdout
    measured = ["pipeline", "measure", f"{out}/runs", "-o", str(tmp_path / "m"), "--plot"]
    done = CliRunner().invoke(cli, [*measured, str(tmp_path / "m.svg")], catch_exceptions=False)
    assert (tmp_path / "m.svg").exists()


def by_x(rows):
    return {
        (row["parameters"]["x"], row["replicate"]): (row["status"], row["attempt"], row["metrics"])
        for row in rows
    }


def test_a_failed_run_is_recorded_and_retried_and_a_wider_grid_keeps_what_is_done(spark, tmp_path):
    text = POINT + "replicates = 2\n[vary]\nx = [1, 2]\n[fixed]\nfail = true\n"
    out = str(tmp_path / "out")
    facts = run.sweep(experiment(tmp_path, text), out, run.Job())
    assert (facts["runs"], facts["skipped"], facts["failed"]) == (4, 0, 2)
    assert facts["first_error"] == "ValueError: x is two"
    first = by_x(store.rows_of(f"{out}/runs"))
    assert first["2", 0][:2] == ("failed", 1)
    assert first["1", 0][2]["value"] == 1 + first["1", 0][2]["nested.noise"]
    assert "text" not in first["1", 0][2]
    facts = run.sweep(experiment(tmp_path, text), out, run.Job())
    assert (facts["runs"], facts["skipped"], facts["failed"]) == (4, 2, 2)
    second = by_x(store.rows_of(f"{out}/runs"))
    assert second["2", 1][:2] == ("failed", 2)
    wider = experiment(tmp_path, text.replace("[1, 2]", "[1, 3]"))
    facts = run.sweep(wider, out, run.Job())
    assert (facts["runs"], facts["skipped"], facts["failed"]) == (4, 2, 0)
    third = by_x(store.rows_of(f"{out}/runs"))
    assert third["1", 0] == first["1", 0]
    assert set(third) == {("1", 0), ("1", 1), ("3", 0), ("3", 1)}
    assert run.sweep(wider, out, run.Job())["unchanged"]
    assert not (tmp_path / "out/runs.finished").exists()


def test_a_run_that_kills_its_python_worker_does_not_stop_the_rest(spark, tmp_path):
    text = POINT + "[vary]\nx = [1, 2, 3, 4]\n[fixed]\ndie = true\n"
    facts = run.sweep(experiment(tmp_path, text), str(tmp_path / "out"), run.Job())
    assert (facts["runs"], facts["failed"]) == (4, 1)
    assert "Python worker died" in facts["first_error"]
    rows = by_x(store.rows_of(str(tmp_path / "out/runs")))
    assert {x for (x, _), (status, *_) in rows.items() if status == "ok"} == {"1", "3", "4"}


def test_a_python_worker_that_fails_says_why_and_its_run_is_recorded(spark, tmp_path, monkeypatch):
    text = POINT + "[vary]\nx = [1, 2, 3]\n[fixed]\nmistyped = true\n"
    out = tmp_path / "out"
    facts = run.sweep(experiment(tmp_path, text), str(out), run.Job())
    assert (facts["runs"], facts["failed"]) == (3, 1)
    assert re.match(r"the Python worker failed: Arrow\w+: .*soon", facts["first_error"])
    rows = by_x(store.rows_of(str(out / "runs")))
    assert rows["2", 0][0] == "failed"
    assert {rows["1", 0][0], rows["3", 0][0]} == {"ok"}

    # Without the package no run can be performed: all are recorded, with the cause.
    def finish(tasks, runs, folder):
        def each(batches):
            import no_such_package  # noqa: F401

            yield from batches

        return tasks.mapInArrow(each, "id long")

    monkeypatch.setattr(sweep, "finish", finish)
    facts = run.sweep(experiment(tmp_path, POINT + "[vary]\nx = [1, 2]\n"), str(out), run.Job())
    assert (facts["runs"], facts["failed"]) == (2, 2)
    cause = "ModuleNotFoundError: No module named 'no_such_package'"
    assert facts["first_error"] == f"the Python worker failed: {cause}"


def test_kernels_are_not_compiled_again_for_every_task(spark, tmp_path, monkeypatch):
    text = 'run = "points:kernel"\nreplicates = 8\n[fixed]\nn = 10\n'
    run.sweep(experiment(tmp_path, text), str(tmp_path / "out"), run.Job())
    metrics = [row["metrics"] for row in store.rows_of(str(tmp_path / "out/runs"))]
    assert [one["value"] for one in metrics] == [45.0] * 8
    assert len({one["process"] for one in metrics}) <= 2, "Python workers are kept"
    assert max(one["compiled"] for one in metrics) <= 1


def test_simulations_with_traces_measured(spark, tmp_path):
    text = """
seed = 1
replicates = 2
traces = true
scenario = "base.toml"
[vary]
scheme = ["flooding", "subscription_forwarding"]
"""
    (tmp_path / "base.toml").write_text("""
scheme = "flooding"
[overlay]
kind = "full_tree"
fanout = 2
height = 2
[workload.generate]
subscriptions = 20
publications = 30
selectivity = 0.3
""")
    out = str(tmp_path / "out")
    done = []
    path = experiment(tmp_path, text)
    facts = run.sweep(path, out, run.Job(), report=lambda count, total: done.append((count, total)))
    assert facts["first_error"] is None
    assert done[0] == (0, 4)
    assert done[-1][1] == 4
    facts = run.measure(
        f"{out}/runs",
        out,
        run.Job(),
        traces_path=f"{out}/traces",
        baselines=[{"scheme": "flooding"}],
    )
    assert facts["measures"] > facts["differences"] > 0
    rows = store.rows_of(f"{out}/measures")
    told = {(row["parameters"]["scheme"], row["metric"]): row["mean"] for row in rows}
    for scheme in ("flooding", "subscription_forwarding"):
        assert told[scheme, "deliveries"] == told[scheme, "trace.deliveries"] > 0
        assert told[scheme, "hops.mean"] == pytest.approx(told[scheme, "trace.hops_mean"])
        # Nothing but publications is sent once the network has settled.
        assert told[scheme, "trace.sends"] == told[scheme, "messages.publication"] > 0
    differences = {row["metric"]: row for row in store.rows_of(f"{out}/differences")}
    assert differences["deliveries"]["difference"] == 0
    assert differences["messages.publication"]["ratio"] < 1
    with pytest.raises(InputError, match=r"no run has scheme=none; the parameters are scheme"):
        run.measure(f"{out}/runs", f"{out}/2", run.Job(), baselines=[{"scheme": "none"}])


def test_spark_failures_are_one_line(spark, tmp_path):
    with pytest.raises(RunFailed, match=r"Spark failed: .*is null") as caught:
        guarded(lambda: spark.sql("SELECT raise_error('x is null')").collect())
    assert "\n" not in str(caught.value)


def test_stages_are_followed_while_they_run(spark, tmp_path):
    """A task waits until it was told of."""
    told = []

    def tell(number, done, total):
        told.append((done, total))
        (tmp_path / "go").touch()

    def wait(batches):
        while not (tmp_path / "go").exists():
            time.sleep(0.01)
        yield from batches

    with session.followed(spark, tell, every_s=0.01):
        assert len(spark.range(0, 3, 1, 3).mapInArrow(wait, "id bigint").collect()) == 3
    assert told
    assert {total for _, total in told} == {3}
