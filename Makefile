# Development commands; `make help` lists them. Only python3 (3.10 or newer), make and git are needed.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

PYTHON ?=
LOCKED ?=
DISTRO ?=
SOURCE ?=
ARGS ?=
DATA ?= ../shared/data
WORLD ?= 2000
MINUTES ?= 60
WHEELS := $(patsubst requirements/ros-%.txt,%,$(wildcard requirements/ros-*.txt))

# Which ROS: the sourced one, unless DISTRO names another, which then comes from wheels.
ROS := $(or $(DISTRO),$(if $(ROS_DISTRO),system,kilted))
ifeq ($(ROS),$(ROS_DISTRO))
  ROS := system
endif
VENV := .venv$(if $(filter-out system kilted,$(ROS)),-$(ROS))
ifneq ($(ROS),system)
  ifneq ($(ROS_DISTRO),)
    VENV := .venv-$(ROS)
  endif
  ifeq ($(filter $(ROS),$(WHEELS)),)
    $(error DISTRO=$(ROS) is not known here; wheels: $(WHEELS). Source your ROS 2 to use another)
  endif
  # Two installations of ROS in one process do not work.
  unexport ROS_DISTRO AMENT_PREFIX_PATH COLCON_PREFIX_PATH CMAKE_PREFIX_PATH
  ifneq ($(ROS_DISTRO),)
    unexport PYTHONPATH LD_LIBRARY_PATH
  endif
endif
# Containers often set this. Then PyTorch is compiled anew in each of the many processes that tests start.
unexport PYTHONDONTWRITEBYTECODE
# Left behind when make is started from inside a Python that has ROS wheels.
ifneq ($(_ROS_WHEELS_BOOTSTRAP_COMPLETE),)
  unexport _ROS_WHEELS_BOOTSTRAP_COMPLETE LD_LIBRARY_PATH
endif

PY := $(VENV)/bin/python
READY := $(VENV)/.ready-$(ROS)
# What only tests need, and only those that do not start nodes; and what only the linters need.
TESTED := $(VENV)/.with-test
LINTED := $(VENV)/.with-lint
FUZZED := $(VENV)/.with-fuzz
AUDITED := $(VENV)/.with-audit
AMENT := $(VENV)/.with-ament
# The documentation needs neither ROS nor PyTorch.
DOCS := .venv-docs
# A process that has nothing left takes half of what another has: long files do not keep one busy to the end.
PURE := -n auto --maxprocesses 8 --dist worksteal
# Tests that run nodes mostly wait: three at once keep two cores busy, each in a DDS domain of its own.
# In the order of their names, which begins with long ones; pytest-xdist would keep them to the end.
# What they look at takes place in real time: on a computer that stalls, a test may need a second try.
NODES := -n 3 --dist loadfile --no-loadscope-reorder --reruns 1

# Ubuntu 24.04 brings NumPy 1.26. These tests, of what a robot runs on arrays, run with it, too; the
# rest of its environment is that of .venv.
NUMPY1 := .venv-numpy1
ARRAYS := $(patsubst %,test/test_%.py,ring resize assessor collision obstacles encodings \
          guard frozen detector golden intrinsics overlay sources judgement local_planner)

# What `make evaluate` plays from DATA, with what is known of those that bring no labels.
RECORDINGS := walk_turning walk_office kitti_street himax_2 himax_10 euroc_still::still \
              motorway.mp4::negative cup.mp4 box.mp4 donkey_tub_bag drone_turn drone_approach_a drone_approach_b

.PHONY: help env demo test test-all coverage fuzz lock audit sbom lint ament docs bench evaluate clean distclean

help: ## list the commands
	@echo 'make COMMAND [VARIABLE=value]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile
	@echo 'variables:'
	@echo '  SOURCE=...  demo: video file, image or recording folder, rosbag2 or camera index'
	@echo '  GUARD=1     demo: a simulated robot that drives up to an obstacle, with and without guard'
	@echo '  PLAN=1      demo: a simulated robot that drives to a goal, past what is in the way'
	@echo '  DISTRO=...  ROS 2 from wheels instead of the sourced one ($(WHEELS))'
	@echo '  PYTHON=...  interpreter for a new environment (default: python3.11, then python3)'
	@echo '  DATA=...    evaluate: folder of the recordings; without it only rendered clips ($(DATA))'
	@echo '  WORLD=...   evaluate: number of rendered clips of each world ($(WORLD))'
	@echo '  MINUTES=... fuzz: how long, over all targets ($(MINUTES))'
	@echo '  ARGS=...    further arguments of the tool that is started'

env: $(READY) ## create or update .venv; all other commands do it when needed. LOCKED=1: only files with known hashes

$(READY): setup.py requirements/make_env.py $(wildcard requirements/*.txt)
	@python3 requirements/make_env.py $(VENV) --ros $(ROS) $(if $(PYTHON),--python $(PYTHON)) $(if $(LOCKED),--locked)

$(TESTED) $(LINTED) $(FUZZED) $(AUDITED) $(AMENT): $(VENV)/.with-%: $(READY) requirements/%.txt
	@echo 'Adding requirements/$*.txt to $(VENV)'
	@$(PY) -m pip install --no-input --no-compile --disable-pip-version-check -qq -r requirements/$*.txt \
	  $$(! test -f $(VENV)/constraints.txt || echo -c $(VENV)/constraints.txt)
	@touch $@

demo: $(READY) ## run camera and node together and write demo_output/report.html
ifneq ($(GUARD),)
	@$(PY) -m vjepa_ros drive --ros --seed 1 --first 9 --episodes 1 --modes with_guard --json demo_output/guard.json --page demo_output/guard.html $(ARGS)
else ifneq ($(PLAN),)
	@$(PY) -m vjepa_ros drive --ros --set get_past --seed 1 --first 1 --episodes 1 --modes with_planner --json demo_output/plan.json --page demo_output/plan.html $(ARGS)
else
	@$(PY) -m vjepa_ros demo $(if $(SOURCE),--source '$(SOURCE)') $(ARGS)
endif

test: $(READY) $(if $(DISTRO),,$(TESTED)) ## run the tests; with DISTRO=jazzy the ROS tests that depend on it, on Jazzy
# Code 5 says that ARGS chose none of a kind.
	@$(if $(DISTRO),,$(PY) -m pytest -m 'not ros and not slow' $(PURE) $(ARGS) || [ $$? = 5 ])
	@$(PY) -m pytest -m 'ros and not slow$(if $(DISTRO), and not any_distro)' $(NODES) $(ARGS) || [ $$? = 5 ]

test-all: $(READY) $(TESTED) ## run all tests, also those that take long, on Kilted and Jazzy, and build the documents
	@echo '== without ROS: all' && $(PY) -m pytest -m 'not ros' $(PURE) $(ARGS)
	@if $(PY) -c 'import sys; sys.exit(sys.version_info >= (3, 13))'; then \
	  echo '== without ROS: arrays with NumPy 1.26' && $(MAKE) --no-print-directory test-numpy1; \
	  else echo '== left out: NumPy 1.26 needs Python 3.12 or older'; fi
	@echo '== nodes on $(ROS): all' && $(PY) -m pytest -m ros $(NODES) $(ARGS)
	@echo '== nodes on jazzy: all' && $(MAKE) --no-print-directory test-jazzy DISTRO=jazzy
	@echo '== mutations of core lines, that make test must notice' && $(PY) test/mutations.py
	@echo '== documents' && $(MAKE) --no-print-directory docs ARGS=

$(NUMPY1)/.ready: $(READY)
	@$(PY) -m venv --without-pip $(NUMPY1)
	@$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  > $$($(NUMPY1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth
	@$(PY) -m pip --python $(NUMPY1)/bin/python install --no-input --disable-pip-version-check -qq --no-deps \
	  --ignore-installed --only-binary :all: 'numpy==1.26.*'
	@touch $@

.PHONY: test-numpy1
test-numpy1: $(NUMPY1)/.ready $(TESTED) ## run the tests of arrays with NumPy 1.26 (Python 3.12 or older)
	@$(NUMPY1)/bin/python -m pytest -m 'not ros and not slow' $(PURE) $(ARGS) $(ARRAYS)

.PHONY: test-jazzy
test-jazzy: $(READY)
	@$(PY) -m pytest -m ros $(NODES) $(ARGS)

coverage: $(READY) $(TESTED) ## run the tests and report which lines of the package they reach; below 85 % is an error
	@rm -f .coverage .coverage.*
	@$(PY) -m coverage run -m pytest -m 'not ros and not slow' $(PURE) $(ARGS)
	@$(PY) -m coverage run -m pytest -m 'ros and not slow' $(NODES) $(ARGS)
	@$(PY) -m coverage combine --quiet
	@$(PY) -m coverage report

fuzz: $(READY) $(FUZZED) ## attack everything that reads from outside, guided by coverage; ARGS names targets
	@PYTHONPATH=. $(PY) test/fuzz/run.py $(MINUTES) $(ARGS)

lock: $(READY) ## write requirements/locked.txt anew (Python 3.11 on Linux x86_64)
	@$(PY) requirements/lock.py

audit: $(READY) $(AUDITED) ## look for unsafe code, and for known weaknesses of what is installed (asks a server)
	@$(PY) -m bandit -q -c pyproject.toml -r vjepa_ros
	@$(PY) requirements/audit.py $(ARGS)

sbom: $(READY) $(AUDITED) ## write what is installed as a bill of materials, sbom.json (CycloneDX)
	@$(PY) -m cyclonedx_py environment $(VENV) --output-format JSON --output-file sbom.json
	@echo 'wrote sbom.json'

lint: $(READY) $(TESTED) $(LINTED) ## check style, imports and types of the code, and the Dockerfiles
	@$(PY) -m ruff check $(ARGS) .
	@$(VENV)/bin/lint-imports --no-cache
	@$(VENV)/bin/pyright --pythonpath $(PY)
	@$(VENV)/bin/hadolint docker/Dockerfile*

ament: $(READY) $(TESTED) $(AMENT) ## check with the linters of ROS 2
	@$(PY) -m pytest $(ARGS) test/test_structure.py -k ament

docs: $(DOCS)/.ready ## build the documentation into site/; broken links are errors
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict $(ARGS)

$(DOCS)/.ready: requirements/docs.txt
	@$(or $(PYTHON),python3) -m venv $(DOCS)
	@$(DOCS)/bin/pip install --no-input --disable-pip-version-check -qq -r requirements/docs.txt
	@touch $@

bench: $(READY) $(TESTED) ## measure the speed on the CPU of this machine
	@$(PY) -m vjepa_ros benchmark --device cpu --baseline floor --baseline hf $(ARGS)

evaluate: $(READY) ## measure the accuracy and write it into docs/accuracy.md
	@$(PY) -m vjepa_ros evaluate \
	  $(if $(wildcard $(DATA)/.),$(addprefix $(DATA)/,$(RECORDINGS))) --rail --world $(WORLD) \
	  --rough $(WORLD) \
	  --document docs/accuracy.md --json docs/accuracy/figures.json $(ARGS)

clean: ## remove what builds and runs leave behind
	@rm -rf build install log site demo_output drive_logs .coverage .coverage.* *.egg-info .pytest_cache .ruff_cache
	@find vjepa_ros test launch -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove the environments as well
	@rm -rf .venv .venv-*
