# make help lists what there is to make.
#
# CAFFE_PYTHON=/path/to/python (and CAFFE=/path/to/caffe) use a Caffe of your own, such as a GPU build.

RUNTIME := .caffe/current/complete
PYTHON  := .caffe/bin/python
SUFFIX  := $(if $(CAFFE_PYTHON),$(shell $(CAFFE_PYTHON) -c "from sysconfig import *; print(get_config_var('EXT_SUFFIX'))" \
             2> /dev/null),.cpython-39-x86_64-linux-gnu.so)
DUAL    := ccnn/dual$(SUFFIX)

export CAFFE_PYTHON CAFFE

.PHONY: all test demo bench clean help FORCE

all: $(DUAL)  ## Caffe in .caffe/ and the compiled solver; what you get without a target
	@echo "make: everything is up to date; type: source .caffe/activate"

# The script knows best whether there is anything to do, and leaves the file as it is if not.
$(RUNTIME): FORCE
	@tools/get_caffe.sh

$(DUAL): $(RUNTIME) setup.py $(wildcard cython/*.pyx cython/*.pxd cython/*.h)
	$(PYTHON) setup.py -q build_ext --inplace --force

test: $(DUAL)  ## every test; needs no GPU and no dataset
	OPENBLAS_NUM_THREADS=1 $(PYTHON) -m pytest -q -n 2 --dist loadfile

demo: $(DUAL)  ## train and compare on drawn images: output/demo/index.html
	$(PYTHON) demo/demo.py

bench: $(DUAL)  ## time the solver, the training and the inference
	$(PYTHON) bench/bench_solver.py
	$(PYTHON) bench/bench_training.py
	$(PYTHON) bench/bench_inference.py

clean:  ## remove the compiled solver and the demo; .caffe/, data/ and snapshots/ stay
	rm -rf build cython/*.c ccnn/*.so output/demo .pytest_cache .hypothesis .ruff_cache

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' Makefile | expand -t 14
