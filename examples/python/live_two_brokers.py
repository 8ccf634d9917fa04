"""Two real brokers and their clients in one script."""

import asyncio
import json
from pathlib import Path

import postroad

Path("network.toml").write_text(
    """
name = "two"
scheme = "subscription_forwarding"
links = [["north", "south"]]
[brokers.north]
mqtt = 24100
link = 24101
http = 24102
[brokers.south]
mqtt = 24103
link = 24104
http = 24105
"""
)


async def talk() -> None:
    async with (
        postroad.Client("127.0.0.1", 24100, client_id="reader") as reader,
        postroad.Client("127.0.0.1", 24103, client_id="writer") as writer,
    ):
        await reader.subscribe("quotes/#", where="price > 100")
        for price in (90, 110, 130):
            await writer.publish("quotes/sap", json.dumps({"price": price}).encode(), qos=1)
        for _ in range(2):
            message = await anext(aiter(reader))
            print(message.topic, json.loads(message.payload))


with postroad.network("network.toml") as brokers:
    print(", ".join(brokers.names))
    asyncio.run(talk())
