"""The Spark session: how it starts, what it is told, how the package reaches the executors.

The only module that touches SparkSession and sparkContext. The JVM's own chatter goes to a log
file; when the session does not start, the error names that file.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from postroad.errors import InputError, RunFailed

DEFAULT_MASTER = "local[*]"
ERRORS = (PySparkException, Py4JError)
"""What Spark raises when a job fails."""
PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED = "postroad_shipped"
ARCHIVES = Path(__file__).parent / "__pycache__"
CLAIMED_S = 3600
LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""The first of HotSpot's two compilers alone: what runs for seconds does not live to see the
second's code. Starting a session and its first job took 5.9 s of processor time, not 11.1. With the
collector that has no threads of its own the demo's Java took 22.7 s, not 27.9. With one compiler
Java keeps 48 MB of code unless told otherwise, which Spark fills in minutes; it then drops most of
that and starts again: of 45 MB 6 were left. With both compilers it keeps 240 MB."""
SHIP = "spark.postroad.ship"
"""`--conf spark.postroad.ship=false`: the executors have the package installed already."""
WORKER_ERROR = PythonException
"""What Spark raises when Python code on an executor raised."""


@contextmanager
def session(
    master: str | None = None, conf: Sequence[str] = (), light: bool = False
) -> Iterator[SparkSession]:
    """A session for the time of the block; one that is already there is used and left alone.

    Without a master it is the one that spark-submit was given, else `local[*]`. If it is to be
    `light`, Java compiles quickly rather than well, where it is this session's own.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        _observe_all(running)
        yield running
    elif _kept:
        yield _kept[-1].enter_context(_session(master, conf, light))
    else:
        with _session(master, conf, light) as started:
            yield started


_kept: list[ExitStack] = []


@contextmanager
def kept() -> Iterator[None]:
    """The session that the block starts, if it starts one, is kept to the block's end."""
    with ExitStack() as stack:
        _kept.append(stack)
        try:
            yield
        finally:
            _kept.remove(stack)


@contextmanager
def _session(master: str | None, conf: Sequence[str], light: bool) -> Iterator[SparkSession]:
    with tempfile.TemporaryDirectory(prefix="postroad-spark-") as scratch:
        options = {**submitted(), **parse_conf(conf)}
        master = master or options.get("spark.master", DEFAULT_MASTER)
        if _is_local(master) and not is_submitted():
            java = ["-XX:+IgnoreUnrecognizedVMOptions", *[LIGHT_JAVA] * light, *shared_classes()]
            options = {"spark.driver.extraJavaOptions": " ".join(java), **options}
        spark = _start(master, settings(master, options, Path(scratch)), Path(scratch))
        _observe_all(spark)
        try:
            yield spark
        finally:
            spark.stop()


def end_java() -> None:
    """Give back the memory of a session that has ended: its Java, where this process started it,
    ends too. Another session starts another."""
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None or SparkContext._active_spark_context is not None:
        return
    gateway.shutdown()
    process.stdin.close()  # upon which it ends
    process.wait()
    SparkContext._gateway = SparkContext._jvm = None


def shared_classes(folder: Path = ARCHIVES) -> list[str]:
    """Java's options to take Spark's classes, loaded and verified, from an archive of this
    installation; where there is none, to leave one when it ends.

    It is kept where Python keeps what it compiled, beside this file, and goes with it. Java checks
    that it is of the same Java and the same files, and writes its first bytes last. Whoever makes
    it has claimed its name before; if nothing came of that, another tries after a while.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if java is None:
        return []
    made_of = [os.path.realpath(java), os.stat(java).st_mtime_ns, pyspark.__file__]
    key = hashlib.sha256(json.dumps([*made_of, pyspark.__version__]).encode()).hexdigest()[:16]
    path = folder / f"spark-{key}.jsa"
    quiet = ["-Xshare:auto", "-Xlog:disable", "-Xlog:all=warning:stderr"]
    try:
        if path.exists():
            with path.open("rb") as file:
                if any(file.read(4)):
                    return [*quiet, f'"-XX:SharedArchiveFile={path}"']
            if time.time() - path.stat().st_mtime < CLAIMED_S:
                return []
        folder.mkdir(exist_ok=True)
        for other in folder.glob("spark-*.jsa"):
            other.unlink()
        path.touch(exist_ok=False)
    except OSError:  # another has claimed it, or nobody may write here
        return []
    return [*quiet, f'"-XX:ArchiveClassesAtExit={path}"']


def _observe_all(spark: SparkSession) -> None:
    """Keep what is observed below an empty result: this rule would drop it from the plan."""
    rule = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
    spark.conf.set("spark.sql.adaptive.optimizer.excludedRules", rule)


def is_submitted() -> bool:
    """Whether spark-submit started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def submitted() -> dict[str, str]:
    """What spark-submit was told, where it started this process."""
    if not is_submitted():
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def parse_conf(pairs: Sequence[str]) -> dict[str, str]:
    """`k=v` texts of the command line as a mapping."""
    conf = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--conf {pair!r}", remedy="write it as key=value")
        conf[key] = value
    return conf


def settings(master: str, conf: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """What the session is told; the user's own settings win."""
    conf_of = {
        "spark.app.name": "postroad",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.speculation": "false",
        "spark.driver.memory": "4g",
        # The executors' Python finds the package where this process found it, or unpacked.
        "spark.executorEnv.PYTHONPATH": _python_path(str(PACKAGE.parent)),
        # Runs are the parallelism: one that also starts threads would only steal cores.
        "spark.executorEnv.NUMBA_NUM_THREADS": "1",
    }
    if _is_local(master) or "//127.0.0.1" in master or "//localhost" in master:
        conf_of |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if not _is_local(master) and conf.get(SHIP, "true") == "true":
        archive = f"{_packed(scratch)}#{SHIPPED}"
        conf_of["spark.executorEnv.PYTHONPATH"] = _python_path(f"./{SHIPPED}")
        others = conf.get("spark.archives")
        conf = {**conf, "spark.archives": f"{others},{archive}" if others else archive}
    return conf_of | dict(conf) | {"spark.master": master}


def _python_path(package: str) -> str:
    """The package first, then what the user's own PYTHONPATH adds."""
    return os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _packed(scratch: Path) -> Path:
    """The package as an archive that executors unpack: real files, so kernels cache beside them."""
    target = scratch / "postroad.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(PACKAGE.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(PACKAGE.parent))
    return target


def _start(master: str, conf: Mapping[str, str], scratch: Path) -> SparkSession:
    # PySpark would print a failed query and its stack as JSON; our errors are one line.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)
    log = scratch / "spark.log"
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        with _stderr_to(log), _python(conf.get("spark.pyspark.python")):
            return builder.getOrCreate()
    except Exception as error:
        last = log.read_text(errors="replace").strip().splitlines()[-1:] or [""]
        reason = str(error).strip().splitlines()[0]
        raise RunFailed(
            f"Spark did not start with master {master!r}: {reason} {last[0]}".rstrip()
            + "; check --master, --conf and that Java 17 or newer is installed"
        ) from error


@contextmanager
def _python(executable: str | None) -> Iterator[None]:
    """PySpark reads the executors' Python from the environment alone, when a session starts."""
    before = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = executable or before or sys.executable
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYSPARK_PYTHON"]
        else:
            os.environ["PYSPARK_PYTHON"] = before


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """The JVM inherits the standard error it is started with."""
    sys.stderr.flush()
    saved = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def version(spark: SparkSession) -> str:
    return str(spark.version)


def jvm_pid(spark: SparkSession) -> int:
    """The process of the Spark driver."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return int(jvm.java.lang.ProcessHandle.current().pid())


def work_done(spark: SparkSession) -> tuple[int, int]:
    """How many jobs have run so far, and the bytes that were shuffled."""
    context = spark.sparkContext
    gateway, status = context._gateway, context._jsc.sc().statusStore()
    assert gateway is not None
    doubles, tasks = gateway.new_array(gateway.jvm.double, 0), gateway.jvm.java.util.ArrayList()
    stages = status.stageList(None, False, False, doubles, tasks)
    shuffled = sum(stages.apply(n).shuffleWriteBytes() for n in range(stages.size()))
    return int(status.jobsList(None).size()), int(shuffled)


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """`id` from 0 to count-1."""
    return spark.range(count)


def tasks(spark: SparkSession, count: int) -> DataFrame:
    """`id` from 0 to count-1, each in a partition of its own (repartition would not do that)."""
    return spark.range(0, count, 1, max(1, count))


def small_table(spark: SparkSession, columns: Mapping[str, Any], schema: StructType) -> DataFrame:
    """A table made on the driver from columns: parameters and weights, never data."""
    kinds = to_arrow_schema(schema)
    arrays = [pa.array(columns[name], kinds.field(name).type) for name in schema.names]
    return spark.createDataFrame(pa.table(arrays, names=schema.names), schema)


def cutter(spark: SparkSession, scratch: Callable[[DataFrame], DataFrame]) -> Callable[..., Any]:
    """How a loop forgets its past: a local checkpoint on this machine, Parquet on a cluster.

    Local checkpoints live in the executors' memory and disks and die with an executor.
    """
    if _is_local(str(spark.sparkContext.master)):
        return lambda frame: frame.localCheckpoint(eager=True)
    return scratch


def small(spark: SparkSession) -> SparkSession:
    """A session of the same application for small tables: expressions are interpreted, because
    to compile them takes longer than to compute them, and plans are taken as they are."""
    apart = spark.newSession()
    apart.conf.set("spark.sql.codegen.wholeStage", "false")
    apart.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    apart.conf.set("spark.sql.adaptive.enabled", "false")
    apart.conf.set("spark.sql.shuffle.partitions", "1")
    return apart


def streaming(spark: SparkSession) -> SparkSession:
    """A session of the same application for streams: their state in RocksDB, on disk.

    The state has as many partitions as there are cores when a stream first starts, and keeps them.
    """
    state = "spark.sql.streaming.stateStore"
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    apart = spark.newSession()
    apart.conf.set(f"{state}.providerClass", provider)
    apart.conf.set(f"{state}.rocksdb.changelogCheckpointing.enabled", "true")
    apart.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    return apart


def with_progress(
    spark: SparkSession,
    action: Callable[[], Any],
    report: Callable[[int], None],
    every_s: float = 0.25,
) -> Any:
    """Do `action` in a thread; tell `report` how many tasks of its jobs are done, live."""
    context = spark.sparkContext
    group = f"postroad-{os.getpid()}-{threading.get_ident()}"
    outcome: list[Any] = []
    failure: list[BaseException] = []

    def act() -> None:
        context.setJobGroup(group, "postroad", interruptOnCancel=True)
        try:
            outcome.append(action())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    tracker = context.statusTracker()
    try:
        while thread.is_alive():
            thread.join(every_s)
            done = 0
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info else ():
                    stage_info = tracker.getStageInfo(stage)
                    done += stage_info.numCompletedTasks if stage_info else 0
            report(done)
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    if failure:
        raise failure[0]
    return outcome[0]


@contextmanager
def followed(
    spark: SparkSession, tell: Callable[[int, int, int], None], every_s: float = 0.5
) -> Iterator[None]:
    """While the block runs, tell of each stage of Spark's jobs its number and how many of its
    tasks are done, and of how many."""
    tracker, ended = spark.sparkContext.statusTracker(), threading.Event()

    def follow() -> None:
        while not ended.wait(every_s):
            for number in tracker.getActiveStageIds():
                info = tracker.getStageInfo(number)
                if info is not None:
                    tell(number, info.numCompletedTasks, info.numTasks)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def failure_text(error: BaseException) -> str:
    """The line of a Spark error that says what happened, without the stack.

    Of a Python worker's traceback that is the exception's own line, the last if one led to another.
    """
    text = str(error)
    raised = re.findall(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)", text, re.M)
    if raised:
        return str(raised[-1]).strip()
    if "Python worker exited unexpectedly" in text:
        return "it exited unexpectedly: killed, out of memory, or crashed"
    for line in reversed(text.splitlines()):
        if "Caused by:" in line:
            return line.partition("Caused by:")[2].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if isinstance(error, PySparkException) or len(lines) < 2:
        return lines[0] if lines else type(error).__name__
    return lines[1].removeprefix(": ")
