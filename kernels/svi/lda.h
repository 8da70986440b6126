/* Local step of latent Dirichlet allocation, document by document: loops for every instruction set. */
#ifndef MPIBAYES_SVI_LDA_H
#define MPIBAYES_SVI_LDA_H
#include <stdint.h>
#include "philox.h"
#include "special.h"

enum { WIDE = 16, TOGETHER = 8 };       /* topics are padded to a multiple of WIDE; words go TOGETHER */
enum { VB = 0, LINEAR = 1, CVB0 = 2, GIBBS = 3 }; /* local steps */

typedef struct { /* documents, and the inputs of their local step */
    int64_t K, P;          /* topics; padded */
    const int64_t *starts; /* starts of the documents' entries */
    const int32_t *words;
    const float *counts;
    const float *weight; /* (V, P): weights of words in topics, 0 in padding */
    const float *alpha;  /* (P,), 0 in padding */
    int local, cold, most; /* kind of step; 1 to start afresh; most iterations, or sweeps of GIBBS */
    float tolerance;
    double rounder[2]; /* 1.5 * 2^52 times the unit of `sums`, and of `numbered` */
    uint64_t seed, cycle, chain; /* key of the streams of GIBBS, one per document */
    int64_t number;              /* number of the first document in the table */
} documents_t;

typedef struct { /* scratch, at multiples of 64 bytes */
    float *gamma, *theta, *found; /* (P,) */
    float *ratio;                 /* (longest document + TOGETHER,) */
    float *share;                 /* the same times P, for CVB0 and GIBBS: a word's shares of topics */
    int32_t *topic;               /* topic of each word, up to the longest document, for GIBBS */
} room_t;

#define LOOPS "lda_loops.h"
#include "every_isa.h"

/* Local steps of the n documents `rows`. gamma (documents, K) is read unless cold, and written. sums (V, P) and, with
 * numbers, numbered (V, P) are added to. Returns the total number of iterations. */
static inline int64_t lda_pass(const documents_t *d, const int64_t *rows, int64_t n, const double *numbers, float *gamma,
                               double *sums, double *numbered, room_t *room) {
    return DISPATCH(lda_pass, d, rows, n, numbers, gamma, sums, numbered, room);
}

/* weight (P,): exp(psi(x)) times scale, for each of n words, up to a factor per word */
static inline void lda_weights(const double *lambda, const float *scale, int64_t K, int64_t P, const int64_t *words,
                               int64_t n, int linear, float *weight, room_t *room) {
    DISPATCH(lda_weights, lambda, scale, K, P, words, n, linear, weight, room);
}

/* sum over entries of documents first..last-1 of count * log sum_k theta_dk beta_wk; theta, beta padded with 0 */
static inline double lda_log(const int64_t *starts, const int32_t *words, const float *counts, int64_t first,
                             int64_t last, const double *theta, const double *beta, int64_t P) {
    return DISPATCH(lda_log, starts, words, counts, first, last, theta, beta, P);
}
#endif
