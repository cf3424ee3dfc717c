# The two commands of the README: `make demo` and `make test`. Both set up .venv on first use.
PYTHON ?= python3
BIN := .venv/bin
export PIP_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-slow docs docs-messages lint format clean

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: .venv/installed
	$(BIN)/vitreous train

test: .venv/installed lint
	$(BIN)/python -m pytest -n 2 -m "not slow" --jaxtyping-packages=vitreous,beartype.beartype

test-slow: .venv/installed
	$(BIN)/python -m pip install --quiet --editable '.[dev,peers]'
	$(BIN)/python -m pip install --quiet --no-deps timm vit-pytorch
	$(BIN)/python -m pytest -m slow --timeout 3600

docs: .venv/installed
	$(BIN)/python -m pip install --quiet --editable '.[dev,docs]'
	$(BIN)/python docs/build.py

docs-messages: .venv/installed
	$(BIN)/python -m pip install --quiet --editable '.[dev,docs]'
	$(BIN)/python docs/messages.py

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv dist build
