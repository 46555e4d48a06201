/* The commands that are no rows of cmd/operator.c. */
#pragma once

#include "cmd/command.h"

extern const struct command command_serve;
extern const struct command command_demo;
extern const struct command command_plan;
extern const struct command command_backup;
extern const struct command command_restore;
extern const struct command command_migrate;
extern const struct command command_copy;
extern const struct command command_import;
extern const struct command command_bench;
extern const struct command command_config;
extern const struct command command_version;
