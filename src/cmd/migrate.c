/* `fantail migrate`: shows a store's schema version, and upgrades it to this program's.
 *
 * Opening a store does the same, so a server does not need this command. An operator of many nodes
 * uses it to take the step once, before the first new node starts. A step keeps everything that the
 * previous version uses, so its nodes continue meanwhile. In PostgreSQL the step is one transaction
 * under an advisory lock; a data folder is locked against its server. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "cmd/command.h"
#include "db/postgres.h"
#include "db/sqlite.h"
#include "node/drivers.h"
#include "node/runtime.h"
#include "ops/lock.h"

struct place {
    const struct settings *settings;
    char name[PATH_MAX]; /* for people: never a password */
    char path[PATH_MAX]; /* of the embedded store */
    bool shared;
};

static enum err look(const struct place *p, int *present, int *wanted, char detail[TX_DETAIL_MAX])
{
    detail[0] = '\0';
    if (!p->shared)
        return db_sqlite_schema(p->path, present, wanted, detail);
    struct postgres_config config;
    postgres_config_default(&config);
    config.url = p->settings->db;
    return db_postgres_schema(&config, present, wanted, detail);
}

static int fail_with(const struct invocation *in, enum err e, const char *detail)
{
    return command_fail(in, "%s", detail[0] ? detail : err_title(e));
}

static int bring_up(struct invocation *in, const struct place *p)
{
    struct id_gen ids;
    struct db *db;
    char why[DRIVERS_WHY_MAX] = "";
    id_gen_init(&ids, clock_system(), 0);
    enum err e = drivers_open_store(p->settings, 1, &ids, clock_system(), &db, why);
    if (e)
        return fail_with(in, e, why);
    db_stop(db);
    db_free(db);
    return EXIT_DONE;
}

static int migrate(struct invocation *in, const struct place *p)
{
    int present = 0, wanted = 0;
    char detail[TX_DETAIL_MAX];
    enum err e = look(p, &present, &wanted, detail);
    if (e)
        return fail_with(in, e, detail);
    if (present > wanted)
        return command_fail(in,
                            "%s has schema %d and this program knows %d: a newer version "
                            "wrote it; use that version",
                            p->name, present, wanted);
    if (present == wanted) {
        printf("%s has schema %d: nothing to do\n", p->name, present);
        return EXIT_DONE;
    }
    if (invocation_has(in, "check")) {
        if (present == 0)
            printf("%s has no tables yet; this program makes schema %d\n", p->name, wanted);
        else
            printf("%s has schema %d; this program brings it to %d\n", p->name, present, wanted);
        return EXIT_FAILED;
    }
    int code = bring_up(in, p);
    if (code != EXIT_DONE)
        return code;
    if (present == 0)
        printf("%s: made the tables of schema %d\n", p->name, wanted);
    else
        printf("%s: brought from schema %d to %d\n", p->name, present, wanted);
    return EXIT_DONE;
}

static int run(struct invocation *in)
{
    struct place p = {.settings = &in->settings, .shared = drivers_are_shared(&in->settings)};
    if (p.shared) {
        snprintf(p.name, sizeof p.name, "the PostgreSQL store");
        return migrate(in, &p);
    }
    snprintf(p.name, sizeof p.name, "%s", in->settings.data);
    if (!command_path(in, in->settings.data, STORE_FILE, p.path))
        return EXIT_FAILED;
    if (invocation_has(in, "check"))
        return migrate(in, &p);
    struct data_lock lock;
    char why[300];
    if (data_lock_take(&lock, in->settings.data, why))
        return command_fail(in, "%s", why);
    int code = migrate(in, &p);
    data_lock_release(&lock);
    return code;
}

const struct command command_migrate = {
    .name = "migrate",
    .arguments = "",
    .summary = "bring a store's tables to this version",
    .about =
        "Shows which schema the store has and brings it to this program's. A server does that "
        "when it starts; with many nodes, do it once, before the first new one. It leaves what "
        "the version before uses, so nodes of that version go on meanwhile. A program that is "
        "older than a store refuses it.",
    .examples = "  fantail migrate --check\n  fantail migrate --db postgresql://fantail@db/fantail",
    .options = {{"check", NULL, "change nothing; exit code 1 when there is something to do"}},
    .run = run,
};
