# Two commands: `make demo` does the main job, `make test` runs the tests. Both set up everything first.
PYTHON ?= python3
BIN := .venv/bin
# Waiting threads that spin slow everything down when another process runs; some CPUs lack bfloat16 instructions.
export OMP_WAIT_POLICY ?= PASSIVE
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16

.PHONY: demo test test-slow check format clean

demo: .venv/ready
	$(BIN)/multum compare --data digits --model small-cnn --methods all --seeds 2 --epochs 20 --jobs 2 --out runs/demo

test: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-slow: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal

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
.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-index --no-deps torch 2>/dev/null || $(BIN)/python -m pip install --quiet torch
	$(BIN)/python -m pip freeze | grep -i '^torch==' > .venv/constraints.txt
	$(BIN)/python -m pip install --quiet -c .venv/constraints.txt -e ".[dev]"
	touch .venv/ready

clean:
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache
