"""One workload under three schemes: what each sends, and whether everything arrived."""

import postroad

scenario = {
    "seed": 7,
    "overlay": {"kind": "full_tree", "fanout": 3, "height": 3},
    "workload": {
        "generate": {"subscriptions": 200, "publications": 100, "publishers": 5, "selectivity": 0.1}
    },
}
for scheme in ("flooding", "subscription_forwarding", "advertisement_forwarding"):
    summary = postroad.simulate({**scenario, "scheme": scheme}).summary()
    print(
        f"{scheme}: {summary['messages']['publication']} messages, "
        f"{summary['deliveries']} deliveries, {summary['missing']} missing"
    )
