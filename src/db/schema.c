/* What both drivers ask of the schema. The steps and tables themselves are made at build time. */
#include "db/schema.h"

#include <stdio.h>
#include <string.h>

int schema_version(void)
{
    return schema_steps[schema_step_count - 1].to;
}

enum err schema_first_step(const char *store, int64_t version, const struct schema_step *steps,
                           size_t n, size_t *first, char detail[TX_DETAIL_MAX])
{
    int known = steps[n - 1].to;
    *first = 0;
    while (*first < n && steps[*first].to <= version)
        ++*first;
    if (version > known)
        snprintf(detail, TX_DETAIL_MAX,
                 "%.100s was written by a newer version (schema %lld, this program knows %d)",
                 store, (long long)version, known);
    else if (*first < n && steps[*first].to != version + 1)
        snprintf(detail, TX_DETAIL_MAX, "%.100s has schema %lld and no step leads from there to %d",
                 store, (long long)version, known);
    else
        return OK;
    return ERR_STORAGE_FAILED;
}

bool schema_has_column(const struct schema_table *t, const char *name)
{
    for (size_t i = 0; i < t->column_count; i++)
        if (strcmp(t->columns[i].name, name) == 0)
            return true;
    return false;
}
