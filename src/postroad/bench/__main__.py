"""`python -m postroad.bench [part …]`: run all parts, or the named ones."""

from __future__ import annotations

import importlib
import sys

PARTS = {
    "beaconvey": "postroad.bench.beaconvey",
    "beaconvey-scale": "postroad.bench.beaconvey_scale",
    "cost": "postroad.bench.cost",
    "dashboard": "postroad.bench.dashboard",
    "hostile": "postroad.bench.hostile",
    "kyra": "postroad.bench.kyra",
    "kyra-differences": "postroad.bench.kyra_differences",
    "live": "postroad.bench.live",
    "matching": "postroad.bench.matching",
    "matching-awkward": "postroad.bench.matching_awkward",
    "parsing": "postroad.bench.parsing",
    "pipeline": "postroad.bench.pipeline",
    "pipeline-stages": "postroad.bench.stages",
    "relocation": "postroad.bench.relocation",
    "replay": "postroad.bench.replay",
    "safety": "postroad.bench.safety",
    "sessions": "postroad.bench.sessions",
    "simulator": "postroad.bench.simulator",
    "traces": "postroad.bench.traces",
    "watch": "postroad.bench.watch",
}


def main() -> None:
    wanted = sys.argv[1:] or list(PARTS)
    unknown = [part for part in wanted if part not in PARTS]
    if unknown:
        sys.exit(f"bench: no part {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    for part in wanted:
        importlib.import_module(PARTS[part]).main()


if __name__ == "__main__":
    main()
