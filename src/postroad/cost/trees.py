"""The paper's equations on an arbitrary tree whose shape is known broker by broker.

Section 4: with each node's own |T_c|, |T_f| and f, equations (12), (13) and (16) give its
load, and the true subtree sizes in place of (3) give the traffic (`links_of`). The paper has
one |T_c| per node; where children have subtrees of different sizes we take their mean size.
`exact` does without.
"""

from __future__ import annotations

import numpy as np

from postroad.cost.forwarding import (
    check_probability,
    inner_publication_load,
    inner_subscription_load,
    root_publication_load,
    root_subscription_load,
    some,
)
from postroad.cost.shapes import Links
from postroad.overlay.rooted import FloatArray, Rooted


def mean_fanout(tree: Rooted) -> float:
    """f̄: children per inner broker."""
    return float((tree.brokers_count - 1) / np.count_nonzero(tree.children_count))


def links_of(tree: Rooted) -> Links:
    """The tree's links grouped by |T|, for the traffic equations (6) and (8)."""
    sizes, counts = np.unique(tree.subtree_size[1:], return_counts=True)
    n = tree.brokers_count
    return Links(
        brokers=np.asarray(float(n)),
        nodes=np.concatenate([[1.0], counts]),
        subtree=np.concatenate([[float(n)], sizes]),
    )


def subscription_load(tree: Rooted, sigma: float) -> FloatArray:
    """L(p) per broker: (11) at the root, (12) and (13) at inner brokers, σ at leaves."""
    check_probability("sigma", sigma)
    n, f = tree.brokers_count, tree.children_count
    load = inner_subscription_load(sigma, n, f, *_beyond(tree))
    load[f == 0] = sigma
    load[0] = root_subscription_load(sigma, n, f[0])
    return load


def publication_load(tree: Rooted, mu: float) -> FloatArray:
    """L(e) per broker: (16) at inner brokers, section 3.2.2 at the root and the leaves."""
    check_probability("mu", mu)
    n, f = tree.brokers_count, tree.children_count
    load = inner_publication_load(mu, n, f, *_beyond(tree))
    load[f == 0] = some(mu, n - 1) / n
    load[0] = root_publication_load(mu, n, f[0])
    return load


def _beyond(tree: Rooted) -> tuple[FloatArray, FloatArray]:
    """|T_c| (the mean over the children) and |T_f| of each broker."""
    below = tree.subtree_size
    child = (below - 1) / np.maximum(tree.children_count, 1)
    return child, (tree.brokers_count - below).astype(float)
