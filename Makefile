# Two commands do everything on a fresh machine: `make ladder` runs the main job, `make test` the tests. The first one
# makes the virtual environment .venv. `make` alone lists the targets and the variables. It reads the targets from the
# texts after `##`, and the variables from this comment.
#
#   PYTHON=python3.12    the interpreter that .venv is made with
#   TORCH=torch==2.13.0  what to install as torch; TORCH=/path/to/torch.whl or another version work too
#   FASTGEMM_CUDA=1      build the CUDA kernels (auto, 0 or 1)
#   ARGS="-k transpose"  more words for the command that the target runs
#   WORKERS=8            processes that share the tests
#   KERNEL=tiled         for make sim, with OP=transpose or OP=add if the kernel is one of these, and SHAPE="256 256 256"

PYTHON ?= python3
TORCH  ?= torch==2.13.0
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=

# Threads that are not pinned sometimes share a core. This halves all rates for a while, torch's included.
PINNED := OMP_PROC_BIND=true

# pip prints no messages about its own new versions or about running as root. On a terminal, pip and ninja show their
# progress; make sets MAKE_TERMOUT there.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
QUIET := $(if $(MAKE_TERMOUT),,--quiet)

# The sources of the compiled libraries. If one of them changes, the libraries are built again.
SOURCES := $(shell find csrc -type f 2>/dev/null) CMakeLists.txt setup.py pyproject.toml tools/build_backend.py

.DEFAULT_GOAL := help
.PHONY: help ladder test faults notebooks test-notebooks sim bench wheels docs lint style types tidy format clean

help:  ## list the targets and the variables, as plain make does
	@echo 'make TARGET [VARIABLE=value ...]'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s  %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@sed -nE 's/^#   ([A-Z_]+=)/  \1/p' $(firstword $(MAKEFILE_LIST))

# `make ladder` needs only the library, for this processor, and the commands. The simulator, the override library and
# kernels for other instruction sets take longer to compile; the other targets and `make .venv/.installed` build them.
LIBRARY := $(or $(wildcard $(VENV)/.installed),$(VENV)/.library)

ladder: $(LIBRARY)  ## check and time every level here, with a table, a plot and JSON
	$(PINNED) $(BIN)/fastgemm ladder $(ARGS)

# Processes that share the tests. With ARGS there is one process, because few tests do not need a second. Each process
# starts with adjacent tests, which share their modules' fixtures. A process without tests takes half of another's
# remaining tests. Waiting threads sleep (OMP_WAIT_POLICY), to leave the cores to the other process.
WORKERS ?= $(if $(ARGS),0,2)
SHARED  := -n $(WORKERS) --dist worksteal

test: $(VENV)/.installed $(if $(ARGS),,faults)  ## run the tests; a part of them: ARGS="-k transpose -x"
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest $(SHARED) $(ARGS)

# Runs the notebooks and writes their outputs (ARGS=02: one of them), or runs them and writes nothing.
notebooks: $(VENV)/.installed  ## run the notebooks and write their outputs; one of them: ARGS=02
	$(BIN)/python tools/make_notebooks.py $(ARGS)

test-notebooks: $(VENV)/.installed  ## run the notebooks and write nothing
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest $(SHARED) --nbmake --nbmake-timeout=300 --durations=0 --durations-min=1 notebooks

# The simulator must find the faults of faulty kernels, and faults planted in copies of the kernels of csrc/cuda. These
# programs link the object files of the package.
faults: export PATH := $(CURDIR)/$(BIN):$(PATH)
faults: BUILD = build/cmake-$(shell $(BIN)/python -c 'import sys; print(sys.implementation.cache_tag)')
faults: $(VENV)/.installed  ## check that the simulator finds the faults of faulty kernels (a part of make test)
	cmake -S . -B $(BUILD) -DFASTGEMM_TESTS=ON >/dev/null
	cmake --build $(BUILD) --parallel --target instrumented
	ctest --test-dir $(BUILD) --label-regex instrumented --output-on-failure --parallel $$(nproc)

OP     ?= gemm
SHAPE  ?= $(if $(filter gemm,$(OP)),256 256 256,512 512)
sim: $(VENV)/.installed  ## check and explain one CUDA kernel without a GPU: KERNEL=padded OP=transpose
	@test -n '$(KERNEL)' || { echo "make sim KERNEL=name [OP=gemm|transpose|add]"; exit 2; }
	$(BIN)/python -m pytest -q $(if $(filter packed_%,$(KERNEL)),tests/quantized/*_on_the_simulator.py -k '$(KERNEL)',\
	  tests/simt/test_simulator*.py -k 'test_$(OP) and $(KERNEL)')
	$(BIN)/fastgemm explain $(OP) --kernel $(KERNEL) --shape $(SHAPE) $(ARGS)

bench: $(VENV)/.installed  ## time problems against torch: ARGS="--preset squares"
	$(PINNED) $(BIN)/fastgemm bench $(ARGS)

# Wheels need no compiler, and serve every Python since 3.10 and every torch that tools/torch_headers.py names. The
# first time, pip downloads each torch except the installed one, 530 MB each. ARGS=cpu: only the wheel without CUDA.
wheels: $(VENV)/.installed  ## build wheels for release and try them, in dist/: without CUDA and with CUDA 13
	rm -f dist/fastgemm-*.whl
	tools/build_wheels.sh $(ARGS)
	tools/check_wheels.sh dist/fastgemm-*.whl

# The site is built in build/site and needs neither torch nor a build of the package. Any warning is an error
# (mkdocs.yml), but only if it is printed, so there is no --quiet.
docs: $(VENV)/.docs  ## build the site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "$(CURDIR)/build/site/index.html"

lint: style types  ## check style and types, as CI does

style: $(VENV)/.lint  ## check formatting, style and generated pages (a part of make lint)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs $(BIN)/clang-format --dry-run --Werror
	$(BIN)/python tools/render_results.py --check
	$(BIN)/python benchmarks/fits/make_static_tables.py --from-json --check
	$(BIN)/python benchmarks/fits/fit_costs.py --check
	$(BIN)/python benchmarks/fits/fit_cpu_costs.py --check

types: $(VENV)/.lint  ## check the types of the package and of calls (a part of make lint)
	$(BIN)/mypy
	PATH="$(abspath $(BIN)):$$PATH" PYTHONPATH=python $(BIN)/basedpyright --verifytypes fastgemm --ignoreexternal

# Checks only host code: the CPU kernels use GCC's vector types, and only nvcc compiles kernels for GPUs.
tidy: BUILD = build/cmake-$(shell $(BIN)/python -c 'import sys; print(sys.implementation.cache_tag)')
tidy: $(VENV)/.installed  ## find likely faults in C++ by clang-tidy, in minutes
	$(BIN)/python -m pip install --quiet 'clang-tidy==23.1.4'
	$(BIN)/run-clang-tidy.py -p $(BUILD) -clang-tidy-binary $(BIN)/clang-tidy -quiet \
	  '/csrc/(core|library|python|simt|torch)/|/csrc/cuda/.*cpp$$|/csrc/cpu/gemm/predict/|/override/'

format: $(VENV)/.lint  ## format the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs $(BIN)/clang-format -i

clean:  ## remove .venv and everything that was built
	rm -rf $(VENV) build dist python/*.egg-info python/fastgemm/*.so

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	@touch $@

# pip would compile all modules of torch and of the tools to bytecode, most of them in vain; Python compiles those that
# are imported.
$(VENV)/.docs: docs/requirements.txt | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --no-compile -r docs/requirements.txt
	@touch $@

$(VENV)/.torch: | $(VENV)/.made
	@echo "fastgemm: installing $(TORCH) into $(VENV), once; downloads take minutes"
	$(BIN)/python -m pip install $(QUIET) --no-compile '$(TORCH)' numpy
	@touch $@

# pip hides the build's output. So setup.py compiles first, and pip has nothing left to compile.
define INSTALL
	$(BIN)/python -m pip install --quiet 'setuptools>=70' 'cmake>=3.24' ninja 'nanobind>=2.9'
	$(BIN)/python setup.py $(QUIET) build_ext --inplace
	@echo "fastgemm: installing what the commands$(1) need into $(VENV), once"
	$(BIN)/python -m pip install --quiet --no-compile --no-build-isolation --editable '.[$(2)]'
	@touch $@
endef

$(VENV)/.library: export FASTGEMM_NATIVE := 1
$(VENV)/.library: export FASTGEMM_SIMT := 0
$(VENV)/.library: export FASTGEMM_OVERRIDE := 0
$(VENV)/.library: $(VENV)/.torch $(SOURCES)
	$(call INSTALL,,cli)

$(VENV)/.installed: $(VENV)/.torch $(SOURCES)
	$(call INSTALL, and the tests,test)

$(VENV)/.lint: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --no-compile 'basedpyright==1.40.2' 'clang-format==18.1.8' 'mypy==2.4.1' 'ruff>=0.6' \
	  'nvidia-cuda-cuobjdump==13.2.78; sys_platform == "linux"' 'nvidia-cuda-nvdisasm==13.2.78; sys_platform == "linux"'
	@touch $@
