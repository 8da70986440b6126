/* Compiles the loops of one header for every instruction set of this processor family:
 *
 *     #define LOOPS "loops.h"
 *     #include "every_isa.h"
 *
 * LOOPS is included with vectors of 16, 32 and 64 bytes (MB_BYTES), and writes its names as FN(name), which adds the
 * set's suffix. DISPATCH(name, ...) of isa.h calls the one in use. All give the same bits (lanes.h), so the choice
 * affects only speed.
 */
#include "isa.h"

#define FN(name) name##_baseline
#define MB_BYTES 16
#include LOOPS
#undef FN
#undef MB_BYTES

#ifdef MPIBAYES_MANY_ISAS
#pragma GCC push_options
#pragma GCC target("avx2")
#define FN(name) name##_avx2
#define MB_BYTES 32
#include LOOPS
#undef FN
#undef MB_BYTES
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq")
#define FN(name) name##_avx512
#define MB_BYTES 64
#include LOOPS
#undef FN
#undef MB_BYTES
#pragma GCC pop_options
#endif
#undef LOOPS
