/* The loops over labels for one width of rows. _rows.h includes this file once for every width: WIDTH is the number of
   floats of a row, VECTOR a type of some floats that divide a row, and NAME(f) the name of f for this width. */
#define VECTORS (WIDTH / (int)(sizeof(VECTOR) / sizeof(float)))
#define ROW(values, number) ((VECTOR *)((values) + (int64_t)(number) * WIDTH))

/* Sum the copies of the vertices lo..hi: what the parts have splatted. */
static void NAME(sum_copies)(int width, int64_t lo, int64_t hi, const int32_t *first_copy, const int32_t *copy,
                             float *slots, float *values) {
    (void)width;
    for (int64_t v = lo; v < hi; v++) {
        VECTOR *row = ROW(values, v);
        const VECTOR *term = ROW(slots, copy[first_copy[v]]);
        for (int b = 0; b < VECTORS; b++) row[b] = term[b];
        for (int32_t c = first_copy[v] + 1; c < first_copy[v + 1]; c++) {
            term = ROW(slots, copy[c]);
            for (int b = 0; b < VECTORS; b++) row[b] += term[b];
        }
    }
}

/* Filter the vertices lo..hi along one direction with (1/2, 1, 1/2). */
static void NAME(blur)(int width, int64_t lo, int64_t hi, const int32_t *before, const int32_t *after, float *in,
                       float *out) {
    (void)width;
    for (int64_t v = lo; v < hi; v++) {
        const VECTOR *own = ROW(in, v), *left = ROW(in, before[v]), *right = ROW(in, after[v]);
        VECTOR *row = ROW(out, v);
        for (int b = 0; b < VECTORS; b++) row[b] = own[b] + 0.5f * (left[b] + right[b]);
    }
}

/* Add strength * sum over corners of weight * row to each of a tile of rows. */
static inline void NAME(slice)(int width, int64_t pixels, const int corners, const Message m, float *s) {
    (void)width;
    for (int64_t i = 0; i < pixels; i++) {
        VECTOR *sum = ROW(s, i);
#ifdef CONSTANT
        VECTOR own[VECTORS];
#else
        VECTOR *own = sum;
#endif
        for (int b = 0; b < VECTORS; b++) own[b] = sum[b];
        for (int c = 0; c < corners; c++) {
            const VECTOR *row = ROW(m.in, m.corner[i * corners + c]);
            const float w = m.strength[i] * m.weight[i * corners + c];
            for (int b = 0; b < VECTORS; b++) own[b] += w * row[b];
        }
        for (int b = 0; b < VECTORS; b++) sum[b] = own[b];
    }
}

/* Add weight * scale * row of the tile to each corner. */
static inline void NAME(splat)(int width, int64_t pixels, const int corners, const Message m, float *s,
                               const float *scale) {
    (void)width;
    for (int64_t i = 0; i < pixels; i++) {
#ifdef CONSTANT
        VECTOR own[VECTORS];
        for (int b = 0; b < VECTORS; b++) own[b] = ROW(s, i)[b];
#else
        const VECTOR *own = ROW(s, i);
#endif
        for (int c = 0; c < corners; c++) {
            VECTOR *row = ROW(m.out, m.corner[i * corners + c]);
            const float w = scale[i] * m.weight[i * corners + c];
            for (int b = 0; b < VECTORS; b++) row[b] += w * own[b];
        }
    }
}

/* One step of mean field for `pixels` <= TILE of them: slice the messages, softmax, splat the marginals.

   s = unary + sum_k strength_k sum_corner weight row(corner);   q = exp(s - max s) / sum

   sliced   0 in the first step, when there are no messages yet
   q        TILE x WIDTH: the marginals times 1 / scale, which has TILE numbers
   splats   0 in the last step */
static void NAME(step)(int width, int64_t pixels, const float *unary, const Message *message, int kernels, int sliced,
                       int splats, float *q, float *scale) {
    for (int64_t j = 0; j < TILE * WIDTH; j += 16) AHEAD_OF_USE(unary + TILE * WIDTH + j);
    memcpy(q, unary, pixels * WIDTH * sizeof(float));
    if (sliced)
        for (int k = 0; k < kernels; k++) {
            if (message[k].corners == 3) NAME(slice)(width, pixels, 3, message[k], q);
            else if (message[k].corners == 6) NAME(slice)(width, pixels, 6, message[k], q);
            else NAME(slice)(width, pixels, message[k].corners, message[k], q);
        }
    for (int64_t i = 0; i < pixels; i++) {
        float *s = q + i * WIDTH, most = s[0];
        for (int l = 1; l < WIDTH; l++) most = s[l] > most ? s[l] : most;
        for (int l = 0; l < WIDTH; l++) s[l] -= most;
    }
    for (int64_t j = 0; j < pixels * WIDTH; j++) {
        const float e = exp_within_f(q[j] < NOTHING ? NOTHING : q[j]);
        q[j] = q[j] < NOTHING ? 0 : e;
    }
    for (int64_t i = 0; i < pixels; i++) {
        const float *s = q + i * WIDTH;
        float total = s[0];
        for (int l = 1; l < WIDTH; l++) total += s[l];
        scale[i] = 1 / total;
    }
    if (splats)
        for (int k = 0; k < kernels; k++) {
            if (message[k].corners == 3) NAME(splat)(width, pixels, 3, message[k], q, scale);
            else if (message[k].corners == 6) NAME(splat)(width, pixels, 6, message[k], q, scale);
            else NAME(splat)(width, pixels, message[k].corners, message[k], q, scale);
        }
}

#undef VECTORS
#undef ROW
