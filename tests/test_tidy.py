"""Facts about the repository itself: layering, generated docs, the README's commands."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from live_harness import environment
from postroad import __version__
from postroad.cli import COMMANDS, EXTRAS, cli
from postroad.pipeline import definitions
from postroad.routing import SCHEMES
from postroad.sim import facts
from postroad.traces import schema

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "postroad"

# A room may import from its own layer and from those before it.
LAYERS = [
    {"errors", "model", "draws", "jit"},
    {"filters", "matching"},
    {"overlay", "routing", "relocation", "planning", "cost"},
    {"kernels"},
    {"settings"},
    {"workloads"},
    {"traces"},
    {"sim", "live"},
    {"replay", "explain", "checking"},
    {"pipeline"},
    {"papers", "comparison"},
    {"report", "web"},
    {"api", "bench", "reference", "cli", "__main__"},
]
# The rooms of the live driver, likewise: the broker is the loop around its edge and its links.
LIVE = [
    {"network", "store"},
    {"links"},
    {"edge"},
    {"traces"},
    {"broker"},
    {"operations"},
    {"server", "client"},
]
ONLY_IN = {
    "pyspark": {"pipeline"},
    "asyncio": {"live", "web"},
    "numba": {"jit", "kernels", "matching", "relocation"},
    "click": {"cli"},
}


def layer(room: str) -> int:
    return next(number for number, rooms in enumerate(LAYERS) if room in rooms)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(for_types: bool = False) -> list[tuple[Path, str, str]]:
    """Every import in the package: file, room, imported name. With those only for types, or not."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        nodes = list(ast.walk(parsed(path)))
        left_out = {
            inner
            for node in nodes
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for each in node.body
            for inner in ast.walk(each)
            if not for_types
        }
        for node in nodes:
            if node in left_out:
                continue
            if isinstance(node, ast.Import):
                found.extend((path, room, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.append((path, room, node.module))
                if node.module == "postroad":
                    found.extend((path, room, f"postroad.{alias.name}") for alias in node.names)
    return found


def test_rooms_import_only_from_earlier_layers() -> None:
    for path, room, name in imports():
        parts = name.split(".")
        if parts[0] == "postroad" and len(parts) > 1 and not parts[1].startswith("__"):
            assert layer(parts[1]) <= layer(room), f"{path} imports {name}"


def test_the_rooms_of_the_live_driver_have_one_way_arrows() -> None:
    """Also for the type checker: what a room needs of a later one it says as a Protocol."""
    place = {room: number for number, rooms in enumerate(LIVE) for room in rooms}
    for path, room, name in imports(for_types=True):
        parts = name.split(".")
        if room == "live" and parts[:2] == ["postroad", "live"] and len(parts) > 2:
            here = path.relative_to(SOURCE / "live").parts[0].removesuffix(".py")
            if here != "__init__":
                assert place[parts[2]] <= place[here], f"{path} imports {name}"


def test_heavy_libraries_stay_in_their_rooms() -> None:
    for path, room, name in imports():
        allowed = ONLY_IN.get(name.split(".")[0])
        assert allowed is None or room in allowed, f"{path} imports {name}"


def test_compiled_code_has_no_annotations_and_all_else_beside_it_has() -> None:
    compiled = {"njit", "_compiled", "_entry", "inner", "cfunc", "intrinsic"}
    for path in {path for path, _, name in imports() if name == "postroad.jit"}:
        assert "from numba import njit" not in path.read_text(encoding="utf-8"), path
        for node in parsed(path).body:
            if isinstance(node, ast.FunctionDef):
                calls = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
                names = {each.id for each in calls if isinstance(each, ast.Name)}
                where = f"{path}: {node.name}"
                assert (node.returns is None) == bool(names & compiled), where


# One idea in two drivers, or in each capsule and each paper; any other name is of one class.
SHARED_NAMES = {
    "Broker", "Chances", "Config", "Interests", "Kyra", "Link", "Point", "Quotes", "Results", "Row",
    "Stated",
}  # fmt: skip


def test_a_name_is_of_one_class() -> None:
    classes = [
        node.name
        for path in SOURCE.rglob("*.py")
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert {name for name in classes if classes.count(name) > 1} <= SHARED_NAMES


def test_every_command_can_be_loaded_and_says_what_it_does() -> None:
    with cli.make_context("postroad", ["demo"]) as context:
        for name in COMMANDS:
            command = cli.get_command(context, name)
            assert command is not None
            assert command.help, name


def test_an_interrupt_is_one_line_also_while_the_command_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("postroad.cli.main", interrupted)
    with pytest.raises(SystemExit) as ended:
        import_module("postroad.__main__").main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "postroad: interrupted\n"


def test_a_command_that_is_nearly_one_is_named() -> None:
    done = CliRunner().invoke(cli, ["simulte"])
    assert done.exit_code == 2
    assert "did you mean 'simulate'?" in done.output


def schemes_page() -> str:
    parts = [
        "# Schemes",
        "",
        "Generated from the table `SCHEMES` and its modules by `make golden`.",
        "",
    ]
    for name, scheme in SCHEMES.items():
        module = inspect.getmodule(scheme.config)
        assert module is not None
        assert module.__doc__
        default = scheme.config()
        names = inspect.signature(scheme.config).parameters
        said = ", ".join(f"`{n} = {str(getattr(default, n)).lower()}`" for n in names) or "none"
        parts += [
            f"## `{name}`",
            "",
            f"{scheme.summary[0].upper()}{scheme.summary[1:]}. Promise: {scheme.promise}. "
            f"Parameters: {said}.",
            "",
            inspect.cleandoc(module.__doc__),
            "",
        ]
    return "\n".join(parts)


def test_schemes_page_is_current() -> None:
    path = ROOT / "docs" / "schemes.md"
    if os.environ.get("POSTROAD_GOLDEN") == "rewrite":
        path.write_text(schemes_page(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == schemes_page()


def measures_page() -> str:
    """Facts and measures, as docs/measures.md has them."""
    rows = ["# Facts and measures", "", "Generated from `sim/facts.py` and"]
    rows += ["`pipeline/definitions.py` by `make golden`.", "", "## Facts", ""]
    rows += [(facts.__doc__ or "").split("\n\n", 1)[1].strip(), ""]
    rows += ["| fact | what is counted |", "|---|---|"]
    rows += [f"| `{name}` | {text} |" for name, text in facts.FACTS.items()]
    rows += ["", "## Measures", "", (definitions.__doc__ or "").strip(), ""]
    rows += ["| measure | definition | unit | from a run's totals |", "|---|---|---|---|"]
    rows += [
        f"| `{name}` | {one.definition} | {one.unit} | `{one.sql}` |"
        for name, one in definitions.MEASURES.items()
    ]
    rows += ["", "Traces, of live brokers too, tell these: "]
    rows[-1] += ", ".join(f"`{name}`" for name in definitions.TRACED) + "."
    rows += ["", "## The papers", "", *definitions.ABOUT_PAPERS.strip().splitlines()]
    for paper, of in definitions.OF_PAPERS.items():
        rows += ["", f"### {paper}", "", "| fact | what is counted |", "|---|---|"]
        rows += [f"| `{paper}.{name}` | {text} |" for name, text in of.facts.items()]
        rows += ["", "| measure | definition | unit | from its facts |", "|---|---|---|---|"]
        rows += [
            f"| `{name}` | {one.definition} | {one.unit} | `{one.sql}` |"
            for name, one in of.measures.items()
        ]
    return "\n".join([*rows, ""])


def test_every_metric_of_a_paper_is_defined() -> None:
    for paper, of in definitions.OF_PAPERS.items():
        shown = getattr(import_module(f"postroad.papers.{paper}.runs"), "METRICS", ())
        assert set(shown) <= set(of.measures)


def test_measures_page_is_current() -> None:
    path = ROOT / "docs" / "measures.md"
    if os.environ.get("POSTROAD_GOLDEN") == "rewrite":
        path.write_text(measures_page(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == measures_page()


def traces_tables() -> str:
    """The schema of traces, as docs/traces.md has it."""
    kinds = {name: f"{'sampled' if name in schema.SAMPLED else 'always'}" for name in schema.KINDS}
    rows = ["| column | type | what |", "|---|---|---|"]
    for name, text in schema.COLUMNS.items():
        kind = "integer" if "int" in str(schema.Row.__annotations__[name]) else "text"
        rows.append(
            f"| `{name}` | {kind}{'' if name in schema.REQUIRED else ', or none'} | {text} |"
        )
    rows += ["", "| kind | recorded | what |", "|---|---|---|"]
    rows += [f"| `{name}` | {kinds[name]} | {text} |" for name, text in schema.KINDS.items()]
    rows += ["", f"Why a publication stops: {', '.join(schema.REASONS)}."]
    return "\n".join(rows)


def test_the_schema_of_traces_in_the_docs_is_current() -> None:
    path = ROOT / "docs" / "traces.md"
    head, mark, rest = path.read_text(encoding="utf-8").partition("<!-- schema -->\n")
    _, end, tail = rest.partition("<!-- end -->")
    page = f"{head}{mark}{traces_tables()}\n{end}{tail}"
    page = re.sub(r"## The schema, version \S+", f"## The schema, version {schema.VERSION}", page)
    if os.environ.get("POSTROAD_GOLDEN") == "rewrite":
        path.write_text(page, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == page


def test_versions_agree_and_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    pinned = {
        line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().split()
    }
    assert wanted_names(project) <= pinned


def test_the_site_is_built_strictly_and_names_every_page(tmp_path: Path) -> None:
    """Links and anchors are checked by mkdocs; nothing is loaded from elsewhere."""
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    docs = ROOT / "docs"
    assert named == {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    front = (tmp_path / "index.html").read_text()
    assert not re.findall(r'(?:src|rel="stylesheet" href)="https?:', front)


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = text.partition("## Dependencies")[2].splitlines()
    cells = ", ".join(row.split("|")[1] for row in rows if row.startswith("|"))
    reasons = set(re.findall(r"[a-z0-9-]+", cells.lower()))
    assert wanted_names(project) <= reasons


def wanted_names(project: dict[str, Any]) -> set[str]:
    """The packages that the project and its extras name, without itself."""
    extras = project["optional-dependencies"].values()
    wanted = project["dependencies"] + [line for lines in extras for line in lines]
    return {re.split(r"[<>=\[; ]", line)[0].lower() for line in wanted} - {"postroad"}


def test_a_command_without_its_extra_says_which_it_is() -> None:
    """Of every library of an extra the command line knows the extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    modules = {"prometheus-client": "prometheus_client", "opentelemetry-sdk": "opentelemetry"}
    for extra in ("live", "pipeline", "report", "otlp"):
        for line in project["optional-dependencies"][extra]:
            name = re.split(r"[<>=]", line)[0]
            if not name.startswith("opentelemetry-exporter"):
                assert EXTRAS[modules.get(name, name)]
    assert set(EXTRAS.values()) <= project["optional-dependencies"].keys()
    assert EXTRAS["numba"] == EXTRAS["llvmlite"] == "fast"  # Numba brings LLVM's library with it


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "swico", "--interests", "x.csv", "-o", "y"],
        ["advise", "publishers", "examples/quotes/scenario.toml"],
        ["reproduce", "subscription-forwarding-model"],
    ],
)
def test_a_command_that_is_compiled_names_the_extra_that_compiles(words: list[str]) -> None:
    code = "import sys; sys.modules['llvmlite'] = None; from postroad.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.stderr == "postroad: llvmlite is not installed; pip install 'postroad[fast]'\n"
    assert done.returncode == 2


@pytest.mark.parametrize(
    "page", ["README.md", *sorted(p.name for p in (ROOT / "docs").glob("*.md"))]
)
def test_pages_name_only_commands_and_files_that_exist(page: str) -> None:
    path = ROOT / page if page == "README.md" else ROOT / "docs" / page
    text = path.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)`", text)) <= targets
    for command in re.findall(r"^(?:    |\$ |`)?postroad ([a-z]+)", text, re.MULTILINE):
        assert command in COMMANDS, command
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (path.parent / link).exists(), link
