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

# With no core to use Snakemake would wait for ever.
ifneq ($(CORES),all)
ifneq ($(shell test "$(CORES)" -ge 1 2> /dev/null && echo right),right)
$(error toposcale: CORES=$(CORES), but it must be all, or a number of at least 1)
endif
endif

# A file that is named without CONFIG= is a goal of make: the default configuration would run in its place.
FILES := $(filter %.yaml %.yml,$(MAKECMDGOALS))
ifneq ($(FILES),)
GOAL := $(firstword $(filter-out $(FILES),$(MAKECMDGOALS)) run)
$(error toposcale: make $(GOAL) CONFIG=$(firstword $(FILES)) is how a configuration is named)
endif

# The workflow and the library of this folder, whatever is installed in the environment.
RUN = PYTHONPATH="src$${PYTHONPATH:+:$$PYTHONPATH}" $(BIN)/python -m toposcale run "$(CONFIG)" --cores $(CORES)

# The library is compiled once, and not by every job, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

# The last line that a command prints is its own, also when another make calls this one.
MAKEFLAGS += --no-print-directory

.PHONY: run csv advice watch unlock docs test quick nightly coverage release test-install test-oldest test-slurm lint bench nulls landscapes study-4 controls paper-seeds decisions check-gpu reference clean distclean config-is-there

# With AGAIN="FILE ..." those files are made again, and what depends on them.
run: config-is-there $(VENV)/.runtime
	@$(RUN) $(if $(AGAIN),--forcerun $(AGAIN))

# The features, metrics and models of a run as CSV next to the Parquet files.
csv: config-is-there $(VENV)/.runtime
	@$(RUN) -- csv

# On the run as far as it has come, while it goes on too: that is why it takes no lock.
advice: config-is-there $(VENV)/.runtime
	@$(RUN) --nolock --quiet all -- resolved_configuration
	@folder=$$($(BIN)/python workflow/config_reading.py folder "$(CONFIG)") && $(BIN)/python -m toposcale advise "$$folder"

# After a run that was killed outright.
unlock: config-is-there $(VENV)/.runtime
	@$(RUN) --unlock

config-is-there:
	@test -f "$(CONFIG)" || { echo "toposcale: $(CONFIG): no such configuration; name one with CONFIG=FILE" >&2; exit 1; }

# A local page that follows a training: make watch FOLDER=topology
watch: $(VENV)/.runtime
	@test -n "$(FOLDER)" || { echo "toposcale: name the folder of the training with FOLDER=..."; exit 1; }
	$(BIN)/python -m toposcale watch "$(FOLDER)"

# The documentation as a site; a link that leads nowhere is an error.
docs: $(VENV)/.test
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -c docs . build/docs
	@echo "The documentation: build/docs/docs/index.html"

test: $(VENV)/.test
	$(BIN)/python -m pytest --numprocesses 4 --dist loadgroup

# Within a minute: the unit tests of what changed since main, or all that are quick.
quick: $(VENV)/.test
	$(BIN)/python tests/quick.py

# The tests of the studies: what they claim, from the tables that are committed.
nightly: $(VENV)/.test
	$(BIN)/python -m pytest tests/studies --numprocesses 4 --dist loadgroup

# Which lines and branches of src the unit tests reach.
coverage: $(VENV)/.test
	mkdir -p build
	$(BIN)/python -m coverage run -m pytest --quiet tests/unit
	$(BIN)/python -m coverage report

# The wheel in environments of its own: what it asks for is enough, with the oldest transformers too.
test-install: $(VENV)/.test
	$(BIN)/python -m pytest tests/install

# What the distributions are built from.
DISTRIBUTED = pyproject.toml setup.py README.md LICENSE src Snakefile requirements.lock config envs profiles scripts workflow

# Source distribution and wheel of what is committed, in dist: their metadata are checked, and the wheel is tested.
release: $(VENV)/.test
	rm -rf build/release dist
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip install --quiet --requirement requirements-release.lock
	mkdir build/release/source
	git archive HEAD $(DISTRIBUTED) | tar -x -C build/release/source
	build/release/bin/python -m build --no-isolation --outdir dist build/release/source
	build/release/bin/python -m twine check --strict dist/*
	TOPOSCALE_WHEEL="$$(ls "$(CURDIR)"/dist/*.whl)" $(BIN)/python -m pytest tests/install/test_wheel.py

# The wheel with the oldest packages that pyproject.toml allows; it needs nothing but Python 3.11 or 3.12.
test-oldest:
	$(PYTHON) tests/oldest.py

# A SLURM cluster of one node, started and stopped by the tests; skipped, with the reason, where that cannot be.
test-slurm: $(VENV)/.test $(VENV)/.slurm
	$(BIN)/python -m pytest tests/slurm

lint: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint
	printf '%s\n' config/*.yaml | xargs -P 2 -n 1 $(BIN)/snakemake --dry-run --quiet all --configfile > /dev/null

bench: $(VENV)/.test $(VENV)/.peers
	$(BIN)/python -m benchmarks $(ONLY)

# The real null: how often each test finds what cannot be there, and what is, in the runs of studies 1 to 3. With ONLY=metrics:
# how often `toposcale test-metric` does, in simulated runs and in those of study 1.
nulls: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m studies.nulls$(if $(ONLY),.$(ONLY))

# The fourth study, studies/study4/README.md: trains what is missing, then computes every number; with ONLY=analysis, only computes.
# Finished runs are kept in results/study-4.
study-4: $(VENV)/.runtime
ifneq ($(ONLY),analysis)
	OMP_NUM_THREADS=1 PYTHONPATH=workflow $(BIN)/python -m studies.study4.train studies/study4/tables results/study-4
endif
	OMP_NUM_THREADS=1 PYTHONPATH=workflow $(BIN)/python -m studies.study4 studies/study4/tables
	OMP_NUM_THREADS=1 PYTHONPATH=workflow $(BIN)/python -m studies.study4.afterwards studies/study4/tables

# The controls, studies/controls/README.md: trains what is missing, then computes every number; with ONLY=analysis, only computes. The
# control of the report and the sizes up to 97K read the default run (`make run`), where it is there.
controls: $(VENV)/.runtime
ifneq ($(ONLY),analysis)
	OMP_NUM_THREADS=1 PYTHONPATH=workflow $(BIN)/python -m studies.controls.train studies/controls/tables results/controls
endif
	OMP_NUM_THREADS=1 PYTHONPATH=workflow $(BIN)/python -m studies.controls studies/controls/tables results/controls results/default docs/images

# The paper's experiment with eight seeds, docs/reproduction.md: one seed more at a time, so that what is finished is kept. It needs
# the text of WikiText-2 in results/wikitext-2. With ONLY=analysis, computes from the tables that are there.
paper-seeds: $(VENV)/.runtime
ifneq ($(ONLY),analysis)
	for seeds in 42 42,43,44 42,43,44,45,46,47 42,43,44,45,46,47,48,49; do \
	  $(BIN)/snakemake --cores $(CORES) --configfile studies/paper_seeds/wikitext.yaml --config "seeds=[$$seeds]" -- measured \
	  || exit 1; done
endif
	OMP_NUM_THREADS=1 $(BIN)/python -m studies.paper_seeds studies/paper_seeds/tables results/paper-seeds
	OMP_NUM_THREADS=1 $(BIN)/python -m studies.paper_seeds.claims

# Every number of docs/decisions.md. ONLY=published: only of the published runs, nothing is trained. ONLY=analysis: of the small
# tables that are there. ONLY=all: after a correction of the published runs or a change of the law, all that depends on them,
# from the prior on; half an hour of CPU time; with CURVES=FOLDER those of the multi-power law too, which are not redistributed.
# Else every alternative that is missing is trained first.
STUDY = OMP_NUM_THREADS=1 $(BIN)/python -m
decisions: $(VENV)/.runtime
ifeq ($(ONLY),)
	$(BIN)/snakemake --cores $(CORES) --configfile config/decisions.yaml -- measured
endif
ifeq ($(ONLY),all)
	for table in priors standing small; do $(STUDY) studies.decisions $$table || exit 1; done
endif
	$(STUDY) studies.decisions published
ifneq ($(ONLY),published)
	$(STUDY) studies.decisions own results/decisions
endif
ifeq ($(ONLY),all)
	for study in run_pairs decay_starts random_laws small_models; do $(STUDY) studies.$$study || exit 1; done
	for table in young ablation; do $(STUDY) studies.decisions $$table || exit 1; done
	$(if $(CURVES),$(STUDY) studies.published_curves "$(CURVES)")
endif

# The published experiments on loss landscapes, rerun; tables and figures are in results/landscapes.
landscapes: $(VENV)/.runtime
	$(BIN)/python examples/any_model.py
	$(BIN)/python examples/residual_connections.py & first=$$!; $(BIN)/python examples/pinn_convection.py && wait $$first

# Whether CPU and GPU agree, and the speed-up; says so in a line where there is no GPU.
check-gpu: $(VENV)/.runtime
	$(BIN)/python -m benchmarks.check_gpu

# The pages that are written from the code: keys of the configuration, tables, figures, claims, and the rules
# as Snakemake draws them.
reference: $(VENV)/.runtime
	$(BIN)/python workflow/config_reference.py
	$(BIN)/python docs/reference.py
	{ printf '# The rules of the default run\n\nDrawn by Snakemake; written by `make reference`.\n\n```mermaid\n'; \
	  PYTHONHASHSEED=0 $(BIN)/snakemake --rulegraph mermaid-js --forceall --quiet all --config run=reference; printf '```\n'; } > docs/rulegraph.md

clean:
	rm -rf "$(VENV)" build docs/api .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@echo "Left: results/, .snakemake/ (Snakemake's records of them), and the caches of pip and of Hugging Face. make distclean"
	@echo "removes results/ and .snakemake/ too."

distclean: clean
	find results -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +
	rm -rf .snakemake
	@echo "Left: the caches of pip (python -m pip cache purge) and of Hugging Face (~/.cache/huggingface)."

$(VENV)/.runtime: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "toposcale needs Python 3.11 or later; name it with make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.test: $(VENV)/.runtime requirements-test.lock
	$(BIN)/python -m pip install --quiet --requirement requirements-test.lock
	touch $@

$(VENV)/.peers: $(VENV)/.test requirements-peers.lock
	-$(BIN)/python -m pip install --quiet --no-deps --requirement requirements-peers.lock
	touch $@

$(VENV)/.slurm: $(VENV)/.runtime requirements-slurm.lock
	$(BIN)/python -m pip install --quiet --requirement requirements-slurm.lock
	touch $@
