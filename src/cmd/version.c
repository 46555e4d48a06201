/* `fantail version`. */
#include <stdio.h>

#include "base/fault.h"
#include "cmd/command.h"

#ifdef FANTAIL_FAULTS
static const bool faults_built_in = true;
#else
static const bool faults_built_in = false;
#endif

static int run(struct invocation *in)
{
    if (invocation_has(in, "faults")) {
        if (!faults_built_in)
            return command_fail(in, "this build has no fault points (build with -Dfaults=true)");
        for (int i = 0; i < FAULT_COUNT; i++)
            printf("%s\n", fault_name((enum fault_point)i));
        return EXIT_DONE;
    }
    printf("Fantail " FANTAIL_VERSION "\nfault points: %s\n", faults_built_in ? "on" : "off");
    return EXIT_DONE;
}

const struct command command_version = {
    .name = "version",
    .arguments = "",
    .summary = "print the version and how it was built",
    .about = "Prints the version and the build options.",
    .examples = "  fantail version",
    .options = {{"faults", NULL, "list the fault points of a test build, one per line"}},
    .run = run,
};
