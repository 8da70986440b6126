/* All the loops of the global update for one instruction set; updates.h defines FN (the suffix of names) and MB_BYTES
 * (bytes in a vector). */
#include "lanes.h"
typedef uint64_t FN(vul_loose) __attribute__((vector_size(MB_BYTES), aligned(8), may_alias)); /* at any address */
#include "gammas.h"
#include "dirichlet.h"
#include "lanes_end.h"
