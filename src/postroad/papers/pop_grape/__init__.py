"""Cheung and Jacobsen, "Publisher Placement Algorithms in Content-based Publish/Subscribe".

How the paper was read, where its text leaves a choice:

- PlanetLab: 63 brokers in a balanced tree, links and direct ways between hosts from a matrix of
  round trips. Cluster: 127 brokers, 0.3 ms between any two. Publishers at random brokers, about
  60 publications a minute each, for 18 minutes. The numbers of publishers and subscribers are in
  a figure that the text does not carry: we take 16 publishers with 40 subscribers each.
- Each publisher has its own X brokers with subscribers. Enterprise: its high-rated subscribers
  (5%) at the first of them, the low-rated ones (95%) at the others. Random: 70% low, 25% medium,
  5% high, anywhere among them.
- All low-rated subscribers of a publisher share one filter, on `highLow%Diff`, which one tenth of
  its quotes pass; the medium-rated ones one on `volume`, which half of them pass.
- A broker needs 5 ms (cluster: 1 ms) to match a message, and as much again for each copy of a
  publication that it sends, to a neighbour or to a client. Messages from publishers count. Trace
  results cost what any message costs, though in the paper they bypass the matching engine.
- Rates, utilisations, delays and hops are those of the last third of the run, after publishers
  have moved; overhead and moves are those of the whole run.
- Delay is averaged per subscriber, then over subscribers. Overhead is the share of relocation
  messages (traces, requests, answers, migrations) among all messages between brokers.
"""
