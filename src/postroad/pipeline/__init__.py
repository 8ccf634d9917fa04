"""The data pipeline on Spark: ingest, sample, workload, sweep, measure.

`run` reads, calls a stage, writes, each command in a module of its own; a stage is a function
from DataFrames to a DataFrame; `schemas` says what each table holds; `store` is the one place
that reads and writes tables; `session` the one place that knows the Spark session. Nothing else
in Postroad imports pyspark.
"""
