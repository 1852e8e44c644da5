"""Time the solver that this Python has, on problems of another process. bench_solver.py starts one per build.

Messages come and go as pickles, on stdin and stdout:

    ("load", name, [(f, fields of the Constraints), ...], gradient, options of maximize)        -> None
    ("cold", name)      the problems in turn, so that none is in the cache      -> CPU seconds per problem
    ("hot", name)       one problem again and again                             -> CPU seconds per call
"""
import os
import pickle
import sys
import time

import numpy as np

from ccnn import Constraints, maximize

AGAIN = 16      # calls of a hot problem


def timed(problems):
    """CPU seconds per problem, of this thread."""
    start = time.thread_time()
    for f, constraints, diff, options in problems:
        maximize(f, constraints, diff=diff, **options)
    return (time.thread_time() - start) / len(problems)


def constraints(A, b, beta, allowed, regions, matrix):
    """Of this build's own class, which is not where another build has it."""
    if matrix is None:
        return Constraints(A, b, beta, allowed, regions)
    return Constraints.from_matrix(matrix, b, beta, allowed)


def timings(messages):
    sets, turn = {}, 0
    for what, name, *rest in messages:
        if what == "load":
            problems, gradient, options = rest
            sets[name] = [(f, constraints(*fields), np.zeros_like(f) if gradient else None, options)
                          for f, fields in problems]
            yield None
        elif what == "cold":
            yield timed(sets[name])
        else:
            turn += 1
            yield timed([sets[name][turn % 4]] * AGAIN)


def messages(stream):
    while True:
        try:
            yield pickle.load(stream)
        except EOFError:
            return


if __name__ == "__main__":
    out = os.fdopen(os.dup(1), "wb")        # whatever prints goes to stderr
    os.dup2(2, 1)
    for timing in timings(messages(sys.stdin.buffer)):
        pickle.dump(timing, out)
        out.flush()
