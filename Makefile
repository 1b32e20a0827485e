# Each target does all the set-up that it needs, on a fresh machine.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/

SECONDS ?= 300
SEED ?= 0
ORDER ?= $(shell date +%s)

.PHONY: demo gallery docs test proof env lint types tests shuffled slow sweep examples fuzz gpu clean
.NOTPARALLEL:

demo: env            ## run real inputs through the library and write a page of pictures
	$(RUN)python examples/demo

gallery: env         ## every named pattern as a thumbnail; writes gallery.html
	$(RUN)graphattn gallery --out gallery.html

docs: env            ## the site's pages, with the story's chapters executed; fails on a warning or a dead link
	$(RUN)python -m pip install --quiet --disable-pip-version-check --no-compile --constraint .ci/constraints.txt --editable '.[all,docs]'
	MPLBACKEND=agg OMP_NUM_THREADS=1 $(RUN)python examples/site

test: env lint types tests   ## everything CI checks

proof: env lint types shuffled slow sweep examples   ## and what takes longer: random order, compilers, processes, training, every example

env: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml .ci/constraints.txt
	test -x $(RUN)python || $(PYTHON) -m venv $(VENV)
	# --no-compile: of the packages' files few are ever imported, and Python compiles those then
	$(RUN)python -m pip install --quiet --disable-pip-version-check --no-compile --constraint .ci/constraints.txt --editable '.[all]'
	# NATTEN, a peer that only tests use, builds against the installed torch; without it its tests are skipped.
	-$(RUN)python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps natten==0.21.7
	touch $@

lint: env
	$(RUN)ruff check .
	$(RUN)ruff format --check .

types: env
	$(RUN)mypy

tests: env           ## tests and doctests but the slow ones
	# --assert=plain: values are shown by the second run, of what failed
	PYTHONDONTWRITEBYTECODE= $(RUN)pytest -n 2 --dist worksteal -m "not slow" --assert=plain || \
		{ $(RUN)pytest --last-failed; exit 1; }

shuffled: env        ## the same tests in a random order; ORDER=... repeats one
	$(RUN)pytest -n 2 --dist worksteal -m "not slow" -p randomly --randomly-dont-reset-seed --randomly-seed=$(ORDER)

slow: env            ## tests marked slow
	$(RUN)pytest -n 2 -m slow

sweep: env           ## every model type of transformers, stock beside patched; minutes
	OMP_NUM_THREADS=1 $(RUN)python tests/hf/sweep.py

examples: env        ## every numbered example and chapter, two at a time; each ends in an assert
	ls examples/[0-9]*.py examples/story/*.py | MPLBACKEND=agg OMP_NUM_THREADS=1 xargs -P 2 -I FILE sh -c \
		'said=$$($(RUN)python FILE 2>&1); code=$$?; echo "== FILE"; echo "$$said"; exit $$code'

fuzz: env            ## hostile input at random, SECONDS for each script of tests/fuzz; SEED says which; not in CI
	failed=0; for script in tests/fuzz/fuzz_*.py; do echo "== $$script"; \
		$(RUN)python $$script --seconds $(SECONDS) --seed $(SEED) || failed=1; done; exit $$failed

gpu:                 ## on a machine with a GPU, its own python as it is: GPU="--part correctness | again | figures | tune"
	$(PYTHON) tests/gpu/first_run.py --out gpu.json $(GPU)

clean:
	rm -rf $(VENV) site demo_page gallery.html gpu.json gpu.stderr
