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

PIP := $(BIN)/python -m pip --disable-pip-version-check
SAMPLE := samples/dspark_two_ranks

$(BIN)/.installed: pyproject.toml
	@echo "installing npu-perfetto into $(VENV) (about 750 MB, a minute or two)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install -q --upgrade pip
	@$(PIP) install -q -e '.[offline,report]'
	@touch $@

$(BIN)/.installed-dev: $(BIN)/.installed
	@echo "installing what tests and linters need"
	@$(PIP) install -q -e '.[dev]'
	@touch $@

# Convert the shipped sample with its records, check the trace against it, ask it a question.
demo: $(BIN)/.installed
	@mkdir -p out
	$(BIN)/npu-perfetto convert $(SAMPLE) --dspark $(SAMPLE)/server_info.json -o out/demo.pftrace
	$(BIN)/npu-perfetto check out/demo.pftrace --against $(SAMPLE)
	$(BIN)/npu-perfetto sql out/demo.pftrace "INCLUDE PERFETTO MODULE npu.report; SELECT rank, forward_ct, bs, draft_ms, verify_ms, tail_ms, avg_commit_len FROM npu_step_report"
	@echo "Look at it: $(BIN)/npu-perfetto open out/demo.pftrace, or drop the file on https://ui.perfetto.dev"

test: $(BIN)/.installed-dev
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: $(BIN)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.audit

bench: $(BIN)/.installed-dev
	$(BIN)/python -m tests.bench --rows $(ROWS) --json-mb $(JSON_MB)

fuzz: $(BIN)/.installed-dev
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.fuzz.guided --seconds $(SECONDS)

clean:
	rm -rf $(VENV) out build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
