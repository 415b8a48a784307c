# Everything a person or a machine runs here. Each target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
UV_VERSION := 0.13.9
# Programs start thousands of times in tests: what was compiled once is kept, whatever the machine says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-all check fix bench serve screenshots vendor lock clean
help: ## these lines
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(READY): pyproject.toml requirements.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet uv==$(UV_VERSION)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python -r requirements.lock -e .
	@touch $(READY)

demo: $(READY) ## the main job: a recorded conversation replayed through a real SDK, and a refused miss
	@$(BIN)/tapes demo

# Tests wait for servers and processes, so there are more workers than processors. They write thousands of
# files durably: in memory where there is room (4 GB), it takes half the time.
CHOSEN = -m "not long"
WORKERS = $$(( $$(getconf _NPROCESSORS_ONLN) * 2 ))
test: $(READY) ## the tests, but for those that take long
	@if [ "$$(df -Pk /dev/shm 2>/dev/null | awk 'NR==2 {print $$4}')" -gt 4000000 ] 2>/dev/null; \
		then export TMPDIR=/dev/shm; fi; $(BIN)/python -m pytest -n $(WORKERS) $(CHOSEN)

test-all: CHOSEN =
test-all: export TAPES_TEST_EXAMPLES = many
test-all: test ## all tests, and five times as many cases of each property

check: $(READY) ## format, lint, types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

fix: $(READY) ## mend what the linter can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY) ## speed and memory beside peers and physical limits
	@$(BIN)/python -m benchmarks

serve: $(READY) ## the proxy (8080), the read API and its page (8081), the private door (8082)
	@$(BIN)/tapes serve

screenshots: $(READY) ## the pictures of the page in docs/images
	@$(BIN)/python tools/screenshots.py

vendor: $(READY) ## take the page's third-party files from npm anew
	@$(BIN)/python tools/vendor_page.py

lock: ## resolve the tested versions anew
	@$(BIN)/uv pip compile --quiet --universal --no-header --no-emit-index-url --extra dev pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache
