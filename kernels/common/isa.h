/* The instruction set in use, and the dispatch to loops compiled for each (every_isa.h). Compilers without GCC's target
 * pragma, and other processors, have only the baseline.
 */
#ifndef MPIBAYES_ISA_H
#define MPIBAYES_ISA_H

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define MPIBAYES_MANY_ISAS 1
#endif

enum { ISA_BASELINE = 0, ISA_AVX2 = 1, ISA_AVX512 = 2 };
static int kernel_isa __attribute__((unused)) = ISA_BASELINE; /* a module sets its own, to machine.ISA_NUMBER */

static inline int widest_isa(void) {
#ifdef MPIBAYES_MANY_ISAS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512dq"))
        return ISA_AVX512;
    if (__builtin_cpu_supports("avx2")) return ISA_AVX2;
#endif
    return ISA_BASELINE;
}

#ifdef MPIBAYES_MANY_ISAS
#define DISPATCH(name, ...)                                                                                            \
    (kernel_isa == ISA_AVX512 ? name##_avx512(__VA_ARGS__)                                                             \
     : kernel_isa == ISA_AVX2 ? name##_avx2(__VA_ARGS__)                                                               \
                              : name##_baseline(__VA_ARGS__))
#else
#define DISPATCH(name, ...) name##_baseline(__VA_ARGS__)
#endif
#endif
