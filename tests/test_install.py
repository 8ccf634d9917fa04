"""The wheel, installed in an environment of its own and used from an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from live_harness import write_network
from postroad.pipeline.session import LIGHT_JAVA

ROOT = Path(__file__).parents[1]
CORE = ("click", "markdown_it", "mdurl", "msgspec", "numpy", "numpy.libs", "pygments", "rich",
        "scipy", "scipy.libs")  # fmt: skip
LIVE = ("cryptography", "mqtt5", "prometheus_client", "tomlkit", "websockets")
PIPELINE = ("contourpy", "cycler", "dateutil", "fontTools", "jinja2", "kiwisolver", "llvmlite",
            "markupsafe", "matplotlib", "mpl_toolkits", "numba", "packaging", "pandas", "PIL",
            "pillow.libs", "py4j", "pyarrow", "pyparsing", "pyspark", "pytz", "tzdata")  # fmt: skip
BARE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
# Kernels are compiled from zero in an environment of its own: that they compile there is looked at,
# not how fast they are.
BARE["NUMBA_OPT"] = "0"
SCENARIO = """
scheme = "kyra"
[overlay]
kind = "wide_area"
brokers = 12
[workload.generate]
subscriptions = 50
publications = 20
selectivity = 0.2
"""


class Installed:
    """An environment with the wheel and these libraries of ours, and no others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.libraries = folder / "libraries"
        self.libraries.mkdir()
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT))
        (wheel,) = folder.glob("*.whl")
        run(sys.executable, "-m", "venv", "--without-pip", str(folder / "environment"))
        python = folder / "environment" / "bin" / "python"
        run(sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps",
            str(wheel))  # fmt: skip
        (site,) = (folder / "environment" / "lib").glob("python*/site-packages")
        (site / "libraries.pth").write_text(f"{self.libraries}\n")
        self.command = folder / "environment" / "bin" / "postroad"

    def bring(self, names: tuple[str, ...]) -> None:
        for name in names:
            there = Path(sysconfig.get_path("purelib")) / name
            if there.exists():  # not all wheels have a folder of libraries
                (self.libraries / name).symlink_to(there)

    def postroad(self, *words: str, timeout: int = 120) -> subprocess.CompletedProcess[str]:
        empty = self.folder / "empty"
        empty.mkdir(exist_ok=True)
        return subprocess.run(
            [str(self.command), *words], cwd=empty, env=BARE, capture_output=True, text=True,
            timeout=timeout,
        )  # fmt: skip


def run(*words: str) -> None:
    done = subprocess.run(words, env=BARE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"))


def test_the_wheel_does_what_its_extras_are_for(installed: Installed) -> None:
    installed.bring(CORE)
    assert installed.postroad("init", ".", "--from", "iot").returncode == 0
    done = installed.postroad("simulate", "scenario.toml", "--check")
    assert done.returncode == 0, done.stderr
    (installed.folder / "empty" / "wide.toml").write_text(SCENARIO)
    assert installed.postroad("simulate", "wide.toml", "--check").returncode == 0
    for command, extra in (
        (("compare", "compare.toml"), "pipeline"),
        (("network", "up", "network.toml"), "live"),
        (("dashboard", "network.toml"), "live"),
        (("otlp", "traces"), "otlp"),
    ):
        done = installed.postroad(*command)
        assert done.returncode == 2
        assert done.stderr.endswith(f"pip install 'postroad[{extra}]'\n"), done.stderr

    installed.bring(LIVE)
    path = str(write_network(installed.folder, ["A", "B"], [("A", "B")], free=True))
    try:
        done = installed.postroad("network", "up", path)
        assert done.returncode == 0, done.stderr
        assert installed.postroad("network", "status", path).returncode == 0
    finally:
        done = installed.postroad("network", "down", path)
    assert "2 brokers stopped" in done.stdout

    installed.bring(PIPELINE)
    # Java with options of the user's own leaves no archive of classes: nobody would use it.
    java = f"spark.driver.extraJavaOptions={LIGHT_JAVA}"
    done = installed.postroad("demo", "--quick", "-o", "report", "--conf", java, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (installed.folder / "empty" / "report" / "index.html").exists()
