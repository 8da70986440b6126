/* All the Firefly loops for one instruction set (every_isa.h). */
#include "lanes.h"
#include "gaps.h"
#include "rows.h"
#include "lights.h"
#undef eight_t
#undef EACH_LANE
#undef LANES
#undef LOOSE
#undef vh_loose
#undef WIDE
#undef SHUFFLE
#include "lanes_end.h"
