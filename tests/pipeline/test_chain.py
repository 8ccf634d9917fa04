"""The whole chain on `local[*]` and on a real standalone cluster; a sweep that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner
from pyspark.errors import PythonException

from pipeline.chain import chain
from postroad.cli import cli
from postroad.pipeline import run
from postroad.pipeline.session import LIGHT_JAVA, failure_text

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # a cluster on a busy machine is slow
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
POSTROAD = [sys.executable, "-c", "from postroad.cli import main; main()"]


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "PYTHON": sys.executable, **more}


def submitted_chain(master, python, folder):
    """The chain by spark-submit, from another working directory, its folder named relatively."""
    folder.mkdir()
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir()
    submit = Path(pyspark.__path__[0]) / "bin" / "spark-submit"
    there = [HERE / "chain.py", os.path.relpath(folder, elsewhere), python]
    done = subprocess.run(
        [submit, "--master", master, "--driver-java-options", LIGHT_JAVA, *there],
        env=environment(
            PYTHONPATH=f"{ROOT / 'src'}:{HERE}",
            PYSPARK_DRIVER_PYTHON=sys.executable,
            SPARK_HOME=pyspark.__path__[0],
            SPARK_LOCAL_IP="127.0.0.1",
        ),
        cwd=elsewhere,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert not list(elsewhere.iterdir())
    return json.loads(done.stdout)


@pytest.fixture
def bare_python(tmp_path):
    """Another Python with all that Postroad needs, but not Postroad."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "python"], check=True)
    packages = next((tmp_path / "python").glob("lib/python*/site-packages"))
    for path in Path(pyspark.__path__[0]).parent.iterdir():
        if "postroad" not in path.name and not (packages / path.name).exists():
            (packages / path.name).symlink_to(path)
    python = str(tmp_path / "python" / "bin" / "python")
    probe = subprocess.run(
        [python, "-c", "import numba, pyspark, pyarrow; import postroad"],
        env=environment(PYTHONPATH=""),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'postroad'" in probe.stderr
    return python


@pytest.fixture
def cluster(tmp_path):
    """A master and two workers as processes of their own; workers do not have the package."""
    script = str(ROOT / "scripts" / "standalone-cluster")
    where = str(tmp_path / "cluster")
    bare = environment(PORT="0", PYTHONPATH="", SPARK_DAEMON_JAVA_OPTS=LIGHT_JAVA)
    started = subprocess.run(
        ["sh", script, "start", where], env=bare, capture_output=True, text=True, check=False
    )
    try:
        assert started.returncode == 0, started.stderr
        yield started.stdout.strip()
    finally:
        subprocess.run(["sh", script, "stop", where], env=bare, check=True)


@pytest.mark.timeout(900)  # four JVMs: minutes on a busy machine
def test_the_chain_gives_the_same_numbers_on_local_and_on_a_cluster(
    spark, tmp_path, cluster, bare_python
):
    (tmp_path / "local").mkdir()
    here = json.loads(json.dumps(chain(tmp_path / "local", run.Job())))
    there = submitted_chain(cluster, bare_python, tmp_path / "remote")
    assert there.pop("master") == cluster
    assert there.pop("error") is None
    assert here == there
    assert len(here["nodes"]) == 40
    assert {row["parameters"]["scheme"] for row in here["measures"]} == {
        "flooding",
        "advertisement_forwarding",
    }
    told = {row["metric"]: row for row in here["differences"]}
    assert told["deliveries"]["difference"] == 0
    assert told["deliveries"]["mean"] > 0
    assert told["messages.publication"]["ratio"] < 1
    used = list((tmp_path / "cluster").glob("work-*/app-*/*/postroad_shipped/postroad/pipeline"))
    assert len(used) == 2, "both workers ran with the package that was shipped to them"


def parts(folder):
    return {
        name: next((folder / name).glob("part-*.parquet")).read_bytes()
        for name in ("measures", "differences")
    }


def test_a_sweep_killed_half_way_and_restarted_measures_the_same_to_the_byte(
    spark, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(HERE))
    experiment = tmp_path / "experiment.toml"
    experiment.write_text(
        'seed = 1\nreplicates = 4\nrun = "points:point"\n'
        "[vary]\nx = [1, 2, 3]\n[fixed]\nsleep_s = 0.25\n"
    )
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [*POSTROAD, "pipeline", "sweep", str(experiment), "-o", str(killed)]
    paths = f"{ROOT / 'src'}:{HERE}"
    sweep = subprocess.Popen(
        [*command, "--master", "local[2]"],
        env=environment(PYTHONPATH=paths),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    finished = killed / "runs.finished"
    try:
        until = time.monotonic() + 120
        while len(list(finished.glob("*.parquet"))) < 4:
            assert time.monotonic() < until, "the sweep does not get on"
            assert sweep.poll() is None, "the sweep ended too early"
            time.sleep(0.02)
    finally:
        os.killpg(sweep.pid, signal.SIGKILL)
        sweep.wait()
    before = len(list(finished.glob("*.parquet")))
    assert 4 <= before < 12
    assert not (killed / "runs").exists()
    facts = run.sweep(str(experiment), str(killed), run.Job())
    assert facts["skipped"] >= before
    assert (facts["runs"], facts["failed"]) == (12, 0)
    run.sweep(str(experiment), str(whole), run.Job())
    for folder in (killed, whole):
        run.measure(str(folder / "runs"), str(folder), run.Job(), baselines=[{"x": "1"}])
    assert parts(killed) == parts(whole)


def test_commands_that_need_no_spark_do_not_import_it():
    code = (
        "import sys; from postroad.cli import cli;"
        "cli.main(['pipeline', '--help'], standalone_mode=False);"
        "cli.main(['pipeline', 'workload', 'social', '--help'], standalone_mode=False);"
        "sys.exit('pyspark' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_wrong_command_is_one_line_and_exit_code_2(tmp_path):
    command = [*POSTROAD, "pipeline", "ingest", str(tmp_path / "no.txt"), "--as", "edges"]
    done = subprocess.run(
        [*command, "-o", str(tmp_path)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "there is no" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "command", ["compare", "demo", "plan swico", "reproduce kyra", "pipeline sweep"]
)
def test_every_command_that_uses_spark_has_the_same_options(command):
    found = CliRunner().invoke(cli, [*command.split(), "--help"])
    assert found.exit_code == 0
    assert {"--master", "--conf"} <= set(found.output.split())


def test_the_last_exception_of_a_worker_is_what_is_told():
    text = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "a.py", line 1, in one
    first()
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in two
ValueError: x is missing
"""
    assert failure_text(PythonException(text)) == "ValueError: x is missing"
    assert "exited unexpectedly" in failure_text(
        PythonException("x\nPython worker exited unexpectedly (crashed)\nCaused by: EOFException")
    )
