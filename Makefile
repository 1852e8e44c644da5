# make help lists what there is to make.
#
# CAFFE_PYTHON=/path/to/python (and CAFFE=/path/to/caffe) use a Caffe of your own, such as a GPU build.

RUNTIME := .caffe/current/complete
PYTHON  := .caffe/bin/python
SUFFIX  := $(if $(CAFFE_PYTHON),$(shell $(CAFFE_PYTHON) -c "from sysconfig import *; print(get_config_var('EXT_SUFFIX'))" \
             2> /dev/null),.cpython-39-x86_64-linux-gnu.so)
DUAL    := ccnn/solver/dual$(SUFFIX)
SOURCES := $(shell find cython -name '*.pyx' -o -name '*.pxd' -o -name '*.h')

export CAFFE_PYTHON CAFFE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

.PHONY: all test test-faults lint test-package test-torch test-formats cluster test-cluster studio test-studio demo bench clean \
        help FORCE

all: $(DUAL)  ## Caffe in .caffe/ and the compiled solver; what you get without a target
	@echo "make: everything is up to date; type: source .caffe/activate"

# The script knows best whether there is anything to do, and leaves the file as it is if not.
$(RUNTIME): FORCE
	@tools/get_caffe.sh

# The solver has several modules: one of them, touched last, stands for all. Changed sources are compiled alone, and all
# of them if the compiler's flags or Python may have changed.
$(DUAL): $(RUNTIME) setup.py $(SOURCES)
	$(PYTHON) setup.py -q build_ext --inplace --parallel $$(nproc) $(if $(filter-out $(SOURCES),$?),--force)
	@touch $@

test: $(DUAL) lint .caffe/packages/crf-reference.txt  ## lint, and every test; needs no GPU and no dataset
	OPENBLAS_NUM_THREADS=1 $(PYTHON) -m pytest -q -n 2 --dist loadfile

test-faults: $(DUAL) .caffe/packages/studio.txt .caffe/packages/crf-reference.txt  ## kills, a full disk, many connections; benchmarks, the study's trainings
	OPENBLAS_NUM_THREADS=1 $(PYTHON) -m pytest -q -n 2 --dist loadfile -m faults

lint: $(RUNTIME)  ## ruff, and the types of ccnn/
	$(PYTHON) -m ruff check
	$(PYTHON) -m mypy

test-package: $(RUNTIME) .caffe/packages/studio.txt .caffe/packages/test-studio.txt  ## build and install the package for every Python of this machine; test the solver there
	$(PYTHON) -m pytest -q -n 2 -m every_python tests/test_package.py tests/test_pip.py

# PyTorch does not run beside Caffe's Python 3.9. On the public index the plain name brings gigabytes of CUDA: give
# TORCH="torch==2.13.0+cpu --index-url ..." or what your machine has.
TORCH        ?= torch==2.13.0
TORCH_PYTHON ?= python3
.torch/complete:
	$(TORCH_PYTHON) -m venv .torch
	.torch/bin/pip install -q $(TORCH) pytest hypothesis
	@touch $@

.torch/package: .torch/complete setup.py pyproject.toml $(SOURCES) $(shell find ccnn -name "*.py") \
                $(wildcard prototxt/* solvers/*)
	.torch/bin/pip install -q ".[photos]"
	@touch $@

# The loss is compared with the Caffe layer's: $(DUAL).
test-torch: $(DUAL) .torch/package  ## PyTorch and the package in .torch/, an environment of its own; the tests of both
	.torch/bin/pytest -q tests/test_torch.py tests/test_extending.py tests/test_torch_engine.py \
	    tests/test_torch_processes.py -k torch

# The programs whose formats `ccnn convert` writes, in an environment of their own: no PyTorch, 0.7 GB all the same.
.formats/complete: requirements/formats.txt
	python3 -m venv .formats
	.formats/bin/pip install -q -r $<
	.formats/bin/pip install -q --no-deps labelme==6.3.1
	@touch $@

test-formats: $(DUAL) .formats/complete  ## masks in the formats of other programs, read by their own libraries
	OPENBLAS_NUM_THREADS=1 $(PYTHON) -m pytest -q tests/test_export_formats.py

# Packages that not everybody needs lie in .caffe/packages, beside the library: requirements/NAME.txt pins them.
.caffe/packages/%.txt: requirements/%.txt $(RUNTIME)
	$(PYTHON) -m pip install -q --no-deps --upgrade --target .caffe/packages -r $<
	@cp $< $@

cluster: $(DUAL) .caffe/packages/cluster.txt  ## Dask, for --cluster (docs/scale.md)

test-cluster: cluster  ## the tests of --cluster, with workers that are killed
	OPENBLAS_NUM_THREADS=1 $(PYTHON) -m pytest -q tests/test_cluster.py

studio: $(DUAL) .caffe/packages/studio.txt  ## tag photographs in a browser, and train; PHOTOS=folder
	$(PYTHON) tools/studio.py $(if $(PHOTOS),"$(PHOTOS)")

test-studio: $(DUAL) .caffe/packages/studio.txt .caffe/packages/test-studio.txt  ## the studio's tests, with a browser
	OPENBLAS_NUM_THREADS=1 $(PYTHON) -m pytest -q $(or $(TESTS),tests/test_studio.py tests/test_studio_door.py tests/test_studio_page.py)

demo: $(DUAL)  ## train and compare on drawn images: output/demo/index.html
	$(PYTHON) demo/demo.py

bench: $(DUAL) .torch/package .caffe/packages/crf-reference.txt .caffe/packages/openvino.txt  ## measure everything again: every docs/bench_*.md; wants quiet cores
	$(PYTHON) bench/bench_solver.py --out docs
	$(PYTHON) bench/bench_training.py --out docs
	$(PYTHON) bench/bench_head.py --out docs
	$(PYTHON) bench/bench_inference.py --out docs
	$(PYTHON) bench/bench_crf.py --out docs
	.torch/bin/python bench/bench_torch.py --out docs

clean:  ## remove what was compiled and cached, and the demo; .caffe/, data/ and snapshots/ stay
	rm -rf build *.egg-info .torch .formats ccnn/*.so ccnn/*/*.so output/demo .pytest_cache .hypothesis .ruff_cache .mypy_cache
	find cython -name '*.c' -delete

help:  ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /make \1\t/p' Makefile | expand -t 19
