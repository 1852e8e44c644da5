/* A team of threads that work on one job in phases.

   team_run starts the threads, and the caller is one of them. Within a phase the members take pieces of the work by
   number, each piece once; team_meet ends the phase for all. A piece gives the same numbers whoever takes it, so results
   do not depend on the size of the team. The threads end with the call: a process may fork before or after it. */
#ifndef CCNN_TEAM_H
#define CCNN_TEAM_H

#include <pthread.h>
#include <stdlib.h>

#define SPINS 20000         /* looks at the clock of the team before a member sleeps: tens of microseconds */

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
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
    pthread_t thread;
} Member;

static inline void *team_member(void *argument) {
    Member *member = (Member *)argument;
    pthread_mutex_lock(&member->team->lock);        /* held until the size of the team is known */
    pthread_mutex_unlock(&member->team->lock);
    member->work(member->job, member->team, member->member);
    return NULL;
}

/* Run `work` on up to `threads` threads; fewer if the system has no more. */
static inline void team_run(int threads, void (*work)(void *, Team *, int), void *job) {
    Team team = {.size = 1};
    Member *members = threads > 1 ? (Member *)calloc(threads, sizeof(Member)) : NULL;
    pthread_mutex_init(&team.lock, NULL);
    pthread_cond_init(&team.moved, NULL);
    if (members) {
        pthread_mutex_lock(&team.lock);
        for (; team.size < threads; team.size++) {
            Member *member = &members[team.size];
            member->team = &team, member->work = work, member->job = job, member->member = team.size;
            if (pthread_create(&member->thread, NULL, team_member, member)) break;
        }
        pthread_mutex_unlock(&team.lock);
    }
    work(job, &team, 0);
    for (int i = 1; i < team.size; i++) pthread_join(members[i].thread, NULL);
    free(members);
    pthread_cond_destroy(&team.moved);
    pthread_mutex_destroy(&team.lock);
}

/* The number of a piece that nobody has taken in this phase, or -1 if all `count` are. */
static inline long team_take(Team *team, long count) {
    long taken;
    if (team->size == 1) {
        taken = team->next++;
    } else {
        pthread_mutex_lock(&team->lock);
        taken = team->next++;
        pthread_mutex_unlock(&team->lock);
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
    pthread_mutex_lock(&team->lock);
    if (++team->waiting == team->size) {
        team->waiting = 0;
        team->next = 0;
        team->stopped = team->stop;
        team->phase++;
        pthread_cond_broadcast(&team->moved);
    } else {
        pthread_mutex_unlock(&team->lock);
        for (int i = 0; i < SPINS && team->phase == phase; i++) ;
        pthread_mutex_lock(&team->lock);
        while (team->phase == phase) pthread_cond_wait(&team->moved, &team->lock);
    }
    stopped = team->stopped;
    pthread_mutex_unlock(&team->lock);
    return stopped;
}

#endif
