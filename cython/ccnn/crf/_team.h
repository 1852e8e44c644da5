/* A team of threads that work on one job in phases.

   team_run starts the threads, and the caller is one of them. Within a phase the members take pieces of the work by
   number, each piece once; team_meet ends the phase for all. A piece gives the same numbers whoever takes it, so results
   do not depend on the size of the team. The threads end with the call: a process may fork before or after it. */
#ifndef CCNN_TEAM_H
#define CCNN_TEAM_H

#include <stdlib.h>

#include "portable.h"

#define SPINS 20000         /* looks at the clock of the team before a member sleeps: tens of microseconds */

typedef struct {
    Mutex lock;
    Condition moved;
    int size;               /* members, the caller included */
    int waiting;            /* of them at the end of the phase */
    volatile long phase;
    long next;              /* first piece of this phase that nobody has taken */
    volatile int stop;      /* set by any member */
    int stopped;            /* what `stop` was when the last phase ended: the same for every member */
} Team;

typedef struct {
    Team *team;
    void (*work)(void *job, Team *team, int member);
    void *job;
    int member;             /* 0 is the caller */
    Thread thread;
} Member;

static inline void team_member(void *argument) {
    Member *member = (Member *)argument;
    mutex_lock(&member->team->lock);                /* held until the size of the team is known */
    mutex_unlock(&member->team->lock);
    member->work(member->job, member->team, member->member);
}

/* Run `work` on up to `threads` threads; fewer if the system has no more. */
static inline void team_run(int threads, void (*work)(void *, Team *, int), void *job) {
    Team team = {.size = 1};
    Member *members = threads > 1 ? (Member *)calloc(threads, sizeof(Member)) : NULL;
    mutex_init(&team.lock);
    condition_init(&team.moved);
    if (members) {
        mutex_lock(&team.lock);
        for (; team.size < threads; team.size++) {
            Member *member = &members[team.size];
            member->team = &team, member->work = work, member->job = job, member->member = team.size;
            if (!thread_start(&member->thread, team_member, member)) break;
        }
        mutex_unlock(&team.lock);
    }
    work(job, &team, 0);
    for (int i = 1; i < team.size; i++) thread_join(&members[i].thread);
    free(members);
    condition_destroy(&team.moved);
    mutex_destroy(&team.lock);
}

/* The number of a piece that nobody has taken in this phase, or -1 if all `count` are. */
static inline long team_take(Team *team, long count) {
    long taken;
    if (team->size == 1) {
        taken = team->next++;
    } else {
        mutex_lock(&team->lock);
        taken = team->next++;
        mutex_unlock(&team->lock);
    }
    return taken < count ? taken : -1;
}

/* Wait until every member is here; then the next phase begins. Returns whether a member has set `stop`. */
static inline int team_meet(Team *team) {
    long phase = team->phase;
    int stopped;
    if (team->size == 1) {
        team->next = 0;
        return team->stop;
    }
    mutex_lock(&team->lock);
    if (++team->waiting == team->size) {
        team->waiting = 0;
        team->next = 0;
        team->stopped = team->stop;
        team->phase++;
        condition_wake_all(&team->moved);
    } else {
        mutex_unlock(&team->lock);
        for (int i = 0; i < SPINS && team->phase == phase; i++) ;
        mutex_lock(&team->lock);
        while (team->phase == phase) condition_wait(&team->moved, &team->lock);
    }
    stopped = team->stopped;
    mutex_unlock(&team->lock);
    return stopped;
}

#endif
