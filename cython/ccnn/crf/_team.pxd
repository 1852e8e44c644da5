cdef extern from "_team.h" nogil:
    ctypedef struct Team:
        int size
        int stop
    void team_run(int threads, void (*work)(void* job, Team* team, int member) noexcept nogil, void* job)
    long team_take(Team* team, long count)
    int team_meet(Team* team)
