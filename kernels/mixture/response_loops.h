/* The loops over rows of an outcome for one instruction set (every_isa.h). */
#include "lanes.h"
#include "response.h"
#include "response_rows.h"
#include "lanes_end.h"
