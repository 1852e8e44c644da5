/* What differs between compilers and operating systems, chosen here and nowhere else.

   gcc and clang have vectors of floats as a type; with any other compiler a vector is one float, which is right and
   slower. Threads are POSIX's, or those of Windows. ccnn/_util/system.py is the same for Python. */
#ifndef CCNN_PORTABLE_H
#define CCNN_PORTABLE_H

#include <stdint.h>
#include <stdlib.h>

/* ------------------------------------------------------------------------------------------------------- compilers */

#if (defined(__GNUC__) || defined(__clang__)) && !defined(CCNN_PLAIN)        /* CCNN_PLAIN: to test the other way */
#define VECTOR_OF(floats, type) type __attribute__((vector_size(4 * (floats)), aligned(4), may_alias))
#define HAS_VECTORS 1
#else
#define VECTOR_OF(floats, type) type
#define HAS_VECTORS 0
#endif

#if defined(__GNUC__) || defined(__clang__)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define PREFETCH(address) __builtin_prefetch(address, 0, 2)             /* into the second-level cache */
#define PREFETCH_TO_WRITE(address) __builtin_prefetch(address, 1, 2)
#define AHEAD_OF_USE(address) __builtin_prefetch(address)
#else
#define ALWAYS_INLINE static __forceinline
#define PREFETCH(address) ((void)(address))
#define PREFETCH_TO_WRITE(address) ((void)(address))
#define AHEAD_OF_USE(address) ((void)(address))
#endif

#if defined(__clang__)                  /* the iterations of the next loop do not depend on each other; unroll it */
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define INDEPENDENT _Pragma("GCC ivdep")
#define UNROLL _Pragma("GCC unroll 12")
#else
#define INDEPENDENT __pragma(loop(ivdep))
#define UNROLL
#endif

/* ----------------------------------------------------------------------------------------------- operating systems */

typedef struct Thread Thread;           /* filled by thread_start; must stay where it is until thread_join */
typedef void (*ThreadWork)(void *argument);

#if defined(_WIN32)

#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#define NOGDI
#include <windows.h>
#include <malloc.h>
#include <process.h>
#undef near
#undef far

struct Thread { uintptr_t handle; ThreadWork work; void *argument; };
typedef SRWLOCK Mutex;
typedef CONDITION_VARIABLE Condition;

static inline void *aligned_memory(size_t alignment, size_t size) { return _aligned_malloc(size, alignment); }
static inline void aligned_release(void *memory) { _aligned_free(memory); }
static inline int64_t milliseconds(void) { return (int64_t)GetTickCount64(); }
static inline int usable_processors(void) {
    SYSTEM_INFO about;
    GetSystemInfo(&about);
    return (int)about.dwNumberOfProcessors;
}

static unsigned __stdcall thread_body(void *thread) {
    ((Thread *)thread)->work(((Thread *)thread)->argument);
    return 0;
}
static inline int thread_start(Thread *thread, ThreadWork work, void *argument) {
    thread->work = work, thread->argument = argument;
    thread->handle = _beginthreadex(NULL, 0, thread_body, thread, 0, NULL);
    return thread->handle != 0;
}
static inline void thread_join(Thread *thread) {
    WaitForSingleObject((HANDLE)thread->handle, INFINITE);
    CloseHandle((HANDLE)thread->handle);
}
static inline void mutex_init(Mutex *mutex) { InitializeSRWLock(mutex); }
static inline void mutex_lock(Mutex *mutex) { AcquireSRWLockExclusive(mutex); }
static inline void mutex_unlock(Mutex *mutex) { ReleaseSRWLockExclusive(mutex); }
static inline void mutex_destroy(Mutex *mutex) { (void)mutex; }
static inline void condition_init(Condition *condition) { InitializeConditionVariable(condition); }
static inline void condition_wake_all(Condition *condition) { WakeAllConditionVariable(condition); }
static inline void condition_wait(Condition *condition, Mutex *mutex) {
    SleepConditionVariableSRW(condition, mutex, INFINITE, 0);
}
static inline void condition_wait_for(Condition *condition, Mutex *mutex, int wait) {
    SleepConditionVariableSRW(condition, mutex, (DWORD)wait, 0);
}
static inline void condition_destroy(Condition *condition) { (void)condition; }

#else

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

struct Thread { pthread_t handle; ThreadWork work; void *argument; };
typedef pthread_mutex_t Mutex;
typedef pthread_cond_t Condition;

static inline void *aligned_memory(size_t alignment, size_t size) {
    void *memory;
    return posix_memalign(&memory, alignment, size) ? NULL : memory;
}
static inline void aligned_release(void *memory) { free(memory); }
static inline int64_t milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static inline int usable_processors(void) {
#if defined(__linux__)
    cpu_set_t ours;         /* too small for a machine of more than 1024: then those of the machine */
    if (sched_getaffinity(0, sizeof ours, &ours) == 0) return CPU_COUNT(&ours);
#endif
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static inline void *thread_body(void *thread) {
    ((Thread *)thread)->work(((Thread *)thread)->argument);
    return NULL;
}
static inline int thread_start(Thread *thread, ThreadWork work, void *argument) {     /* 0: the system has no more */
    thread->work = work, thread->argument = argument;
    return pthread_create(&thread->handle, NULL, thread_body, thread) == 0;
}
static inline void thread_join(Thread *thread) { pthread_join(thread->handle, NULL); }
static inline void mutex_init(Mutex *mutex) { pthread_mutex_init(mutex, NULL); }
static inline void mutex_lock(Mutex *mutex) { pthread_mutex_lock(mutex); }
static inline void mutex_unlock(Mutex *mutex) { pthread_mutex_unlock(mutex); }
static inline void mutex_destroy(Mutex *mutex) { pthread_mutex_destroy(mutex); }
static inline void condition_init(Condition *condition) { pthread_cond_init(condition, NULL); }
static inline void condition_wake_all(Condition *condition) { pthread_cond_broadcast(condition); }
static inline void condition_wait(Condition *condition, Mutex *mutex) { pthread_cond_wait(condition, mutex); }
static inline void condition_wait_for(Condition *condition, Mutex *mutex, int wait) {   /* milliseconds at most */
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += wait / 1000;
    until.tv_nsec += (long)(wait % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_cond_timedwait(condition, mutex, &until);
}
static inline void condition_destroy(Condition *condition) { pthread_cond_destroy(condition); }

#endif

#endif
