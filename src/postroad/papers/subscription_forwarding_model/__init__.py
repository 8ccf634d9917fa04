"""Castelli, Costa, Picco: Modeling the Communication Costs of Content-based Routing (DEBS 2007).

`published` holds Tables 2 to 7 as data; `runs` the experiments behind them: each table column
is a point, run over many seeds by the compiled kernel, its traffic and loads compared with the
closed form. `beyond` checks what the closed form knows beyond the paper, `pictures` holds the
numbers of Figures 4 to 10.

How we read the paper where it leaves a choice:

- Subscribers: every broker subscribes to a pattern with probability σ, independently, as
  section 2 defines σ; a pattern may so have no subscriber at all.
- Receivers in Tables 2 and 4 (σ=0.02, μ=0.1): every broker wants a publication with
  probability μ, drawn apart from the patterns; publications follow the routing entries of that
  interest, whose own subscription messages are not counted in T(p).
- Receivers in Tables 3 and 5 to 7 (σ=μ): subscriptions "match uniquely one event", so the F_e
  publications are shared out evenly over the F_p patterns and each follows the entries of its
  pattern. This reproduces the published deviations of L(e) (Table 6a: 6.9 and 15.6 for
  σ=μ=0.001 and 0.01); receivers drawn for each publication would make them three times smaller.
- Zipf (Tables 3b and 6b): the paper does not give P, the mean number of patterns per broker.
  We keep the mean σ of Table 1, that is P = 0.02 F_p = 2.
- Table 4: the published f̄ of each h fit n = 11,111 (as in Figure 10), not the 21,845 of
  Table 1. f̄ is the mean that the numbers of children are drawn with; this gives the published
  errors for each standard deviation, f̄ measured on each tree nearly twice as much.
- Tables 5 and 7: the text says σ=μ=0.001, but Table 5a at h=7 then describes the setting of
  the first column of Table 6a, and their deviations differ threefold. σ=μ=0.02 gives the
  published deviations of Table 5, so that is what we run; Figures 4 and 5 use 0.001.
- ΔL is taken broker by broker within a run, its deviation is over the brokers of a run, and
  both are then averaged over the runs; the maximum load is the largest simulated load of a run.
"""
