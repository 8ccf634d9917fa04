"""`python -m postroad.bench [part …]`: run all parts, or the named ones.

After each, where its time went is printed (`where`); `--no-where` runs it in this process with
nothing beside it. With `--against REF` each runs so in turn with an older version's, and ratios
are printed; `--times N` says how often (3).
"""

from __future__ import annotations

import argparse
import importlib

from postroad.bench import against, where

PARTS = {
    "beaconvey": "postroad.bench.beaconvey",
    "beaconvey-scale": "postroad.bench.beaconvey_scale",
    "compiling": "postroad.bench.compiling",
    "cost": "postroad.bench.cost",
    "dashboard": "postroad.bench.dashboard",
    "gossip": "postroad.bench.gossip",
    "hostile": "postroad.bench.hostile",
    "kyra": "postroad.bench.kyra",
    "kyra-decisions": "postroad.bench.kyra_decisions",
    "kyra-differences": "postroad.bench.kyra_differences",
    "live": "postroad.bench.live",
    "matching": "postroad.bench.matching",
    "matching-awkward": "postroad.bench.matching_awkward",
    "parsing": "postroad.bench.parsing",
    "fan-out": "postroad.bench.fan_out",
    "pipeline": "postroad.bench.pipeline",
    "pipeline-bulk": "postroad.bench.bulk",
    "pipeline-stages": "postroad.bench.stages",
    "popsub": "postroad.bench.popsub",
    "relocation": "postroad.bench.relocation",
    "replay": "postroad.bench.replay",
    "safety": "postroad.bench.safety",
    "sessions": "postroad.bench.sessions",
    "simulator": "postroad.bench.simulator",
    "traces": "postroad.bench.traces",
    "watch": "postroad.bench.watch",
    "workers": "postroad.bench.workers",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m postroad.bench")
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--against", metavar="REF", help="an older version, as git names it")
    parser.add_argument("--times", type=int, default=3, help="that both run, with --against")
    parser.add_argument(
        "--no-where", action="store_true", help="nothing runs beside a part to see where time goes"
    )
    chosen = parser.parse_args()
    wanted = chosen.parts or list(PARTS)
    unknown = [part for part in wanted if part not in PARTS]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    for part in wanted:
        if chosen.against is not None:
            print(f"{part}, this version beside {chosen.against}")
            print(against.run(part, chosen.against, max(1, chosen.times)), flush=True)
        elif chosen.no_where:
            importlib.import_module(PARTS[part]).main()
        else:
            where.run(part)


if __name__ == "__main__":
    main()
