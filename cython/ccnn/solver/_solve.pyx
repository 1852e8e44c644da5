"""One problem from start to end, and many of them on several threads.

The threads are POSIX threads that run compiled code only. They end with the call: a process may fork before or after
it, and there is no pool that a child would lack.
"""
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from ._ascent cimport projected_gradient_ascent
from ._newton cimport newton
from ._problem cimport Dual

cdef extern from "pthread.h" nogil:
    ctypedef unsigned long pthread_t
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_create(pthread_t* thread, const void* attributes, void* (*work)(void*) noexcept nogil, void* argument)
    int pthread_timedjoin_np(pthread_t thread, void** result, const timespec* until)
    int pthread_mutex_init(pthread_mutex_t* mutex, const void* attributes)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)


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
    pthread_mutex_t lock


cdef void* work(void* queue) noexcept nogil:
    """What a thread runs."""
    work_through(<Queue*>queue, False)
    return NULL


cdef void work_through(Queue* queue, bint polls) noexcept nogil:
    """Solve problems until none is left, or until one has bad scores.

    Problems are taken in order. So every problem before a bad one is checked too, and the error names the first one.
    """
    cdef Py_ssize_t taken
    while True:
        pthread_mutex_lock(&queue.lock)
        taken = queue.count if queue.stop else queue.next
        queue.next += 1
        pthread_mutex_unlock(&queue.lock)
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
    cdef pthread_t* thread = <pthread_t*>PyMem_Malloc(threads * sizeof(pthread_t) + 1)
    if borrowed == NULL or thread == NULL:
        PyMem_Free(borrowed)
        PyMem_Free(thread)
        raise MemoryError(f"{len(problems)} problems on {threads} threads")
    queue.problem, queue.count, queue.next, queue.by_newton, queue.stop = borrowed, len(problems), 0, by_newton, 0
    for j, problem in enumerate(problems):
        borrowed[j] = <void*>problem
        problem.stop = &queue.stop
    pthread_mutex_init(&queue.lock, NULL)
    error = None
    with nogil:
        while started < threads - 1 and pthread_create(&thread[started], NULL, work, &queue) == 0:
            started += 1
        work_through(&queue, True)
        for j in range(started):
            while not joined(thread[j]):
                with gil:
                    try:
                        PyErr_CheckSignals()
                    except BaseException as caught:
                        error, queue.stop = caught, 1
    pthread_mutex_destroy(&queue.lock)
    PyMem_Free(borrowed)
    PyMem_Free(thread)
    for problem in problems:
        problem.stop = &problem.own_stop
        error = error or problem.error
    if error is not None:
        raise error
    return 0


cdef bint joined(pthread_t thread) noexcept nogil:
    """Has the thread ended? Waits for a tenth of a second."""
    cdef timespec until
    clock_gettime(CLOCK_REALTIME, &until)
    until.tv_nsec += 100000000
    if until.tv_nsec >= 1000000000:
        until.tv_sec, until.tv_nsec = until.tv_sec + 1, until.tv_nsec - 1000000000
    return pthread_timedjoin_np(thread, NULL, &until) == 0
