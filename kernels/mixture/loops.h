/* All the loops for one instruction set; mixture.h defines FN (the suffix of names), MB_BYTES (bytes in a vector) and
 * MB_TILE (clusters whose sums are held in registers). */
#include "lanes.h"
#include "cells.h"
#include "vectors.h"
#include "scores.h"
#include "draw.h"
#include "vectors_tail.h"
#include "tail.h"
#include "sweep.h"
#include "moments.h"
#include "lanes_end.h"
