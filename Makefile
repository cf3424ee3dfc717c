# The two commands of the README: `make demo` and `make test`. Both set up .venv on first use.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet
# The oldest PyTorch that pyproject.toml allows, for `make test-lowest`.
LOWEST_TORCH ?= 2.11.0
# Any index that has the builds of PyTorch and torchvision for CPUs.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
export PIP_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start hundreds of Python processes. Where the environment forbids bytecode, as containers do, each would
# compile the package again, and each worker every test.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-slow test-layers test-lowest locked lock docs links lint format clean

.venv/train: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --upgrade pip
	$(PIP) --editable '.[train]'
	touch $@

.venv/dev: .venv/train
	$(PIP) --editable '.[dev]'
	touch $@

.venv/slow: .venv/dev
	# torchvision for CUDA, which the package index has, does not import beside a PyTorch for CPUs.
	case $$($(BIN)/python -c 'import torch; print(torch.__version__)') in \
	  *+cpu) $(PIP) --retries 1 --extra-index-url $(TORCH_INDEX) --upgrade 'torchvision>=0.26' ;; esac
	$(PIP) 's3fs>=2025.5' 'moto[s3]>=5'  # beside all others, pip tries hundreds of versions of boto3
	$(PIP) --editable '.[dev,slow]'
	touch $@

demo: .venv/train
	$(BIN)/vitreous train

# The shapes and types of the model's signatures are checked while its tests run; those of layers every night in all
# tests (elsewhere beartype knows neither generic named tuples nor that an int is a float).
CHECK_TYPES := --jaxtyping-packages=vitreous.layers,vitreous.models,vitreous.checkpoints,beartype.beartype
# Their fast tests run with these checks and no second time without; those of `describe` without, since checked
# functions hold their arguments longer, which the memory that it counts would show.
TYPED := tests/layers $(filter-out tests/models/test_description.py,$(wildcard tests/models/test_*.py)) tests/golden
CHECK_LAYERS := --jaxtyping-packages=vitreous.layers,beartype.beartype

test: .venv/dev lint
	$(BIN)/python -m pytest -rs -n 2 --dist worksteal -m "not slow" $(addprefix --ignore=,$(TYPED))
	$(BIN)/python -m pytest -rs -n 2 --dist worksteal -m "not slow" $(CHECK_TYPES) $(TYPED)

# The tests of pages need a browser: `apt-get install chromium` (Debian), `.venv/bin/python -m playwright install
# --with-deps chromium`, or CHROMIUM=/path/to/it. Ubuntu's package is a snap, which does not see files in /tmp.
# With SHARD (a number, `documents` or `rest`) a share of the slow tests; CI takes them in turns (tests/shards.py).
# With MEASURE=1 it keeps how long each file took, from which the shares are dealt; ONLY is an expression of pytest's
# -k that chooses among them.
SHARDS ?= 10
SLOW := $(BIN)/python -m pytest -rs --timeout 3600 $(if $(MEASURE),--measure) $(if $(ONLY),-k "$(ONLY)")
test-slow: .venv/slow
ifdef SHARD
	$(SLOW) -n 2 --dist loadfile --shard $(if $(filter documents rest,$(SHARD)),$(SHARD),$(SHARD)/$(SHARDS))
else
	$(SLOW) -m slow
	$(MAKE) test-layers test-lowest
endif

test-layers: .venv/slow
	$(BIN)/python -m pytest -rs -n 2 --dist worksteal -m "not slow" $(CHECK_LAYERS)

# A selection on the oldest PyTorch, in an environment of its own: what touches torch's own interfaces.
test-lowest: export PIP_CONSTRAINT :=
test-lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --upgrade pip
	.venv-lowest/bin/python -m pip install --quiet --index-url $(TORCH_INDEX) 'torch==$(LOWEST_TORCH)' || \
	  .venv-lowest/bin/python -m pip install --quiet 'torch==$(LOWEST_TORCH)'
	.venv-lowest/bin/python -m pip install --quiet 'torch==$(LOWEST_TORCH)' --editable '.[dev]'
	.venv-lowest/bin/python -m pytest -rs -n 2 -m "not slow" tests/golden tests/layers tests/models tests/checkpoints \
	  tests/training/test_engine.py tests/training/test_resume.py tests/deployment/test_exporting.py

# The versions of requirements/dev.txt, checked by their hashes, in the place of the newest; then any target.
locked:
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --require-hashes -r requirements/pip.txt
	$(PIP) --index-url $(TORCH_INDEX) torch torchvision || $(PIP) torch torchvision
	$(PIP) --no-deps --require-hashes -r requirements/dev.txt
	$(PIP) --no-deps --editable .
	touch .venv/train .venv/dev .venv/slow

# PyTorch and torchvision are not in the files: constraints.txt pins their versions, and the build for CPUs or CUDA,
# which has other hashes, is the machine's choice. sbom.txt has the tool that writes a release's bill of materials,
# pip.txt the installer itself, which Python's own pip installs.
NOT_LOCKED := torch torchvision triton cuda-bindings cuda-pathfinder cuda-toolkit $(addprefix nvidia-,cublas cuda-cupti \
  cuda-nvrtc cuda-runtime cudnn-cu13 cufft cufile curand cusolver cusparse cusparselt-cu13 nccl-cu13 nvjitlink \
  nvshmem-cu13 nvtx)
# `make lock UPGRADE=` adds what is missing and leaves the other versions.
UPGRADE ?= --upgrade
COMPILE = uv pip compile pyproject.toml -c constraints.txt $(UPGRADE) --universal --python-version 3.11 \
  --generate-hashes --custom-compile-command 'make lock' $(addprefix --no-emit-package ,$(NOT_LOCKED)) --quiet
lock:
	$(COMPILE) --extra serve --extra data -o requirements/serve.txt
	$(COMPILE) --extra dev --extra slow -o requirements/dev.txt
	echo 'cyclonedx-bom>=7,<8' | $(subst pyproject.toml,-,$(COMPILE)) -o requirements/sbom.txt
	echo pip | $(subst pyproject.toml,-,$(COMPILE)) -o requirements/pip.txt

docs: .venv/dev
	$(BIN)/python docs/build.py

# The addresses outside the site; needs the network, so no test asks them.
links: .venv/dev
	$(BIN)/python -m sphinx -q -E -b linkcheck -c docs docs/en build/links

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .venv-lowest dist build
