/* The loops of a pruned pass for one instruction set (every_isa.h). */
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
#include "anchors.h"
#include "pruning.h"
#include "lanes_end.h"
#undef MB_TILE
