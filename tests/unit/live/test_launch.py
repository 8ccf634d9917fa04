"""Starting a network where something else has its ports; counting what links carry."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from live_harness import write_network
from postroad.errors import RunFailed
from postroad.live.network import load
from postroad.live.operations import launch
from postroad.relocation import all_messages


class _Other(BaseHTTPRequestHandler):
    """A broker of another network, as far as it is asked."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"network": "theirs", "broker": "Z"}).encode())

    def log_message(self, *_: object) -> None:
        pass


def test_another_network_at_a_port_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A"], [], free=True)
    network = load(path)
    with HTTPServer(("127.0.0.1", network.addresses[0].http), _Other) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(RunFailed, match="broker 'Z' of network 'theirs' answers at"):
                launch.start(network)
        finally:
            server.shutdown()
            thread.join()
    assert not launch.folder_of(network).exists()


@pytest.mark.parametrize("key", ["mqtt", "link", "http"])
def test_a_port_in_use_is_named_and_nothing_is_started(tmp_path: Path, key: str) -> None:
    path = write_network(tmp_path, ["A", "B"], [("A", "B")], free=True)
    network = load(path)
    port = getattr(network.addresses[1], key)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        if key != "http":  # nothing answers there, so a status would be waited for
            listener.listen()
        with pytest.raises(RunFailed, match=rf"brokers\.B\.{key}: broker 'B' cannot listen"):
            launch.start(network)
    assert not launch.folder_of(network).exists()


def test_publications_are_counted_under_every_kind_that_carries_them() -> None:
    kinds = {message.kind for message in all_messages() if message.carries}
    assert {"publication", "notification", "direct", "batch"} <= kinds
    sent = dict.fromkeys(kinds, 1) | {"subscription": 5, "proxy": 7, "wave": 9}
    assert launch.publications_sent({"sent": sent}) == len(kinds)
