# make help lists the targets.

RUNTIME := .caffe/current/complete
DUAL    := cython/dual.built
PYTHON  := $(abspath .caffe/bin/python)

.PHONY: all test demo bench clean help

all: $(DUAL)  ## Caffe in .caffe/ and the compiled solver (the default)
	@echo "ready: source .caffe/activate"

$(RUNTIME): tools/get_caffe.sh requirements.txt
	tools/get_caffe.sh

$(DUAL): $(RUNTIME) cython/dual.pyx cython/setup.py
	$(PYTHON) cython/setup.py -q build_ext --inplace
	@touch $@

test: $(DUAL)  ## every test; needs no GPU and no dataset
	OPENBLAS_NUM_THREADS=1 $(PYTHON) -m pytest -q -n 2 --dist loadfile tests

demo: $(DUAL)  ## train on synthetic images, write demo/index.html
	$(PYTHON) tools/demo.py

bench: $(DUAL)  ## measure solver, training and inference
	$(PYTHON) tools/bench_solver.py
	$(PYTHON) tools/bench_training.py
	$(PYTHON) tools/bench_inference.py

clean:  ## remove what make built, except data/ and snapshots/
	rm -rf .caffe demo cython/build cython/dual.c cython/*.so $(DUAL)

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 8
