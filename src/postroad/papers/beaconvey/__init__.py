"""BeaConvey: small-world interest-close overlays and topic routing on them.

`published` holds Tables 3 to 5 and what the text says of the figures; `runs` the experiments.
This is the one place that says how we read the paper where it leaves a choice. The readings
marked (measured) are also measured the other way, in the same runs; `READINGS` in `runs` names
the metrics, results.csv holds them and the page says how far each moves the numbers.

- Long fingers of the baselines are Chord's, with ⌊log2 n⌋ phases; with ⌈log2 n⌉ (measured) the
  last one only begins on the ring. `--long random` runs RandomL.
- Links are undirected: a node's fingers are its neighbours in both directions. `send` goes to
  the neighbour nearest by absolute distance (the paper's footnote 1); ranges are clockwise. Or
  `send` never passes its target (measured).
- GSwicoL: one clockwise and one counter-clockwise edge per node and phase; see
  `planning/swico.py` for why, and for how ties are settled. Or the in-degree is not limited, as
  the paper's example, which removes edges of node 1 alone, can be read (measured).
- A pivot is the first finger in the distant range; without one, Pal takes its middle.
- Routing overhead counts each message that a node receives without being interested in its
  topic, rendezvous points included (measured). A relay that is interested is not counted,
  though the message it relays is not for itself (measured).
- Scribe's tree is traversed fully, also back to the publisher (measured). The publisher is a
  random subscriber; its own delivery is not counted in path lengths. Topics with fewer than two
  subscribers are not published (measured).
- iScribe's tree: messages part where the ways to their targets part; two ways that part and
  meet again are two messages.
- The average path length is over all deliveries of all publications (`path_mean`). Averaged
  within each publication first (`path_publication`) large topics weigh less (measured). The
  maximum is over all deliveries.
- Expo: popularity halves every tenth of the topics. The paper names it and shows no result.
- Facebook and Twitter: our graphs are the SNAP ego networks, not the paper's crawls of 3 and 41.7
  million users. The Facebook one has 4,039 users, so its "10K" sample is all of it. A college's
  friendship graph, where the user has one, is measured beside (measured).
"""
