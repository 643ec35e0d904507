# make demo   the main job on embedded data        make check  linters and types
# make test   the tests (quick tier)               make slow   the slow tier
# make bench  speed and memory, as ratios          make results  the paper's experiments and their page: hours
# make docs   the documentation, in build/docs: its tutorials are run
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test slow check format bench results docs clean

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

docs: $(READY)
	$(BIN)/python -c 'import myst_nb, pydata_sphinx_theme' 2> /dev/null || $(INSTALL) --editable '.[dev,docs]'
	$(BIN)/python -m sphinx -W --keep-going -E -q -d build/doctrees docs build/docs
	@echo 'Open build/docs/index.html'

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv build .pytest_cache .mypy_cache .ruff_cache .hypothesis
