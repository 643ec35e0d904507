# make demo   the main job on embedded data        make check  linters and types
# make test   the tests (quick tier)               make slow   the slow tier
# make bench  speed and memory, as ratios          make results  the paper's experiments and their page: hours
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test slow check format bench results clean

demo: $(READY)
	$(BIN)/efattn demo

test: $(READY)
	$(BIN)/python -m pytest -n auto

slow: $(READY)
	$(BIN)/python -m pytest -n auto -m slow

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(READY)
	$(BIN)/efattn bench -o benchmarks/results

results: $(READY)
	$(BIN)/efattn reproduce --jobs 2; code=$$?; $(BIN)/python -m efattn.experiments.page && exit $$code

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
