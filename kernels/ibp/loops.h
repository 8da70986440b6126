/* The loops of the Indian buffet process for one instruction set (every_isa.h). */
#include "lanes.h"
typedef uint64_t FN(vul_loose) __attribute__((vector_size(MB_BYTES), aligned(8), may_alias));
#include "sweep.h"
#include "lanes_end.h"
