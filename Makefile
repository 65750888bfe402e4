# Two commands do all the set-up: `make run` and `make test`. The others are for those who work on the project.
PYTHON ?= python3
CONFIG ?= config/config.yaml
CORES ?= all
VENV ?= .venv
BIN := $(VENV)/bin

# Snakemake does not quote the Python that runs its scripts, so no environment may lie in a path with a space.
ENVIRONMENT := $(if $(filter /%,$(VENV)),$(VENV),$(CURDIR)/$(VENV))
ifneq ($(words $(ENVIRONMENT)),1)
$(error $(ENVIRONMENT): Snakemake cannot use an environment whose path has a space; put it elsewhere, for example: make run VENV=$(HOME)/toposcale-venv)
endif

.PHONY: run test test-slurm lint bench nulls study check-gpu reference rulegraph clean

run: $(VENV)/.runtime
	$(BIN)/snakemake --cores $(CORES) --configfile "$(CONFIG)"
	@$(BIN)/python workflow/configuration.py outputs "$(CONFIG)"

test: $(VENV)/.test
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup

# A SLURM cluster of one node, started and stopped by the tests; skipped, with the reason, where that cannot be.
test-slurm: $(VENV)/.test $(VENV)/.slurm
	$(BIN)/python -m pytest tests/slurm

lint: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint
	for config in config/*.yaml; do $(BIN)/snakemake --configfile $$config --dry-run --quiet all > /dev/null || exit 1; done

bench: $(VENV)/.test $(VENV)/.peers
	$(BIN)/python -m benchmarks $(ONLY)

# The real null: how often each test finds what cannot be there, and what is; the first time trains 48 small models.
nulls: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.nulls

# Whether CPU and GPU agree, and the speed-up; says so in a line where there is no GPU.
check-gpu: $(VENV)/.runtime
	$(BIN)/python -m benchmarks.check_gpu

# The pages that are written from the code: keys of the configuration, tables, and the rules as Snakemake draws them.
reference: $(VENV)/.runtime
	$(BIN)/python workflow/configuration.py reference > config/README.md
	$(BIN)/python -c "from toposcale.io import schemas; print(schemas.reference(), end='')" > docs/tables.md
	{ printf '# The rules of the default run\n\nDrawn by Snakemake; written by `make reference`.\n\n```mermaid\n'; \
	  $(BIN)/snakemake --rulegraph mermaid-js --forceall --quiet all; printf '```\n'; } > docs/rulegraph.md

clean:
	rm -rf "$(VENV)" .snakemake

$(VENV)/.runtime: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "toposcale needs Python 3.11 or later; name it with make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.test: $(VENV)/.runtime requirements-test.lock
	$(BIN)/python -m pip install --quiet --requirement requirements-test.lock
	touch $@

$(VENV)/.slurm: $(VENV)/.runtime requirements-slurm.lock
	$(BIN)/python -m pip install --quiet --requirement requirements-slurm.lock
	touch $@
