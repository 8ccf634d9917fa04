"""The files for containers, systemd and Kubernetes hold together, as far as reading them tells."""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from postroad.cli import cli
from postroad.live.network import load

DEPLOY = Path(__file__).parents[1] / "deploy"


def understood(words: list[str]) -> bool:
    """Whether a command line of ours parses."""
    assert words[0].rpartition("/")[2] == "postroad"
    done = CliRunner().invoke(cli, [words[1], "--help"])
    known = done.output
    return done.exit_code == 0 and all(w in known for w in words[2:] if w.startswith("--"))


def test_compose_starts_the_brokers_of_its_network_file() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    network = load(DEPLOY / "network.toml")
    for name in network.names:
        assert services[name]["command"][-2:] == ["--id", name]
        assert understood(["postroad", *services[name]["command"]])
        assert network.addresses[network.number(name)].host == name
    assert understood(["postroad", *services["dashboard"]["command"]])
    assert services.keys() == {*network.names, "dashboard", "prepare"}


def test_kubernetes_has_a_pod_for_each_broker(tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "postroad.yaml").read_text()))
    kinds: dict[str, Any] = {}
    for document in documents:
        kinds.setdefault(document["kind"], document)
    path = tmp_path / "network.toml"
    path.write_text(kinds["ConfigMap"]["data"]["network.toml"])
    network = load(path)
    pods = kinds["StatefulSet"]["spec"]
    assert list(network.names) == [f"postroad-{n}" for n in range(pods["replicas"])]
    assert all(a.host.endswith(f".{pods['serviceName']}") for a in network.addresses)
    (container,) = pods["template"]["spec"]["containers"]
    assert understood(container["command"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for address in network.addresses:
        assert (address.mqtt, address.link, address.http) == (
            ports["mqtt"], ports["link"], ports["http"],
        )  # fmt: skip
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"] for volume in pods["template"]["spec"]["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in pods["volumeClaimTemplates"]}
    assert mounted == volumes


def test_units_run_commands_that_there_are() -> None:
    for path in (DEPLOY / "systemd").iterdir():
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str  # type: ignore[assignment, method-assign]
        unit.read(path)
        assert understood(shlex.split(unit["Service"]["ExecStart"]))
