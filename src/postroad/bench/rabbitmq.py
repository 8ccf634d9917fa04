"""RabbitMQ's headers exchange, the nearest it has to content filters, with as many bindings.

The broker runs on one scheduler, as ours does on one core, with files and ports of its own. A
binding demands two equal headers (`x-match = all`), which is all the exchange can say; every
publication is for one queue, once.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # Debian's wrapper would change the user
START_S = 60.0
STEP_S = 0.25


def missing() -> str | None:
    """Why it cannot be measured here; None if it can."""
    if not SERVER.exists():
        return "rabbitmq-server is not installed (Debian: apt-get install rabbitmq-server)"
    try:
        import pika  # noqa: F401
    except ImportError:
        return "pika is not installed (pip install 'postroad[bench]')"
    return None


@dataclass(frozen=True)
class RabbitMQ:
    amqp: int  # ports
    mqtt: int
    process: subprocess.Popen[bytes]


@contextmanager
def server(folder: Path, mqtt: bool = False) -> Iterator[RabbitMQ]:
    """A broker with its own name server, both ended on leaving; with its MQTT plugin or without."""
    sockets = [socket.socket() for _ in range(4)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    port, nodes, names, mqtt_port = (each.getsockname()[1] for each in sockets)
    for each in sockets:
        each.close()
    home = folder / "rabbitmq"
    home.mkdir()
    plugins = home / "plugins"
    plugins.write_text("[rabbitmq_mqtt].\n" if mqtt else "[].\n")
    settings = home / "rabbitmq.conf"
    settings.write_text(f"mqtt.listeners.tcp.default = 127.0.0.1:{mqtt_port}\n" if mqtt else "")
    environment = {
        **os.environ,
        "HOME": str(home),
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_NODENAME": "postroad-bench@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(nodes),
        "RABBITMQ_MNESIA_BASE": str(home),
        "RABBITMQ_LOG_BASE": str(home),
        "RABBITMQ_CONFIG_FILE": str(settings),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1",
    }
    with (home / "out").open("wb") as out:
        process = subprocess.Popen([str(SERVER)], env=environment, stdout=out, stderr=out)
    try:
        yield RabbitMQ(port, mqtt_port, process)
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
            epmd = shutil.which("epmd")
            if epmd is not None:
                subprocess.run(
                    [epmd, "-port", str(names), "-kill"], capture_output=True, check=False
                )


def connect(port: int) -> Any:
    import pika
    from pika.exceptions import AMQPError

    end = time.monotonic() + START_S
    while True:
        try:
            return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        except (AMQPError, OSError):
            if time.monotonic() > end:
                raise
            time.sleep(STEP_S)


def publications_per_s(port: int, bindings: int, publications: int) -> float:
    """From the first publication to the last delivery."""
    import pika

    connection = connect(port)
    channel = connection.channel()
    channel.exchange_declare("quotes", "headers")
    channel.queue_declare("all")
    for n in range(bindings):
        demanded = {"x-match": "all", "symbol": f"S{n // 20}", "level": n % 20}
        channel.queue_bind("all", "quotes", arguments=demanded)
    started = time.perf_counter()
    for n in range(publications):
        k = n * 7919 % bindings  # spread over all bindings
        headers = {"symbol": f"S{k // 20}", "level": k % 20}
        properties = pika.BasicProperties(headers=headers)
        channel.basic_publish("quotes", "", b'{"price": 99.5}', properties)
    for seen, _ in enumerate(channel.consume("all", auto_ack=True), 1):
        if seen == publications:
            break
    took = time.perf_counter() - started
    connection.close()
    return publications / took
