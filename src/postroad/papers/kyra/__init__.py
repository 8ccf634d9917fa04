"""Kyra: content-space partitioning over cliques and trees, against filter- and multicast-based
routing (Cao and Singh, INFOCOM 2004).

`published` holds Tables I, III and IV and what the text says of the figures; `workload` the four
distributions; `runs` the experiments. This is the one place that says how we read the paper
where it leaves a choice.

- Underlay: 50 to 100 ms between transit domains too, three quarters of the pairs of domains
  joined; domain sizes vary, their total does not; servers stand on any router. The 8,938 links
  are counted once per direction.
- "Clique size" in Table III is the maximum latency within a clique, in ms.
- Content: 1,000 values. Interests are independent sets; the interest rate is the mean over the
  values, not over the publications, which matters where popular values are published more.
- Uniform popularity reaches from 0 to twice the rate. The peaks' σ is a quarter of the mean
  distance over all pairs of peaks.
- Publishers are uniform over the servers, except regionally: there a value has a home.
- Node stress counts messages sent and received, the hop to the proxy server and the final
  notifications included, per 1,000 publications.
- Link stress is the mean over the directed links between routers that carried anything; LAN
  links are left out. Over one fixed set for all schemes (measured): the links between any two
  servers, or all links. NRU is a ratio of totals, LAN links included.
- Processing counts the servers that a publication passes and that have more than one neighbour
  in its tree, and always the first proxy server.
- Storage is the share of all subscriptions (server and value) on the trees that a server joins.
- MBR: Euclidean K-means over all values; a publisher outside the group hands its publication to
  the nearest member. Multicast and broadcast copies share links as IP multicast would.
- Balanced Kyra counts a server's links over all trees.
"""
