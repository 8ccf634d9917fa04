"""PopSub's evaluation (section 5): topologies, workload, and its figures beside ours.

How we read what the paper leaves open; each is a field of `Point`, so it can be varied:

- The 200 publishers are the 200 most followed users, and a subscription is to one publisher with
  a one-sided predicate on each attribute (a quarter of its publications match). With this the
  baseline's gain and the direct forwards per publication come near the paper's. The other
  readings, `random_users` (200 users drawn from the follower distribution) and
  `predicates = False` (a subscription matches everything its publisher says), are an experiment
  of their own.
- A subscription names its publisher, so the 20 classes among which the paper spreads its 200
  advertisements play no part.
- The gain ratio is the local estimate G averaged over every (broker, link, publication) forward.
  A batch counts as one forward with n times G and as one pure forward; a direct send has gain 1.
- Broker throughput τ is not in the text. Below saturation only τ·φ matters; the default
  τ = 1,600/s makes τ·φ = 80 at φ = 0.05. In the overload experiment brokers take 1/τ per
  publication they handle, with τ = 2,700/s: a root that sees 2,000 publications a second in the
  other experiments is not overloaded, one that sees 3,000 is. A batch of n takes as long as
  1 + 0.2 (n - 1) publications, and a direct send costs its receiver and not its sender. τ, φ, the
  slope 0.2 and a sender's cost are varied in experiments of their own.
- The King latencies are not available: a latency matrix from a file, or a generated one, takes
  their place, so delays compare as ratios only. The tree comes from a sparse graph in which each
  host knows 5 random others: breadth-first from a random root, then shortest paths.
- Gossip is the kernel's model of the core (see `kernels/popsub.py`).
"""
