# Two commands for a newcomer: `make demo` and `make test`. Each sets up .venv by itself and is quick the second time.
# All paths are relative, so a folder with spaces in its name works.
PYTHON ?= python3
PY := .venv/bin/python
START := $(shell date +%s)

PEERS ?= $(PY)

.PHONY: help demo docs test test-slow test-peers fuzz lint types format clean
help:
	@echo "make demo       train a small machine and show what Lapwing shows"
	@echo "make test       lint, types, tests and the documentation"
	@echo "make docs       the documentation as a site, in build/site"
	@echo "make test-slow  the long tests"
	@echo "make test-peers JAX=PATH   the tests of JAX and others (EQUINOX=, FLAX=, DYNAMAX=, HAIKU=) with lw.scan for lax.scan;"
	@echo "                PATH is a checkout of the installed release, FILES= the files to run, EACH=1 one of each family, PEERS= the Python"
	@echo "make fuzz       damaged and hostile files and requests, for minutes; fewer of each with COUNT=1000"
	@echo "make bench-NAME a benchmark of benchmarks/, such as bench-attack"
	@echo "make format     let ruff format the code"
	@echo "make clean      remove .venv and caches"

# The stamps make the second call quick: pip runs only when pyproject.toml changed.
.venv/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Lapwing needs Python 3.11 or newer; name one with: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 2; }
	@echo "Installing into .venv; this takes a minute or two, and the next time it is there."
	@$(PYTHON) -m venv .venv
	@$(PY) -m pip install --quiet --editable .
	@touch $@

.venv/.installed-dev: .venv/.installed
	@echo "Installing the development tools into .venv."
	@$(PY) -m pip install --quiet --editable '.[dev]'
	@touch $@

.venv/.installed-docs: .venv/.installed
	@echo "Installing what builds the documentation into .venv."
	@$(PY) -m pip install --quiet --editable '.[docs]'
	@touch $@

demo: .venv/.installed
	@$(PY) -m lapwing train dmm-feedforward

# A warning is an error: a link to nowhere, a page that is missing from the navigation. With --quiet mkdocs would not see its
# own warnings, and --strict would do nothing.
SITE = NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# Types are checked and the site is built while the tests run: each uses one core, and tests wait for clocks and processes.
test: .venv/.installed-dev lint
	@mkdir -p build
	$(PY) -m pyright & types=$$!; { $(SITE); } 2> build/site.log & site=$$!; $(PY) -m pytest; tests=$$?; \
	  wait $$types; types=$$?; wait $$site || { cat build/site.log; echo "The site has an error."; exit 1; }; \
	  [ $$types = 0 ] && exit $$tests
	@echo "Lint, types, tests and the site passed in $$(($$(date +%s) - $(START))) seconds."

test-slow: .venv/.installed-dev
	$(PY) -m pytest -m slow

docs: .venv/.installed-docs
	$(SITE)
	@echo "The site is in build/site; open build/site/index.html, or serve it with: $(PY) -m http.server -d build/site"

# PEERS may be the Python of another environment, so nothing is installed for it.
test-peers:
	$(PEERS) -m tests.peers $(if $(JAX),jax="$(JAX)") $(if $(EQUINOX),equinox="$(EQUINOX)") $(if $(FLAX),flax="$(FLAX)") \
	  $(if $(DYNAMAX),dynamax="$(DYNAMAX)") $(if $(HAIKU),haiku="$(HAIKU)") $(if $(EACH),--each $(EACH)) $(if $(REWRITE),--rewrite $(REWRITE)) \
	  $(if $(FILES),--files $(FILES))

fuzz: .venv/.installed-dev
	$(PY) -m tests.fuzz $(if $(COUNT),--count $(COUNT))
	$(PY) -m tests.board.fuzz $(if $(COUNT),--count $(COUNT))

bench-%: .venv/.installed-dev
	$(PY) -m benchmarks.$*

lint: .venv/.installed-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: .venv/.installed-dev
	$(PY) -m pyright

format: .venv/.installed-dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis
