/* Looks things up in the table of error kinds. The table in err.h is the only place that knows an
 * error's class, status and text; everything here is generated from it. */
#include "base/err.h"

#include <stddef.h>

#include "base/check.h"
#include "base/str.h"

static const struct {
    const char *name;
    const char *title;
    int http_status;
    enum err_class class;
} kinds[] = {
#define ERR_ROW(name, class, http, title) [ERR_##name] = {#name, title, http, ERR_CLASS_##class},
    ERR_TABLE(ERR_ROW)
#undef ERR_ROW
};

static size_t row(enum err e)
{
    CHECK((size_t)e < ERR_COUNT);
    return (size_t)e;
}

const char *err_name(enum err e)
{
    return kinds[row(e)].name;
}

void err_code(enum err e, char out[ERR_CODE_MAX])
{
    const char *name = err_name(e);
    size_t n = 0;
    for (; name[n]; n++) {
        CHECK(n + 1 < ERR_CODE_MAX);
        out[n] = name[n] == '_' ? '_' : (char)(name[n] - 'A' + 'a');
    }
    out[n] = '\0';
}

const char *err_title(enum err e)
{
    return kinds[row(e)].title;
}

int err_http_status(enum err e)
{
    return kinds[row(e)].http_status;
}

enum err_class err_class(enum err e)
{
    return kinds[row(e)].class;
}

static _Thread_local char cause[ERR_CAUSE_MAX];

void err_cause_clear(void)
{
    cause[0] = '\0';
}

void err_cause_set(const char *words)
{
    if (words[0])
        str_copy(cause, sizeof cause, str_of(words));
}

const char *err_cause(void)
{
    return cause;
}
