# make demo, make test, make bench, make lint: nothing else to remember.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ROWS ?= 1000000
JSON_MB ?= 200
SECONDS ?= 60
SEED ?= 1

.PHONY: demo test bench lint fuzz clean
.DEFAULT_GOAL := demo

$(BIN)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(BIN)/.installed ## convert the shipped sample, check it, ask it a question
	@mkdir -p out
	$(BIN)/npu-perfetto convert samples/dspark_two_ranks -o out/demo.pftrace
	$(BIN)/npu-perfetto check out/demo.pftrace
	$(BIN)/npu-perfetto sql out/demo.pftrace "INCLUDE PERFETTO MODULE npu.kernels; SELECT rank, count(*) AS tasks, sum(dur) AS duration_sum_ns FROM npu_kernels GROUP BY rank"
	@echo "Open out/demo.pftrace in https://ui.perfetto.dev (drag and drop)."

test: $(BIN)/.installed
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: $(BIN)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.audit

bench: $(BIN)/.installed
	$(BIN)/python -m tests.bench --rows $(ROWS) --json-mb $(JSON_MB)

fuzz: $(BIN)/.installed ## odd inputs for every reader, whole conversions, then atheris where it installs
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.fuzz.guided --seconds $(SECONDS)

clean:
	rm -rf $(VENV) out build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
