# Two commands do everything, set-up included: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup check test golden demo bench soak schemes floods contract seeds causes kills real saving results site pictures notebooks fuzz java bench-peers

help:  ## List these targets.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

setup: $(STAMP) java  ## Create the virtual environment and install everything pinned.

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "postroad needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing pinned dependencies into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

java:
	@sh scripts/ensure-java

check: setup  ## Lint, format and type checks.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check  ## All checks and all tests.
	@sh scripts/ensure-chromium
	$(BIN)/python -m pytest -n 2

golden: setup  ## Rewrite transcripts and generated docs; commit what you can explain.
	POSTROAD_GOLDEN=rewrite $(BIN)/python -m pytest -q tests/golden tests/test_tidy.py \
		tests/unit/checking/test_command.py tests/unit/cli/test_reference.py

demo: setup  ## Compare every scheme on one workload; writes report/index.html.
	$(BIN)/postroad demo

soak: setup  ## Kill live brokers and cut their links 200 times under load; prints what it did.
	POSTROAD_FAULTS=200 $(BIN)/python -m pytest -q -s tests/live/test_crashes.py -k faults

schemes: setup  ## Every scheme live, a thousand publications each, against an evaluator of its own.
	POSTROAD_PUBLICATIONS=1000 $(BIN)/python -m pytest -q -s -n 2 tests/live/test_every_scheme.py

floods: setup  ## Forty floods through brokers with compiled tables, against plain Python (SEED=1).
	POSTROAD_FLOODS=40 POSTROAD_SEED=$(or $(SEED),1) $(BIN)/python -m pytest -q -s -n 2 tests/live/test_floods.py

contract: setup  ## What every scheme owes its users, on hundreds of random networks per scheme and test.
	POSTROAD_EXAMPLES=400 $(BIN)/python -m pytest -q -n 2 tests/contract

seeds: setup  ## Crashes, cuts and outages of brokers in memory, hundreds of seeds each.
	POSTROAD_SEEDS=300 $(BIN)/python -m pytest -q -n 2 tests/unit/live/test_churn.py \
		tests/unit/live/test_durable.py tests/unit/live/test_tree.py

causes: setup  ## A thousand causes put into networks, and whether `postroad explain` names each.
	POSTROAD_CASES=1000 $(BIN)/python -m pytest -q tests/contract/test_explain.py

kills: setup java  ## Kill a watch of traces in mid-stream, start it again, compare its tables.
	POSTROAD_KILLS=1 $(BIN)/python -m pytest -q tests/pipeline/test_watch.py -k killed

real: setup java  ## Ingest all real files beside the repository; their flaws are counted exactly.
	POSTROAD_REAL=1 $(BIN)/python -m pytest -q tests/pipeline/test_real_data.py

results: setup java  ## docs/results from zero, all papers (DATA=folder of the graphs, quotes, latencies).
	$(BIN)/postroad reproduce all --full -o docs/results \
		--facebook $(DATA)/facebook_combined.txt.gz --twitter $(DATA)/twitter_edges_unique.txt.gz \
		--college $(DATA)/johnshopkins55_friends.txt.gz \
		--latencies $(DATA)/planetlab490_median_rtt_ms.csv.gz --quotes $(DATA)/sp500_2015_2020_daily.csv.gz

site: setup  ## The documentation as a site in build/site.
	$(BIN)/mkdocs build -q

pictures: setup  ## The pictures of the dashboard and the demo in docs, taken anew in a browser.
	@sh scripts/ensure-chromium
	$(BIN)/python scripts/screenshots.py

notebooks: setup java  ## Run the notebooks in examples anew, with what they print and draw.
	$(BIN)/python scripts/notebooks.py

saving: setup java  ## Watch a live network with --apply: what was advised, what was saved, how soon.
	POSTROAD_SAVING=1 $(BIN)/python -m pytest -q -s tests/pipeline/test_watch_live.py

fuzz: setup  ## Fuzz codecs, link frames and the filter parser, a minute each (SECONDS=60).
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[fuzz]'
	$(BIN)/python -m postroad.bench.fuzz --seconds $(or $(SECONDS),60)

bench: setup  ## Benchmarks: ratios measured in one run, how cost grows, where time goes (PARTS="live").
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python -m postroad.bench $(PARTS)

bench-peers: setup  ## Postroad beside its peers; those that are missing are named (ROWS="latency chain").
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[peers]'
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[ns3]' || \
	  echo "ns-3 could not be installed: it is left out"
	$(BIN)/python -m postroad.bench.peers $(ROWS)
