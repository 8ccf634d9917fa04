"""A comparison of own data: which scheme to run, and by how much."""

from pathlib import Path
from tempfile import TemporaryDirectory

import postroad

folder = TemporaryDirectory()  # so that nothing stays here; keep the page in a folder of yours
data = Path(folder.name)
(data / "workload.toml").write_text(
    """
matters = "traffic"
replicates = 2
schemes = ["flooding", "subscription forwarding"]
[limits]
given_links = true
[overlay]
kind = "edges"
file = "sites.edges"
[workload]
subscriptions = "subscriptions.csv"
publications = "publications.csv"
"""
)
(data / "sites.edges").write_text("london paris 8000\nparis milan 12000\nparis madrid 20000\n")
(data / "subscriptions.csv").write_text(
    "broker,client,filter\nmilan,giulia,price > 60\nmadrid,pablo,price < 10\n"
)
(data / "publications.csv").write_text(
    "time,broker,publisher,attributes\n"
    + "".join(f'{n},london,lse,"{{""price"": {n}}}"\n' for n in range(100))
)
compared = postroad.compare(data / "workload.toml", data / "report")
print(compared.best)
messages = compared.measures[compared.measures.measure == "messages"]
for row in messages.itertuples():
    print(f"{row.scheme}: {row.mean:.3f} messages a publication")
print(compared.page().name)
folder.cleanup()
