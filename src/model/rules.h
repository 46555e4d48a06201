/* The fan-out table of the domain. */
#pragma once

#include "port/rule.h"

extern const struct rule model_rules[];
extern const size_t model_rule_count;
