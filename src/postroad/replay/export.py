"""A recorded scenario as files that `postroad simulate` and `postroad compare` read."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

from postroad.errors import InputError
from postroad.sim.scenario import Scenario


def write(scenario: Scenario, out: Path) -> None:
    """Write `scenario.toml`, `comparison.toml` and the files of the workload to a folder."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the folder {str(out)!r}: {error.strerror}", remedy="choose another -o"
        ) from None
    overlay, workload = scenario.overlay, scenario.workload
    names = overlay.names
    with (out / "links.edges").open("w", encoding="utf-8") as file:
        for (a, b), latency_us in zip(
            overlay.ends.tolist(), overlay.latency_us.tolist(), strict=True
        ):
            file.write(f"{names[a]} {names[b]} {latency_us}\n")
    for kind, who, interests in (
        ("subscriptions", "client", workload.subscriptions),
        ("advertisements", "publisher", workload.advertisements),
    ):
        with (out / f"{kind}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "broker", who, "filter", "time_us", "until_us"])
            for one in interests:
                times = ("" if us is None else us for us in (one.time_us, one.until_us))
                writer.writerow([one.id, names[one.broker], one.client, str(one.filter), *times])
    with (out / "publications.jsonl").open("w", encoding="utf-8") as file:
        for posting in workload.postings:
            row = {
                "time_us": posting.time_us,
                "broker": names[posting.broker],
                "publisher": posting.publisher,
                "id": posting.id,
                "attributes": dict(posting.attributes),
            }
            file.write(json.dumps(row) + "\n")
    files = (
        '[overlay]\nkind = "edges"\nfile = "links.edges"\n\n[workload]\n'
        'subscriptions = "subscriptions.csv"\nadvertisements = "advertisements.csv"\n'
        'publications = "publications.jsonl"\n'
    )
    parameters = "".join(
        f"{key} = {json.dumps(value)}\n"
        for key, value in dataclasses.asdict(scenario.config).items()
        if value is not None
    )
    (out / "scenario.toml").write_text(
        f'scheme = "{scenario.scheme}"\nseed = {scenario.seed}\n\n[parameters]\n{parameters}\n'
        + files,
        encoding="utf-8",
    )
    (out / "comparison.toml").write_text(
        f'title = "As recorded: {len(workload.postings):,} publications at '
        f'{len(names):,} brokers"\nreplicates = 2\n\n{files}',
        encoding="utf-8",
    )
