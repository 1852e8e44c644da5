"""One problem from start to end, and many of them on several threads.

The threads run compiled code only. They end with the call: a process may fork before or after
it, and there is no pool that a child would lack.
"""
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Free, PyMem_Malloc

from ._ascent cimport projected_gradient_ascent
from ._constants cimport POLL
from ._newton cimport newton
from ._problem cimport Dual

cdef extern from "portable.h" nogil:
    ctypedef struct Thread:
        pass
    ctypedef struct Mutex:
        pass
    ctypedef struct Condition:
        pass
    bint thread_start(Thread* thread, void (*work)(void*) noexcept nogil, void* argument)
    void thread_join(Thread* thread)
    void mutex_init(Mutex* mutex)
    void mutex_lock(Mutex* mutex)
    void mutex_unlock(Mutex* mutex)
    void mutex_destroy(Mutex* mutex)
    void condition_init(Condition* condition)
    void condition_wake_all(Condition* condition)
    void condition_wait_for(Condition* condition, Mutex* mutex, int milliseconds)
    void condition_destroy(Condition* condition)


cdef void solve(Dual problem, bint by_newton) noexcept nogil:
    """Everything of a call that needs no interpreter; the fields of problem say what came of it."""
    if not problem.accepted and not problem.check_scores():
        return
    if not problem.prepare():
        return
    problem.normalise()
    if by_newton:
        newton(problem)
    else:
        projected_gradient_ascent(problem)
    if problem.memory.failed or problem.stop[0]:
        return
    problem.finish()
    if problem.diff32 != NULL or problem.diff64 != NULL:
        problem.image_loss = problem.loss()


cdef struct Queue:
    void** problem          # borrowed references to Dual
    Py_ssize_t count
    Py_ssize_t next         # the first problem that no thread has taken
    bint by_newton
    volatile int stop       # no further problem is to be taken; any thread may set it
    Py_ssize_t running      # threads besides the caller's
    Mutex lock
    Condition ended         # a thread has


cdef void work(void* argument) noexcept nogil:
    """What a thread runs."""
    cdef Queue* queue = <Queue*>argument
    work_through(queue, False)
    mutex_lock(&queue.lock)
    queue.running -= 1
    condition_wake_all(&queue.ended)
    mutex_unlock(&queue.lock)


cdef void work_through(Queue* queue, bint polls) noexcept nogil:
    """Solve problems until none is left, or until one has bad scores.

    Problems are taken in order. So every problem before a bad one is checked too, and the error names the first one.
    """
    cdef Py_ssize_t taken
    while True:
        mutex_lock(&queue.lock)
        taken = queue.count if queue.stop else queue.next
        queue.next += 1
        mutex_unlock(&queue.lock)
        if taken >= queue.count:
            return
        (<Dual>queue.problem[taken]).polls = polls
        solve(<Dual>queue.problem[taken], queue.by_newton)
        if not (<Dual>queue.problem[taken]).accepted:
            queue.stop = 1


cdef int solve_all(list problems, bint by_newton, Py_ssize_t threads) except -1:
    """Solve every problem. The calling thread works too, and it is the one that answers to ^C."""
    cdef Py_ssize_t j, started = 0
    cdef Queue queue
    cdef Dual problem
    cdef void** borrowed = <void**>PyMem_Malloc(len(problems) * sizeof(void*) + 1)
    cdef Thread* thread = <Thread*>PyMem_Malloc(threads * sizeof(Thread) + 1)
    if borrowed == NULL or thread == NULL:
        PyMem_Free(borrowed)
        PyMem_Free(thread)
        raise MemoryError(f"{len(problems)} problems on {threads} threads")
    queue.problem, queue.count, queue.next, queue.by_newton, queue.stop = borrowed, len(problems), 0, by_newton, 0
    for j, problem in enumerate(problems):
        borrowed[j] = <void*>problem
        problem.stop = &queue.stop
    mutex_init(&queue.lock)
    condition_init(&queue.ended)
    error = None
    with nogil:
        mutex_lock(&queue.lock)             # held until `running` is right
        while started < threads - 1 and thread_start(&thread[started], work, &queue):
            started += 1
        queue.running = started
        mutex_unlock(&queue.lock)
        work_through(&queue, True)
        while still_running(&queue):
            with gil:
                try:
                    PyErr_CheckSignals()
                except BaseException as caught:
                    error, queue.stop = caught, 1
        for j in range(started):
            thread_join(&thread[j])
    condition_destroy(&queue.ended)
    mutex_destroy(&queue.lock)
    PyMem_Free(borrowed)
    PyMem_Free(thread)
    for problem in problems:
        problem.stop = &problem.own_stop
        error = error or problem.error
    if error is not None:
        raise error
    return 0


cdef bint still_running(Queue* queue) noexcept nogil:
    """Whether a thread is at work still. Waits for the end of one, POLL milliseconds at most."""
    mutex_lock(&queue.lock)
    if queue.running:
        condition_wait_for(&queue.ended, &queue.lock, POLL)
    cdef bint some = queue.running > 0
    mutex_unlock(&queue.lock)
    return some
