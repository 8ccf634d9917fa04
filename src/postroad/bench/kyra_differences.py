"""What was tried to explain where our Kyra numbers differ from the published ones.

Three networks, one seed: Table III's 50% column with other cliques, and multicast groups with
other trees. `docs/kyra.md` says what follows.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from postroad.kernels import kyra as kernel
from postroad.overlay import IntArray
from postroad.overlay.latencies import spanning_tree
from postroad.papers.kyra import runs
from postroad.papers.kyra.published import GROUPS, RATES
from postroad.papers.kyra.workload import VALUES
from postroad.planning.groups import forgy

NETWORKS = range(3)
CLIQUES_MS = (50, 60, 70, 80, 100)
SHAPES = ("spanning tree", "star", "random tree", "binary tree")


def other_cliques(distribution: str) -> None:
    """Kyra against FBR at 50% interest and 10 trees, by the most ms within a clique."""
    print(f"\n{distribution} at 50%, Kyra against FBR: published with 50 ms for Zipf:")
    print("storage 0.30, processing 0.35, node stress 0.92, link stress 1.16, NRU 1.11")
    print(
        f"{'ms':>4} {'servers':>8} {'storage':>8} {'process':>8} {'node':>6} {'link':>6} {'NRU':>6}"
    )
    for clique_ms in CLIQUES_MS:
        rows = []
        for topology in NETWORKS:
            setting = runs.setting(topology, 500, 0.0, distribution, 0.5, 0)
            grouped = runs.cliques(topology, 500, 0.0, clique_ms)
            kyra, fbr = (totals(setting, scheme, grouped) for scheme in ("kyra", "fbr"))
            ratios = [kyra[fact] / fbr[fact] for fact in ("kept", "matches", "stress")]
            ratios.append(kyra["link"] / kyra["links used"] / (fbr["link"] / fbr["links used"]))
            ratios.append(kyra["used_us"] / fbr["used_us"])
            rows.append([float(np.mean(list(map(len, grouped)))), *ratios])
        size, *ratios = np.mean(rows, axis=0)
        print(f"{clique_ms:>4} {size:>8.2f} {ratios[0]:>8.3f} {ratios[1]:>8.3f} "
              + " ".join(f"{each:>6.3f}" for each in ratios[2:]))  # fmt: skip


def totals(setting: runs.Setting, scheme: str, grouped: list[list[int]]) -> Counter[str]:
    """Each fact of a scheme, added up, and how many links were used."""
    added: Counter[str] = Counter()
    for *_, bucket, fact, count in runs.evaluate(setting, scheme, grouped, 10):
        name = fact.removeprefix("kyra.")
        added[name] += count if bucket is None else bucket * count
        added["links used"] += count if name == "link" else 0
    return added


def least_stress() -> None:
    """What any scheme must send: each server that wants a publication receives it once."""
    print("\nmultimodal at 50%, average node stress: published FBR 1742, Kyra 1574")
    schemes = ("unicast", "fbr", "kyra")
    for seed in range(4):
        rows = []
        for topology in NETWORKS:
            setting = runs.setting(topology, 500, 0.0, "multimodal", 0.5, seed)
            grouped = runs.cliques(topology, 500, 0.0, 50)
            servers = setting.underlay.servers_count
            rows.append([totals(setting, one, grouped)["stress"] / servers for one in schemes])
        means = zip(schemes, np.mean(rows, axis=0), strict=True)
        print(f"seed {seed}: " + ", ".join(f"{scheme} {mean:.0f}" for scheme, mean in means))


def tree(shape: str, direct_us: IntArray, members: IntArray) -> IntArray:
    if shape == "spanning tree" or len(members) < 2:
        return spanning_tree(direct_us, members)
    if shape == "star":
        hub = members[direct_us[np.ix_(members, members)].sum(axis=1).argmin()]
        ends = [(hub, member) for member in members if member != hub]
    else:
        random = np.random.default_rng(5)
        mixed = random.permutation(members)
        above = [random.integers(n) if shape == "random tree" else (n - 1) // 2
                 for n in range(1, len(mixed))]  # fmt: skip
        ends = [(mixed[up], mixed[n]) for n, up in enumerate(above, 1)]
    return np.array(ends, np.int64)


def other_trees() -> None:
    """Multicast groups with the popularity of Zipf: average link stress and maximum node stress."""
    print(
        "\nMBR, Zipf: published average link stress 286, 759, 755; maximum node stress 2154, 9248,"
    )
    print("9208; average node stress 559, 1791, 1781")
    print(f"{'trees':>14} {'interest':>8} {'link mean':>10} {'node max':>9} {'node mean':>10}")
    for shape in SHAPES:
        for rate in RATES:
            rows = []
            for topology in NETWORKS:
                setting = runs.setting(topology, 500, 0.0, "zipf", rate, 0)
                wanted, direct_us = setting.interests.wanted, setting.underlay.direct_us
                group = forgy(wanted.T, GROUPS, 0)
                _, entry = kernel.multicast_groups(group, direct_us, wanted)
                members = [np.flatnonzero(wanted[:, group == each].any(axis=1))
                           for each in range(int(group.max()) + 1)]  # fmt: skip
                trees = [tree(shape, direct_us, each) for each in members]
                laid = kernel.forest(len(wanted), [each.tolist() for each in members], trees)
                outcome = kernel.mbr(laid, entry, group, wanted, setting.publishers, setting.values)
                stress = kernel.stress(outcome.messages)
                carried = kernel.charge(setting.underlay, outcome.messages).link_messages
                rows.append([carried[carried > 0].mean(), stress.max(), stress.mean()])
            link, most, mean = np.mean(rows, axis=0)
            print(f"{shape:>14} {rate:>8.0%} {link:>10.0f} {most:>9.0f} {mean:>10.0f}")


def other_links() -> None:
    """Average link stress over the links that carried anything, or over one set for all."""
    print("\nZipf, average link stress; published for MBR: 286, 759, 755")
    columns = ("carried", "FBR's links", "between", "all")
    print(f"{'scheme':>8} {'interest':>8} " + " ".join(f"{name:>12}" for name in columns))
    for scheme in ("mbr", "fbr", "kyra"):
        for rate in RATES:
            rows = []
            for topology in NETWORKS:
                setting = runs.setting(topology, 500, 0.0, "zipf", rate, 0)
                grouped = runs.cliques(topology, 500, 0.0, 50)
                carried = totals(setting, scheme, grouped)
                charged = kernel.charge(setting.underlay, runs.forwarded(setting).messages)
                tree_links = int(np.count_nonzero(charged.link_messages))
                over = (carried["links used"], tree_links, setting.between, carried["links"])
                rows.append([carried["link"] / links for links in over])
            means = " ".join(f"{mean:>12.0f}" for mean in np.mean(rows, axis=0))
            print(f"{scheme:>8} {rate:>8.0%} {means}")


def main() -> None:
    print(f"{len(NETWORKS)} networks of 500 servers, {VALUES:,} values, 1,000 publications")
    other_cliques("zipf")
    other_cliques("multimodal")
    least_stress()
    other_trees()
    other_links()


if __name__ == "__main__":
    main()
