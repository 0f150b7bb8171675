# The commands of the book; `make` alone lists them. GNU make 3.81 or newer.

PYTHON ?= python3
PORT ?= 8000
PRESET ?= tiny
RUN ?= runs/$(PRESET)
TEXT ?= 小明 开始 工作

# Through the environment, so that quotes in the text reach Python as they are.
export TEXT

BIN := .venv/bin
INSTALLED := .venv/.installed
EXPORTED := _build/exported
BUILT := _build/built
NOTEBOOKS := $(wildcard chapters/*.ipynb)
SITE := _config.yml _toc.yml $(NOTEBOOKS) $(wildcard chapters/*.md) $(shell find book -type f -not -name '*.pyc')

.PHONY: help book test lab chapters draft export train translate serve corpus bench bench-gpu mutants

help:  ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

book: $(BUILT)  ## build the site from the stored outputs, warnings as errors
	@echo "The book: file://$(CURDIR)/_build/html/index.html"

test: $(INSTALLED)  ## run every check; the last line says how many passed
	@$(BIN)/python tools/check.py

lab: $(INSTALLED) $(EXPORTED)  ## open the chapters in JupyterLab
	$(BIN)/jupyter lab chapters

chapters: $(INSTALLED)  ## execute the chapters that changed, or one: CHAPTER=04
	@$(BIN)/python tools/execute.py $(CHAPTER)

draft: $(INSTALLED)  ## write drafts/NN_name.md from the notebook: CHAPTER=04
	$(if $(CHAPTER),,$(error which chapter? make draft CHAPTER=04))
	@mkdir -p drafts
	@path=$$(ls chapters/$(CHAPTER)_*.ipynb) && draft=drafts/$$(basename $$path .ipynb).md \
		&& $(BIN)/jupytext --quiet --to myst --output $$draft $$path && echo $$draft

export: $(EXPORTED)  ## write transformer/ from the exported cells

train: $(RUN)/weights.safetensors  ## train a translator into runs/: PRESET=tiny or base
	@echo "Trained: $(RUN). Delete that folder to train again."

translate: $(RUN)/weights.safetensors  ## translate TEXT="小明 开始 工作", training first if need be
	@$(BIN)/python -m transformer translate --run $(RUN) -- "$$TEXT"

serve: $(BUILT)  ## show the site in a browser, on PORT=8000
	@echo "The book: http://localhost:$(PORT)/  (Ctrl-C ends)"
	@$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

corpus: _build/corpus  ## write data/zh-en/ from its grammar

bench: $(INSTALLED) $(EXPORTED)  ## measure speed beside peers; some: ROWS="train beam", growth
	@$(BIN)/python tools/bench.py $(ROWS) $(if $(TATOEBA),--tatoeba "$(TATOEBA)")

bench-gpu: $(INSTALLED) $(EXPORTED)  ## the same on a CUDA device
	@$(BIN)/python tools/bench.py --device cuda $(ROWS) $(if $(TATOEBA),--tatoeba "$(TATOEBA)")

mutants: $(INSTALLED) $(EXPORTED)  ## break the package in many ways: which test notices each
	@$(BIN)/python tools/mutants.py --write

# The files behind them. Each is written last, so that a step that failed is done again.

$(INSTALLED): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or newer is needed, but '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)."; \
		echo "Name another one: make PYTHON=python3.12"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip --disable-pip-version-check check
	@touch $@

$(EXPORTED): $(NOTEBOOKS) | $(INSTALLED)
	$(BIN)/nbdev-export
	@mkdir -p _build && touch $@

# All pages anew: Sphinx repeats no warning of a page that it has read before.
$(BUILT): $(SITE) $(EXPORTED) | $(INSTALLED)
	$(BIN)/jupyter-book build . --builder html --all -W -n --keep-going
	@touch $@

# A run that was interrupted goes on where its checkpoint stands.
$(RUN)/weights.safetensors: | $(INSTALLED) $(EXPORTED)
	$(BIN)/python -m transformer train --preset $(PRESET) --data data/zh-en --run $(RUN) \
		$(if $(wildcard $(RUN)/checkpoint.safetensors),--resume)

_build/corpus: $(wildcard data/zh-en/*.py) | $(INSTALLED)
	$(BIN)/python data/zh-en/grammar.py
	@mkdir -p _build && touch $@
