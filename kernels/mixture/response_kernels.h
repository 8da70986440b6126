/* Passes over the rows of an outcome: their loops for every instruction set, and the call of the one in use. */
#ifndef MPIBAYES_RESPONSE_H
#define MPIBAYES_RESPONSE_H
#include "layout.h"
#include "special.h"

#define LOOPS "response_loops.h"
#include "every_isa.h"

static inline void kernel_respond(const response_t *o, const double *y, const double *eta, int64_t n, double *value,
                                  double *slope, double *spread) {
    DISPATCH(respond, o, y, eta, n, value, slope, spread);
}

static inline void kernel_offer(const response_t *o, int64_t n, double *mean) { DISPATCH(offer, o, n, mean); }

static inline void kernel_find_gaps(const response_t *o, const double *y, const double *eta, const double *h,
                                    const double *level, int64_t n, double *gap) {
    DISPATCH(find_gaps, o, y, eta, h, level, n, gap);
}
#endif
