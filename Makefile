# Two commands: `make demo` does the main job, `make test` runs the tests. Both set up everything first.
PYTHON ?= python3
BIN := .venv/bin
BENCH := .venv-bench
DOCS := .venv-docs
# What `make bench` measures; `make bench MEASURED="--model resnet50 --batch 1"` measures something else.
MEASURED ?= --model resnet18 --methods single,packed,deep,batchensemble,mimo,multihead --batch 1,16
# Waiting threads that spin slow everything down when another process runs; some CPUs lack bfloat16 instructions.
export OMP_WAIT_POLICY ?= PASSIVE
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16

# What a command prints is shown only where it fails.
quietly = { $(1); } >$(@D)/setup.log 2>&1 || { cat $(@D)/setup.log >&2; exit 1; }
PIP = $(@D)/bin/python -m pip install -q --no-warn-script-location

.PHONY: demo test test-slow coverage bench check format docs docs-graph clean

demo: .venv/ready
	$(BIN)/multum compare --data digits --methods all --seeds 3 --tune 2 --out runs/demo

# Two processes of tests on two cores: more threads would only wait for each other.
test test-slow coverage: export OMP_NUM_THREADS ?= 1

test: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-slow: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal

coverage: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" --cov=multum --cov-report=term-missing:skip-covered

# Peers have an environment of their own: what they need is none of ours.
bench: $(BENCH)/ready
	$(BENCH)/bin/multum bench $(MEASURED) --peers --out runs/bench

# The site, into site/: every block of its pages is run. It needs no network and works from disk: site/index.html.
docs: export OMP_NUM_THREADS ?= 1
docs: $(DOCS)/ready
	PYTHONPATH=docs:src $(DOCS)/bin/python -m generate.results
	$(DOCS)/bin/python docs/generate/build.py

docs-graph: .venv/ready
	$(BIN)/python docs/graph.py

check: .venv/ready
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_project.py

format: .venv/ready
	$(BIN)/ruff check --fix src tests benchmarks
	$(BIN)/ruff format src tests benchmarks

# torch comes first, from a local wheel where there is one, and is then pinned: every other package would otherwise be
# free to replace it by a build of several gigabytes.
.venv/ready: EXTRA := dev
$(BENCH)/ready: EXTRA := bench
$(DOCS)/ready: EXTRA := docs
.venv/ready $(BENCH)/ready $(DOCS)/ready: pyproject.toml
	@echo "setting up $(@D) (about 3 minutes, once): 1/3 torch"
	@$(PYTHON) -m venv $(@D)
	@$(PIP) --no-index --no-deps torch >/dev/null 2>&1 || $(call quietly,$(PIP) torch)
	@$(@D)/bin/python -m pip freeze 2>/dev/null | grep -i '^torch==' > $(@D)/constraints.txt
	@echo "setting up $(@D): 2/3 everything else"
	@$(call quietly,$(PIP) -c $(@D)/constraints.txt -e ".[$(EXTRA)]")
	@echo "setting up $(@D): 3/3 a first import"
	@$(call quietly,$(@D)/bin/python -c "import multum; multum.compare")
	@touch $@

clean:
	rm -rf .venv $(BENCH) $(DOCS) site .cache .pytest_cache .ruff_cache .mypy_cache
