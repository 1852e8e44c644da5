/* Where points lie in the permutohedral lattice A*_d: the simplex around each, and its weights there.

   A point f of R^d is lifted to x = E f on the plane sum_i x_i = 0 of R^(d+1), where the lattice points are those whose
   coordinates are integers, all the same modulo d + 1. That remainder r = 0..d is the colour of a vertex; every simplex
   has one vertex of each colour. With c_i = (x_i - r) / (d + 1), a whole number,

       vertex of colour r in the simplex of x:   c_i = round0_i - [rank_i > d - r]

   round0 is the nearest point of colour 0, and rank sorts x - round0 in descending order. The neighbours of a vertex along
   direction j have one colour more or less: x +- (1, .., 1, -d, 1, .., 1), the -d at j.

   A vertex is known by its key, sum_i c_i K_i + r K_r modulo 2^64, K random odd numbers: d of the coordinates say all.
   Two of M vertices share a key with a chance of M^2 / 2^64, one in a million for four million vertices.

   The scale is that of Adams, Baek and Davis (2010): filtering with (1/4, 1/2, 1/4) along each of the d + 1 directions has
   variance 1 in every direction of R^d, interpolation included. */
#ifndef CCNN_SIMPLEX_H
#define CCNN_SIMPLEX_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DIMENSIONS 8        /* most that are allowed */
#define BLOCK 64            /* points at a time */
#define FARTHEST 524288.0f  /* largest coordinate of x: beyond, float32 does not tell where in a simplex a point is */

static const uint64_t K[DIMENSIONS + 1] = {     /* of coordinate 0, 1, ...; the last is that of the colour */
    0x9e3779b97f4a7c15u, 0xd1b54a32d192ed03u, 0xabc98388fb8fac03u, 0x8cb92ba72f3d8dd7u, 0xf1357aea2e62a9c5u,
    0xc2b2ae3d27d4eb4fu, 0xa0761d6478bd642fu, 0xe7037ed1a0b428dbu, 0x8ebc6af09c88c6e3u};
#define K_COLOUR K[DIMENSIONS]

/* A set of vertices by key; their numbers are in the order of insertion. */
typedef struct {
    uint64_t *key;          /* of vertex 0, 1, ... */
    uint8_t *colour;
    int32_t count, room;
    int32_t *place;         /* hash table of vertices, -1 where free */
    int bits;               /* the table has 2^bits places */
} Vertices;

static inline int vertices_init(Vertices *set, int32_t expected) {
    set->count = 0;
    set->room = expected;
    set->bits = 4;
    while (((int64_t)1 << set->bits) < 2 * (int64_t)expected) set->bits++;
    set->key = (uint64_t *)malloc(expected * sizeof(uint64_t));
    set->colour = (uint8_t *)malloc(expected);
    set->place = (int32_t *)malloc(sizeof(int32_t) << set->bits);
    if (!set->key || !set->colour || !set->place) return 0;
    memset(set->place, -1, sizeof(int32_t) << set->bits);
    return 1;
}

static inline void vertices_free(Vertices *set) {
    free(set->key);
    free(set->colour);
    free(set->place);
    set->key = NULL, set->colour = NULL, set->place = NULL;
}

/* The place of a key in the table: that of the vertex, or the free one where it would go. */
static inline int64_t vertices_place(const Vertices *set, uint64_t key) {
    int64_t last = ((int64_t)1 << set->bits) - 1, at = (int64_t)(key >> (64 - set->bits));
    while (set->place[at] >= 0 && set->key[set->place[at]] != key) at = (at + 1) & last;
    return at;
}

static inline int vertices_grow(Vertices *set) {
    int32_t room = 2 * set->room, *place;
    uint64_t *key = (uint64_t *)realloc(set->key, room * sizeof(uint64_t));
    if (!key) return 0;
    set->key = key;
    uint8_t *colour = (uint8_t *)realloc(set->colour, room);
    if (!colour) return 0;
    set->colour = colour;
    place = (int32_t *)malloc(sizeof(int32_t) << (set->bits + 1));
    if (!place) return 0;
    free(set->place);
    set->place = place;
    set->bits++;
    set->room = room;
    memset(place, -1, sizeof(int32_t) << set->bits);
    for (int32_t i = 0; i < set->count; i++) place[vertices_place(set, key[i])] = i;
    return 1;
}

/* The number of a vertex, which is new if it was not there; -1 if there is no memory. */
static inline int32_t vertices_add(Vertices *set, uint64_t key, uint8_t colour) {
    int64_t at = vertices_place(set, key);
    if (set->place[at] >= 0) return set->place[at];
    if (set->count == set->room) {
        if (set->room > INT32_MAX / 2 || !vertices_grow(set)) return -1;
        at = vertices_place(set, key);
    }
    set->key[set->count] = key;
    set->colour[set->count] = colour;
    return set->place[at] = set->count++;
}

/* The vertices and weights of up to BLOCK points; d is a constant where this is inlined.

   f       in,  d x points      row i begins at f + i * stride
   key     out, points x (d+1)  the key of the vertex of each colour
   weight  out, points x (d+1)  its weight: at least 0 but for rounding, the sum is 1
   returns 0 if a point is too far out */
static inline int simplices_of(const int d, int points, const float *f, int64_t stride, uint64_t *key, float *weight) {
    float x[DIMENSIONS + 1][BLOCK], rest[DIMENSIONS + 1][BLOCK], far = 0;
    int32_t c[DIMENSIONS + 1][BLOCK], rank[DIMENSIONS + 1][BLOCK], sum[BLOCK];
    const float over = 1.0f / (d + 1);

    /* 1. lift: x_0 = s_1 + .. + s_d, x_j = s_(j+1) + .. + s_d - j s_j, with s_j = f_(j-1) (d+1) sqrt(2/3 / (j (j+1))) */
    for (int p = 0; p < points; p++) x[0][p] = 0;
    for (int j = d; j >= 1; j--) {
        const float scale = (d + 1) * sqrtf(2.0f / 3.0f / (j * (j + 1.0f)));
        for (int p = 0; p < points; p++) {
            float s = f[(j - 1) * stride + p] * scale;
            x[j][p] = x[0][p] - j * s;
            x[0][p] += s;
        }
    }
    for (int j = 0; j <= d; j++)
        for (int p = 0; p < points; p++) far = fmaxf(far, fabsf(x[j][p]));
    if (!(far < FARTHEST)) return 0;

    /* 2. round each coordinate to a multiple of d + 1; what the sum of them is off, the ranks tell whom to correct */
    for (int p = 0; p < points; p++) sum[p] = 0;
    for (int j = 0; j <= d; j++)
        for (int p = 0; p < points; p++) {
            float nearest = rintf(x[j][p] * over);
            rest[j][p] = x[j][p] * over - nearest;
            c[j][p] = (int32_t)nearest;
            sum[p] += c[j][p];
            rank[j][p] = 0;
        }
    for (int i = 0; i < d; i++)
        for (int j = i + 1; j <= d; j++)
            for (int p = 0; p < points; p++) {
                int32_t less = rest[i][p] < rest[j][p];
                rank[i][p] += less;
                rank[j][p] += 1 - less;
            }
    for (int j = 0; j <= d; j++)
        for (int p = 0; p < points; p++) {
            int32_t r = rank[j][p] + sum[p], up = r < 0, down = r > d;
            rank[j][p] = r + (up - down) * (d + 1);
            c[j][p] += up - down;
            rest[j][p] -= up - down;
        }

    /* 3. keys and barycentric weights, colour by colour */
    for (int p = 0; p < points; p++) {
        float sorted[DIMENSIONS + 1];
        uint64_t step[DIMENSIONS + 1], k = 0;
        for (int j = 0; j <= d; j++) {
            sorted[rank[j][p]] = rest[j][p];
            step[rank[j][p]] = j < d ? K[j] : 0;
            if (j < d) k += (uint64_t)(int64_t)c[j][p] * K[j];
        }
        key[p * (d + 1)] = k;
        weight[p * (d + 1)] = 1 + sorted[d] - sorted[0];
        for (int r = 1; r <= d; r++) {
            k += K_COLOUR - step[d + 1 - r];
            key[p * (d + 1) + r] = k;
            weight[p * (d + 1) + r] = sorted[d - r] - sorted[d + 1 - r];
        }
    }
    return 1;
}

static inline int simplices(int d, int points, const float *f, int64_t stride, uint64_t *key, float *weight) {
    if (d == 2) return simplices_of(2, points, f, stride, key, weight);     /* position */
    if (d == 5) return simplices_of(5, points, f, stride, key, weight);     /* position and colour */
    return simplices_of(d, points, f, stride, key, weight);
}

/* The corners of points in a set of vertices, which grows: corner and weight are points x (d+1).
   Returns 1; 0 without memory; -1 if a point is too far out. */
static inline int locate(Vertices *set, int d, int64_t points, const float *f, int64_t stride, int32_t *corner, float *weight) {
    uint64_t key[BLOCK * (DIMENSIONS + 1)], *before = NULL;     /* before: of the point to the left */
    uint64_t last[DIMENSIONS + 1];
    int32_t *left = NULL;
    for (int64_t start = 0; start < points; start += BLOCK) {
        int some = (int)(points - start < BLOCK ? points - start : BLOCK);
        if (!simplices(d, some, f + start, stride, key, weight + start * (d + 1))) return -1;
        for (int p = 0; p < some; p++) {
            uint64_t *own = key + p * (d + 1);
            int32_t *here = corner + (start + p) * (d + 1);
            for (int r = 0; r <= d; r++) {
                here[r] = before && before[r] == own[r] ? left[r] : vertices_add(set, own[r], (uint8_t)r);
                if (here[r] < 0) return 0;
            }
            before = own;
            left = here;
        }
        memcpy(last, before, (d + 1) * sizeof(uint64_t));       /* the next block overwrites key */
        before = last;
    }
    return 1;
}

/* The vertex next to `vertex` along direction j, one colour up; `none` if it is not in the set. */
static inline int32_t next_along(const Vertices *set, int d, int j, int32_t vertex, int32_t none) {
    uint64_t key = set->key[vertex];
    int64_t at;
    if (set->colour[vertex] < d) {
        key += K_COLOUR - (j < d ? K[j] : 0);
    } else {
        key -= d * K_COLOUR;
        for (int i = 0; i < d; i++)
            if (i != j) key += K[i];
    }
    at = vertices_place(set, key);
    return set->place[at] >= 0 ? set->place[at] : none;
}

#endif
