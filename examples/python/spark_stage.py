"""A stage of the pipeline: raw rows in, a clean table and its quarantine out."""

from pathlib import Path

from postroad.pipeline import run, store

Path("subscriptions.csv").write_text(
    "subscription,broker,client,filter\n"
    "s1,a,ann,price > 10\n"
    "s2,a,bob,price >\n"
    "s3,b,eve,symbol = 'SAP'\n"
)
facts = run.ingest(["subscriptions.csv"], "subscriptions", "data", run.Job(), bad_share=0.5)
print(facts["records"], "rows,", facts["quarantined"], "bad:", facts["reasons"])
for row in store.rows_of("data/subscriptions", ("subscription", "filter")):
    print(row)
