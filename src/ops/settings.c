/* Reads the settings table from flags, environment and file.
 *
 * Each setting is kept twice: parsed, in its own field, and as written (`given`), with its source,
 * so that `fantail config` can show exactly what the operator typed. TEXT fields point into
 * `given`, or at the table's default. Sources are read from the weakest to the strongest, so that a
 * later one replaces an earlier one; the data folder and the file's name are looked up first,
 * because they say which file to read.
 *
 * Every message names the setting, the value, its source and the allowed values: an operator reads
 * it when a server does not start. */
#include "ops/settings.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "ops/nearest.h"

extern char **environ;

enum { WHY_MAX = 300, FILE_MAX = 256 * 1024, PATH_TEXT_MAX = 4096, NUMBER_TEXT_MAX = 32 };

struct setting {
    const char *name;
    enum setting_kind kind;
    const char *standard; /* its default */
    int64_t min, max;
    const char *help;
    size_t offset; /* of its field in struct settings */
};

#define FIELD_NAME_TEXT(id)    id
#define FIELD_NAME_URL(id)     id
#define FIELD_NAME_FOLDER(id)  id
#define FIELD_NAME_ADDRESS(id) id
#define FIELD_NAME_LEVEL(id)   id
#define FIELD_NAME_SWITCH(id)  id
#define FIELD_NAME_NUMBER(id)  id
#define FIELD_NAME_SPAN(id)    id##_ms
#define FIELD_NAME_SIZE(id)    id##_bytes
#define SETTING_ROW(id, name, kind, def, min, max, help)                                           \
    {name, SETTING_##kind, def, min, max, help, offsetof(struct settings, FIELD_NAME_##kind(id))},

static const struct setting table[SETTING_COUNT] = {SETTINGS_TABLE(SETTING_ROW)};

#define RENAMED_ROW(old_name, id) {old_name, SETTING_ID_##id},
static const struct {
    const char *old_name;
    enum setting_id setting;
} renamed[] = {SETTINGS_RENAMED(RENAMED_ROW)};

/* ---- one value ---- */

struct unit {
    const char *suffix;
    int64_t factor;
};

static const struct unit span_units[] = {{"ms", 1},      {"s", 1000},     {"m", 60000},
                                         {"h", 3600000}, {"d", 86400000}, {NULL, 0}};
static const struct unit size_units[] = {{"", 1},
                                         {"K", INT64_C(1) << 10},
                                         {"M", INT64_C(1) << 20},
                                         {"G", INT64_C(1) << 30},
                                         {"T", INT64_C(1) << 40},
                                         {NULL, 0}};
static const struct unit no_units[] = {{"", 1}, {NULL, 0}};

/* A whole number and one of the units; spans may also be a bare 0. */
static bool parse_amount(const char *text, const struct unit *units, int64_t *out)
{
    size_t digits = strspn(text, "0123456789");
    int64_t number;
    if (digits == 0 || !str_parse_i64((struct str){text, digits}, &number))
        return false;
    if (number == 0 && text[digits] == '\0') {
        *out = 0;
        return true;
    }
    for (const struct unit *u = units; u->suffix; u++) {
        bool same = units == size_units ? strcasecmp(text + digits, u->suffix) == 0
                                        : strcmp(text + digits, u->suffix) == 0;
        if (same)
            return !__builtin_mul_overflow(number, u->factor, out);
    }
    return false;
}

bool settings_parse_span(const char *text, int64_t *ms)
{
    return parse_amount(text, span_units, ms);
}

static const struct unit *units_of(enum setting_kind kind)
{
    return kind == SETTING_SPAN ? span_units : kind == SETTING_SIZE ? size_units : no_units;
}

/* A bound, written the way that a person would write the value. */
static void print_amount(int64_t value, enum setting_kind kind, char out[NUMBER_TEXT_MAX])
{
    const struct unit *units = units_of(kind), *best = units;
    for (const struct unit *u = units; u->suffix; u++)
        if (value != 0 && value % u->factor == 0)
            best = u;
    snprintf(out, NUMBER_TEXT_MAX, "%lld%s", (long long)(value / best->factor),
             value == 0 ? "" : best->suffix);
}

static const char *const kind_wants[] = {
    [SETTING_TEXT] = "text",
    [SETTING_URL] = "a URL",
    [SETTING_FOLDER] = "a folder",
    [SETTING_ADDRESS] = "HOST:PORT, such as 127.0.0.1:8080",
    [SETTING_LEVEL] = "debug, info, warn or error",
    [SETTING_SWITCH] = "on or off",
    [SETTING_NUMBER] = "a whole number",
    [SETTING_SPAN] = "a time such as 30d, 12h, 5m, 10s or 250ms",
    [SETTING_SIZE] = "a size such as 64M or 2G",
};

/* Whether the value is of its kind. *number: of kinds that are not text. */
static bool parse_value(const struct setting *t, const char *value, int64_t *number)
{
    enum log_level level;
    char host[256];
    uint16_t port;
    switch (t->kind) {
    case SETTING_TEXT:
    case SETTING_URL:
        return true;
    case SETTING_FOLDER:
        return value[0] != '\0';
    case SETTING_ADDRESS:
        return settings_split_address(value, host, &port);
    case SETTING_LEVEL:
        return log_level_parse(str_of(value), &level);
    case SETTING_SWITCH:
        *number = strcmp(value, "on") == 0;
        return *number || strcmp(value, "off") == 0;
    default:
        return parse_amount(value, units_of(t->kind), number);
    }
}

static enum err check_value(const struct setting *t, const char *value, const char *where,
                            int64_t *number, char *why)
{
    if (!parse_value(t, value, number)) {
        snprintf(why, WHY_MAX, "%s: '%.80s' (from %s) is not %s", t->name, value, where,
                 kind_wants[t->kind]);
        return ERR_INVALID;
    }
    if (t->max > 0 && (*number < t->min || *number > t->max)) {
        char low[NUMBER_TEXT_MAX], high[NUMBER_TEXT_MAX];
        print_amount(t->min, t->kind, low);
        print_amount(t->max, t->kind, high);
        snprintf(why, WHY_MAX, "%s: '%.80s' (from %s) is out of range: %s to %s", t->name, value,
                 where, low, high);
        return ERR_INVALID;
    }
    return OK;
}

static enum err set_value(struct settings *s, size_t i, const char *value, enum setting_source from,
                          const char *where, char *why)
{
    const struct setting *t = &table[i];
    int64_t number = 0;
    TRY(check_value(t, value, where, &number, why));
    char *copy = strdup(value);
    CHECK(copy);
    free(s->given[i]);
    s->given[i] = copy;
    s->from[i] = from;
    const char *text = copy;
    bool on = number != 0;
    if (t->kind == SETTING_SWITCH)
        memcpy((char *)s + t->offset, &on, sizeof(on));
    else if (t->kind >= SETTING_NUMBER)
        memcpy((char *)s + t->offset, &number, sizeof(number));
    else
        memcpy((char *)s + t->offset, &text, sizeof(text));
    return OK;
}

/* By its name or by an older one. SETTING_COUNT: unknown. */
static size_t find_setting(struct str name)
{
    for (size_t i = 0; i < SETTING_COUNT; i++)
        if (str_eq(name, str_of(table[i].name)))
            return i;
    for (size_t i = 0; i < COUNT_OF(renamed); i++)
        if (str_eq(name, str_of(renamed[i].old_name)))
            return renamed[i].setting;
    return SETTING_COUNT;
}

static void warn_of_old_name(struct str given, size_t i, const char *where)
{
    if (!str_eq(given, str_of(table[i].name)))
        log_warn("a setting was given by its old name, which the next version will refuse",
                 LOG_STR("old", given), LOG_CSTR("name", table[i].name), LOG_CSTR("from", where));
}

void settings_default(struct settings *s)
{
    memset(s, 0, sizeof(*s));
    char why[WHY_MAX];
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        enum err e = set_value(s, i, table[i].standard, FROM_DEFAULT, "the defaults", why);
        CHECK(e == OK);
    }
}

void settings_done(struct settings *s)
{
    for (size_t i = 0; i < SETTING_COUNT; i++)
        free(s->given[i]);
    free(s->file);
    memset(s, 0, sizeof(*s));
}

/* ---- flags ---- */

/* One argument read as a flag: which setting, and its value (in the same or in the next argument).
 */
struct flag {
    size_t setting; /* SETTING_COUNT: not a setting */
    struct str name;
    bool config; /* --config FILE */
    const char *value;
    int used; /* arguments */
};

static enum err read_flag(char **argv, int left, struct flag *out, char *why)
{
    *out = (struct flag){.setting = SETTING_COUNT, .used = 1};
    if (strncmp(argv[0], "--", 2) != 0 || argv[0][2] == '\0')
        return OK;
    const char *text = argv[0] + 2;
    struct str name = {text, strcspn(text, "=")};
    out->name = name;
    out->config = str_eq(name, STR("config"));
    out->setting = find_setting(name);
    if (!out->config && out->setting == SETTING_COUNT)
        return OK;
    if (text[name.len] == '=') {
        out->value = text + name.len + 1;
        return OK;
    }
    if (left < 2) {
        snprintf(why, WHY_MAX, "--%.*s needs a value", STR_ARG(name));
        return ERR_INVALID;
    }
    out->value = argv[1];
    out->used = 2;
    return OK;
}

/* Walks argv; keeps the settings (`s` not NULL) or only finds --data and --config. Everything after
 * a bare "--" belongs to the command. */
static enum err read_flags(struct settings *s, int argc, char **argv, char **rest, int *rest_count,
                           const char **data, const char **config, char *why)
{
    int kept = 0;
    bool ended = false;
    for (int i = 0; i < argc;) {
        struct flag f = {.setting = SETTING_COUNT, .used = 1};
        ended = ended || strcmp(argv[i], "--") == 0;
        enum err e = ended ? OK : read_flag(argv + i, argc - i, &f, why);
        if (e)
            return e;
        if (f.config)
            *config = f.value;
        else if (f.setting == SETTING_ID_data)
            *data = f.value;
        if (s && f.setting < SETTING_COUNT) {
            warn_of_old_name(f.name, f.setting, "the command line");
            e = set_value(s, f.setting, f.value, FROM_FLAG, "the command line", why);
        }
        if (e)
            return e;
        if (!f.config && f.setting == SETTING_COUNT)
            rest[kept++] = argv[i];
        i += f.used;
    }
    rest[kept] = NULL;
    *rest_count = kept;
    return OK;
}

/* ---- environment ---- */

static void variable_name(const char *setting, char *out, size_t size)
{
    snprintf(out, size, "FANTAIL_%s", setting);
    for (char *p = out; *p; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
}

static enum err read_variable(struct settings *s, size_t i, const char *name, char *why)
{
    char variable[64];
    variable_name(name, variable, sizeof(variable));
    const char *value = getenv(variable);
    if (!value)
        return OK;
    warn_of_old_name(str_of(name), i, variable);
    return set_value(s, i, value, FROM_ENVIRONMENT, variable, why);
}

/* Old names first: where both are set, the present name counts. */
static enum err read_environment(struct settings *s, char *why)
{
    for (size_t i = 0; i < COUNT_OF(renamed); i++)
        TRY(read_variable(s, renamed[i].setting, renamed[i].old_name, why));
    for (size_t i = 0; i < SETTING_COUNT; i++)
        TRY(read_variable(s, i, table[i].name, why));
    return OK;
}

static bool names_variable(const char *setting, struct str variable)
{
    char name[64];
    variable_name(setting, name, sizeof(name));
    return str_eq(variable, str_of(name));
}

void settings_unknown_environment(void (*visit)(void *ctx, const char *variable), void *ctx)
{
    for (char **entry = environ; entry && *entry; entry++) {
        struct str rest = str_of(*entry), name;
        if (!str_starts(rest, STR("FANTAIL_")) || !str_split(&rest, '=', &name))
            continue;
        bool known = str_eq(name, STR("FANTAIL_FAULT")) || str_eq(name, STR("FANTAIL_FAIL")) ||
                     str_eq(name, STR("FANTAIL_CONFIG"));
        for (size_t i = 0; i < SETTING_COUNT && !known; i++)
            known = names_variable(table[i].name, name);
        for (size_t i = 0; i < COUNT_OF(renamed) && !known; i++)
            known = names_variable(renamed[i].old_name, name);
        if (known)
            continue;
        char shown[100];
        snprintf(shown, sizeof(shown), "%.*s", STR_ARG(name));
        visit(ctx, shown);
    }
}

/* ---- file ---- */

static enum err read_line(struct settings *s, struct str line, const char *path, unsigned number,
                          bool found_by_data, char *why)
{
    line = str_trim(line);
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line = str_trim((struct str){line.ptr, line.len - 1});
    if (line.len == 0 || line.ptr[0] == '#')
        return OK;
    char where[160];
    snprintf(where, sizeof(where), "%.120s line %u", path, number);
    struct str value = line, name;
    if (!memchr(line.ptr, '=', line.len) || !str_split(&value, '=', &name)) {
        snprintf(why, WHY_MAX, "%s: '%.*s' is not NAME = VALUE", where,
                 (int)(line.len < 60 ? line.len : 60), line.ptr);
        settings_hide_passwords(why);
        return ERR_INVALID;
    }
    name = str_trim(name);
    value = str_trim(value);
    size_t i = find_setting(name);
    if (i == SETTING_COUNT) {
        char typed[64];
        const char *names[SETTING_COUNT];
        for (size_t k = 0; k < SETTING_COUNT; k++)
            names[k] = table[k].name;
        snprintf(typed, sizeof(typed), "%.*s", STR_ARG(name));
        const char *near = nearest_word(typed, names, SETTING_COUNT);
        snprintf(why, WHY_MAX, "%s: there is no setting '%s'%s%s%s", where, typed,
                 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
        return ERR_INVALID;
    }
    if (i == SETTING_ID_data && found_by_data) {
        snprintf(why, WHY_MAX, "%s: 'data' cannot be set in the data folder's own file", where);
        return ERR_INVALID;
    }
    char text[PATH_TEXT_MAX];
    if (value.len >= sizeof(text) || memchr(value.ptr, '\0', value.len)) {
        snprintf(why, WHY_MAX, "%s: the value of '%s' is not plain text of at most %d bytes", where,
                 table[i].name, PATH_TEXT_MAX - 1);
        return ERR_INVALID;
    }
    memcpy(text, value.ptr, value.len);
    text[value.len] = '\0';
    warn_of_old_name(name, i, where);
    return set_value(s, i, text, FROM_FILE, where, why);
}

/* A missing file is an error only when it was asked for. */
static enum err read_file(struct settings *s, const char *path, bool asked_for, char *why)
{
    FILE *f = fopen(path, "re");
    if (!f && (errno == ENOENT || errno == ENOTDIR) && !asked_for)
        return OK;
    char *text = f ? malloc(FILE_MAX) : NULL;
    size_t len = text ? fread(text, 1, FILE_MAX, f) : 0;
    if (!f || !text || ferror(f)) {
        snprintf(why, WHY_MAX, "cannot read the settings file %.150s: %s", path, strerror(errno));
        free(text);
        if (f)
            fclose(f);
        return ERR_UNAVAILABLE;
    }
    fclose(f);
    enum err e = OK;
    if (len == FILE_MAX) {
        snprintf(why, WHY_MAX, "the settings file %.150s is larger than %d KiB", path,
                 FILE_MAX / 1024);
        e = ERR_TOO_LARGE;
    }
    struct str rest = {text, len}, line;
    for (unsigned number = 1; !e && str_split(&rest, '\n', &line); number++)
        e = read_line(s, line, path, number, !asked_for, why);
    free(text);
    if (!e)
        s->file = strdup(path);
    return e;
}

/* ---- URLs, which may hold passwords ---- */

/* Replaces [from, to) by "*"; the text becomes shorter, and what is left over is wiped. */
static void hide(char *from, char *to)
{
    size_t rest = strlen(to) + 1, hidden = (size_t)(to - from);
    if (hidden == 0)
        return;
    *from = '*';
    memmove(from + 1, to, rest);
    memset(from + 1 + rest, 0, hidden - 1);
}

/* A password may hold any sign that should have been encoded: it reaches to the last '@'. */
static void hide_in_authority(char *authority)
{
    size_t len = strcspn(authority, " ?'\"");
    char *at = memrchr(authority, '@', len);
    char *colon = at ? memchr(authority, ':', (size_t)(at - authority)) : NULL;
    if (colon)
        hide(colon + 1, at);
}

void settings_hide_passwords(char *text)
{
    static const char member[] = "password=";
    for (char *p = text; (p = strstr(p, "://")); p += 3)
        hide_in_authority(p + 3);
    if (!strstr(text, "://"))
        return;
    for (char *p = text; (p = strcasestr(p, member)); p += sizeof member - 1)
        hide(p + sizeof member - 1,
             p + sizeof member - 1 + strcspn(p + sizeof member - 1, "& '\""));
}

void settings_shown(const struct settings *s, enum setting_id id, char *out, size_t size)
{
    snprintf(out, size, "%s", s->given[id]);
    if (table[id].kind == SETTING_URL)
        settings_hide_passwords(out);
}

/* Reads the URL of a setting out of the file that another one names. */
static enum err read_url_file(struct settings *s, enum setting_id url, enum setting_id file,
                              char *why)
{
    const char *path = s->given[file];
    char text[PATH_TEXT_MAX];
    if (!path[0])
        return OK;
    if (s->given[url][0]) {
        snprintf(why, WHY_MAX, "%s and %s are both given: leave one out", table[url].name,
                 table[file].name);
        return ERR_INVALID;
    }
    FILE *f = fopen(path, "re");
    size_t len = f ? fread(text, 1, sizeof(text), f) : 0;
    if (!f || ferror(f) || len == sizeof(text)) {
        snprintf(why, WHY_MAX, "%s: cannot read %.150s: %s", table[file].name, path,
                 f && len == sizeof(text) ? "it is too large for a URL" : strerror(errno));
        if (f)
            fclose(f);
        return ERR_INVALID;
    }
    fclose(f);
    struct str line = {text, len};
    while (line.len > 0 && isspace((unsigned char)line.ptr[line.len - 1]))
        line.len--;
    text[line.len] = '\0';
    if (line.len == 0 || strlen(text) != line.len || strpbrk(text, "\r\n")) {
        snprintf(why, WHY_MAX, "%s: %.150s does not hold one line with a URL", table[file].name,
                 path);
        return ERR_INVALID;
    }
    return set_value(s, url, text, s->from[file], path, why);
}

static enum err read_url_files(struct settings *s, char *why)
{
    TRY(read_url_file(s, SETTING_ID_db, SETTING_ID_db_file, why));
    TRY(read_url_file(s, SETTING_ID_views, SETTING_ID_views_file, why));
    return read_url_file(s, SETTING_ID_bus, SETTING_ID_bus_file, why);
}

/* ---- all of it ---- */

static enum err check_together(const struct settings *s, char *why)
{
    if (s->celebrity_adaptive && s->celebrity_min > s->celebrity_max) {
        snprintf(why, WHY_MAX, "celebrity-min (%lld) is above celebrity-max (%lld)",
                 (long long)s->celebrity_min, (long long)s->celebrity_max);
        return ERR_INVALID;
    }
    return OK;
}

enum err settings_load(struct settings *s, int argc, char **argv, char **rest, int *rest_count,
                       char why[WHY_MAX])
{
    settings_default(s);
    why[0] = '\0';
    const char *data = NULL, *config = NULL;
    enum err e = read_flags(NULL, argc, argv, rest, rest_count, &data, &config, why);
    if (!e && !config)
        config = getenv("FANTAIL_CONFIG");
    if (!e && !data)
        data = getenv("FANTAIL_DATA");
    if (!e && config) {
        e = read_file(s, config, true, why);
    } else if (!e) {
        char path[PATH_TEXT_MAX];
        snprintf(path, sizeof(path), "%s/fantail.conf", data ? data : s->data);
        e = read_file(s, path, false, why);
    }
    if (!e)
        e = read_environment(s, why);
    if (!e)
        e = read_flags(s, argc, argv, rest, rest_count, &data, &config, why);
    if (!e)
        e = read_url_files(s, why);
    if (!e)
        e = check_together(s, why);
    if (e)
        settings_done(s);
    return e;
}

const char *settings_name(enum setting_id id)
{
    return table[id].name;
}

const char *settings_help(enum setting_id id)
{
    return table[id].help;
}

bool settings_split_address(const char *address, char host[256], uint16_t *port)
{
    const char *colon = strrchr(address, ':');
    if (!colon)
        return false;
    uint64_t number;
    if (!str_parse_u64(str_of(colon + 1), &number) || number > 65535)
        return false;
    struct str name = {address, (size_t)(colon - address)};
    if (name.len >= 2 && name.ptr[0] == '[' && name.ptr[name.len - 1] == ']')
        name = (struct str){name.ptr + 1, name.len - 2};
    else if (name.len > 0 && memchr(name.ptr, ':', name.len))
        return false; /* an IPv6 address without its brackets: where would the port begin? */
    if (name.len == 0)
        name = STR("0.0.0.0");
    if (name.len > 255)
        return false;
    memcpy(host, name.ptr, name.len);
    host[name.len] = '\0';
    *port = (uint16_t)number;
    return true;
}
