"""What routing costs, in closed form: message traffic and forwarding load without simulating.

`shapes` describes trees by their levels; `forwarding` holds the equations of Castelli, Costa
and Picco (DEBS 2007) on such shapes; `trees` holds the equations they give for arbitrary
trees; `exact` the exact expectation for any tree and any probabilities, for four schemes;
`advice` answers which fan-out to build; `batches` has what serving a batch costs, as measured.
All of it is arithmetic on arrays.
"""
