/* Local step of latent Dirichlet allocation, document by document: loops for every instruction set. */
#ifndef MPIBAYES_SVI_LDA_H
#define MPIBAYES_SVI_LDA_H
#include <stdint.h>
#include "philox.h"
#include "special.h"

enum { WIDE = 16, TOGETHER = 8 };       /* topics are padded to a multiple of WIDE; words are looked at TOGETHER */
enum { VB = 0, LINEAR = 1, CVB0 = 2, GIBBS = 3 }; /* local steps */

typedef struct { /* documents, and what their local step depends on */
    int64_t K, P;          /* topics; padded */
    const int64_t *starts; /* of the documents' entries */
    const int32_t *words;
    const float *counts;
    const float *weight; /* (V, P): of words in topics, 0 in padding */
    const float *alpha;  /* (P,), 0 in padding */
    int local, cold, most; /* which step; whether it starts anew; iterations at most, or sweeps of GIBBS */
    float tolerance;
    double rounder[2]; /* 1.5 * 2^52 times the unit of `sums`, and of `numbered` */
    uint64_t seed, cycle, chain; /* of the streams of GIBBS, one a document */
    int64_t number;              /* of the first document, among those of the table */
} documents_t;

typedef struct { /* scratch, at multiples of 64 bytes */
    float *gamma, *theta, *found; /* (P,) */
    float *ratio;                 /* (longest document + TOGETHER,) */
    float *share;                 /* the same times P, for CVB0 and GIBBS: of a word's topics */
    int32_t *topic;               /* of each word of the document with the most, for GIBBS */
} room_t;

#define LOOPS "lda_loops.h"
#include "every_isa.h"

/* Local steps of the n documents `rows`. gamma (documents, K), read unless cold, and written. sums (V, P) and, with
 * numbers, numbered (V, P): added to. Iterations in all. */
static inline int64_t lda_pass(const documents_t *d, const int64_t *rows, int64_t n, const double *numbers, float *gamma,
                               double *sums, double *numbered, room_t *room) {
    return DISPATCH(lda_pass, d, rows, n, numbers, gamma, sums, numbered, room);
}

/* weight (P,) of exp(psi(x)) times scale, for each of n words, up to a factor a word */
static inline void lda_weights(const double *lambda, const float *scale, int64_t K, int64_t P, const int64_t *words,
                               int64_t n, int linear, float *weight, room_t *room) {
    DISPATCH(lda_weights, lambda, scale, K, P, words, n, linear, weight, room);
}

/* sum over the entries of documents first..last-1 of count * log sum_k theta_dk beta_wk; theta, beta padded with 0 */
static inline double lda_log(const int64_t *starts, const int32_t *words, const float *counts, int64_t first,
                             int64_t last, const double *theta, const double *beta, int64_t P) {
    return DISPATCH(lda_log, starts, words, counts, first, last, theta, beta, P);
}
#endif
