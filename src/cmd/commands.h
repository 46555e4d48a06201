/* Every command of the program. */
#pragma once

#include "cmd/command.h"

extern const struct command command_serve;
extern const struct command command_demo;
extern const struct command command_status;
extern const struct command command_plan;
extern const struct command command_check;
extern const struct command command_explain;
extern const struct command command_event;
extern const struct command command_dead;
extern const struct command command_replay;
extern const struct command command_rebuild;
extern const struct command command_key;
extern const struct command command_backup;
extern const struct command command_restore;
extern const struct command command_migrate;
extern const struct command command_copy;
extern const struct command command_import;
extern const struct command command_bench;
extern const struct command command_config;
extern const struct command command_version;
