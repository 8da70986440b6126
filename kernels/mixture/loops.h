/* All the mixture loops for one instruction set (every_isa.h). MB_TILE: clusters whose sums are held in registers. */
#if MB_BYTES == 16
#define MB_TILE 32
#else
#define MB_TILE 64
#endif
#include "lanes.h"
#include "cells.h"
#include "vectors.h"
#include "spells.h"
#include "numbers.h"
#include "scores.h"
#include "draw.h"
#include "vectors_tail.h"
#include "tail.h"
#include "anchors.h"
#include "known.h"
#include "response.h"
#include "take.h"
#include "sweep.h"
#include "runs.h"
#include "moments.h"
#include "lanes_end.h"
#undef MB_TILE
