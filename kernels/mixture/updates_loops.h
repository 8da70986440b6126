/* All the loops of the global update for one instruction set (every_isa.h). */
#include "lanes.h"
typedef uint64_t FN(vul_loose) __attribute__((vector_size(MB_BYTES), aligned(8), may_alias)); /* at any address */
#include "gammas.h"
#include "dirichlet.h"
#include "fill.h"
#include "grids.h"
#include "lines.h"
#include "lanes_end.h"
