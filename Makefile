# Two commands do all the set-up: `make run` and `make test`. The others are for those who work on the project.
PYTHON ?= python3
CONFIG ?= config/config.yaml
CORES ?= all
BIN := .venv/bin

.PHONY: run test test-slurm lint bench check-gpu reference rulegraph clean

run: .venv/.runtime
	$(BIN)/snakemake --cores $(CORES) --configfile $(CONFIG)
	@$(BIN)/python workflow/configuration.py outputs $(CONFIG)

test: .venv/.test
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup

# A SLURM cluster of one node, started and stopped by the tests; skipped, with the reason, where that cannot be.
test-slurm: .venv/.test .venv/.slurm
	$(BIN)/python -m pytest tests/slurm

lint: .venv/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint
	for config in config/*.yaml; do $(BIN)/snakemake --configfile $$config --dry-run --quiet all > /dev/null || exit 1; done

bench: .venv/.test
	$(BIN)/python -m benchmarks $(ONLY)

# Whether CPU and GPU agree, and the speed-up; says so in a line where there is no GPU.
check-gpu: .venv/.runtime
	$(BIN)/python -m benchmarks.check_gpu

reference: .venv/.runtime
	$(BIN)/python workflow/configuration.py reference > config/README.md
	$(BIN)/python -c "from toposcale.io import schemas; print(schemas.reference(), end='')" > docs/tables.md

# The rules of the default run as Snakemake draws them, in a form that code hosts and the documentation render.
rulegraph: .venv/.runtime
	{ printf '# The rules of the default run\n\nDrawn by Snakemake; written by `make rulegraph`.\n\n```mermaid\n'; \
	  $(BIN)/snakemake --rulegraph mermaid-js --forceall --quiet all; printf '```\n'; } > docs/rulegraph.md

clean:
	rm -rf .venv .snakemake

.venv/.runtime: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "toposcale needs Python 3.11 or later; name it with make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

.venv/.test: .venv/.runtime requirements-test.lock
	$(BIN)/python -m pip install --quiet --requirement requirements-test.lock
	touch $@

.venv/.slurm: .venv/.runtime requirements-slurm.lock
	$(BIN)/python -m pip install --quiet --requirement requirements-slurm.lock
	touch $@
