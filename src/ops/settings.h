/* Every setting: its name, type, default, bounds and meaning, in one table. A value comes from a
 * flag (--name), else the environment (FANTAIL_NAME), else the file (name = value), else the
 * default; `fantail config` prints each value in force and its source. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* id, name, kind, default, minimum, maximum, help. A row is all that a setting needs: it makes the
 * field of struct settings, the flag, the variable, the line of the file, the check and the help.
 * Kinds: TEXT, URL (may hold a password, which is never shown), FOLDER (not empty), ADDRESS
 * (HOST:PORT), LEVEL (of the log), SWITCH (on|off), NUMBER, SPAN (ms; written 30d, 12h, 5m, 10s,
 * 250ms), SIZE (bytes; 64M, 2G). Only numbers, spans and sizes have bounds. */
/* clang-format off */
#define SETTINGS_TABLE(X)                                                                        \
    X(data, "data", FOLDER, "./data", 0, 0, "folder of the embedded store")                      \
    X(db, "db", URL, "", 0, 0,                                                                   \
      "database: postgresql://…; empty: the embedded store in the data folder")                  \
    X(db_file, "db-file", TEXT, "", 0, 0, "file that holds the URL of db")                       \
    X(views, "views", URL, "", 0, 0,                                                             \
      "views: redis://… or redis-cluster://…; empty: in memory")                                 \
    X(views_file, "views-file", TEXT, "", 0, 0, "file that holds the URL of views")              \
    X(bus, "bus", URL, "", 0, 0,                                                                 \
      "message bus: amqp://…; empty: in this process")                                           \
    X(bus_file, "bus-file", TEXT, "", 0, 0, "file that holds the URL of bus")                    \
    X(role, "role", TEXT, "api,relay,worker", 0, 0,                                              \
      "what this node of several does: any of api, relay, worker")                               \
    X(advertise, "advertise", TEXT, "", 0, 0,                                                    \
      "HOST:PORT at which other nodes reach this one; empty: what it listens on")                \
    X(listen, "listen", ADDRESS, "127.0.0.1:8080", 0, 0, "HOST:PORT to serve on")                \
    X(loops, "loops", NUMBER, "0", 0, 64, "event-loop threads; 0: one per core")                 \
    X(readers, "readers", NUMBER, "4", 1, 64,                                                    \
      "threads for blocking reads, each with its own connection")                                \
    X(fan_out_workers, "fan-out-workers", NUMBER, "2", 1, 64, "threads that deliver")            \
    X(connections_max, "connections-max", NUMBER, "10000", 1, 1000000,                           \
      "open connections at most")                                                                \
    X(connections_address, "connections-address", NUMBER, "0", 0, 1000000,                       \
      "open connections of one address; 0: a tenth of connections-max, at least 64")             \
    X(trusted_proxy, "trusted-proxy", TEXT, "", 0, 0,                                            \
      "proxies that say for whom they ask (Forwarded, X-Forwarded-For): addresses or networks")  \
    X(log_level, "log-level", LEVEL, "info", 0, 0, "debug, info, warn or error")                 \
    X(sign_up, "sign-up", SWITCH, "on", 0, 0, "let people create accounts themselves")           \
    X(cors_origins, "cors-origins", TEXT, "", 0, 0,                                              \
      "origins that browsers may call from, comma-separated; * for any")                         \
    X(session_life, "session-life", SPAN, "90d", 60000, INT64_C(315360000000),                   \
      "how long an unused session lives")                                                        \
    X(session_age, "session-age", SPAN, "365d", 60000, INT64_C(315360000000),                    \
      "how long a session lives at most, used or not")                                           \
    X(hsts, "hsts", SPAN, "0", 0, INT64_C(315360000000),                                         \
      "max-age of Strict-Transport-Security, behind a proxy that ends TLS; 0: not sent")         \
    X(jwt_key, "jwt-key", TEXT, "", 0, 0,                                                        \
      "accept JWTs: a file with a PEM public key or a JWKS, or hs256:FILE for a secret")         \
    X(jwt_issuer, "jwt-issuer", TEXT, "", 0, 0, "required iss of accepted JWTs")                 \
    X(jwt_audience, "jwt-audience", TEXT, "", 0, 0, "required aud of accepted JWTs")             \
    X(jwt_waive, "jwt-waive", TEXT, "", 0, 0,                                                    \
      "claims that are not required of JWTs: iss, aud or both")                                  \
    X(jwt_return, "jwt-return", SWITCH, "off", 0, 0,                                             \
      "let the sub of a deleted account sign in again, as a new account")                        \
    X(celebrity_threshold, "celebrity-threshold", NUMBER, "10000", 1, 1000000000,                \
      "followers from which an author's posts are pulled instead of pushed")                     \
    X(celebrity_adaptive, "celebrity-adaptive", SWITCH, "on", 0, 0,                              \
      "let the threshold follow measured fan-out time")                                          \
    X(celebrity_min, "celebrity-min", NUMBER, "1000", 1, 1000000000,                             \
      "lower bound of the adaptive threshold")                                                   \
    X(celebrity_max, "celebrity-max", NUMBER, "1000000", 1, 1000000000,                          \
      "upper bound of the adaptive threshold")                                                   \
    X(fan_out_target, "fan-out-target", SPAN, "500ms", 1, 3600000,                               \
      "p95 of fan-out time that the threshold aims at")                                          \
    X(timeline_cap, "timeline-cap", NUMBER, "1000", 10, 100000, "posts kept in a home timeline") \
    X(inactive_after, "inactive-after", SPAN, "30d", 1000, INT64_C(315360000000),                \
      "drop the timeline of an account not active for this long")                                \
    X(active_within, "active-within", SPAN, "7d", 1000, INT64_C(315360000000),                   \
      "large fan-outs serve accounts active within this time first")                             \
    X(group_pull_threshold, "group-pull-threshold", NUMBER, "10000", 0, 1000000000,              \
      "members from which inactive people get a group's messages when they return; 0: never")    \
    X(max_following, "max-following", NUMBER, "10000", 1, 1000000,                               \
      "accounts one person may follow")                                                          \
    X(lane_concurrency, "lane-concurrency", NUMBER, "10", 1, 1000,                               \
      "batches at a time in each feed lane, of all nodes together")                              \
    X(lane_rate, "lane-rate", NUMBER, "0", 0, 1000000,                                           \
      "batches per second in each feed lane, of all nodes together; 0: no limit")                \
    X(cleanup_rate, "cleanup-rate", NUMBER, "400", 1, 1000000,                                   \
      "batches per second of the cleanup lane")                                                  \
    X(snapshot_every, "snapshot-every", SPAN, "5m", 1000, 86400000,                              \
      "how often changed views are saved to disk")                                               \
    X(freshness_targets, "freshness-targets", TEXT, "", 0, 0,                                    \
      "targets of consumers or their events: timelines=3s,backfill:follow.created=10s")          \
    X(audit_every, "audit-every", SPAN, "10s", 100, 86400000,                                    \
      "how often the background audit compares one feed with truth")                             \
    X(card_cache, "card-cache", SIZE, "512M", 1048576, INT64_C(1099511627776),                   \
      "memory for cached posts, authors and likes")                                              \
    X(page_cache, "page-cache", SIZE, "64M", 0, INT64_C(1099511627776),                          \
      "memory for cached first pages of feeds; 0: no cache")                                     \
    X(rate_auth, "rate-auth", NUMBER, "50", 0, 1000000,                                          \
      "sign-ups and log-ins per second and address; 0: no limit")                                \
    X(login_tries, "login-tries", NUMBER, "10", 0, 1000000,                                      \
      "wrong passwords for an account from one address before it must wait; 0: no limit")        \
    X(rate_token, "rate-token", NUMBER, "50", 0, 1000000,                                        \
      "look-ups of unknown tokens per second and address; 0: no limit")                          \
    X(rate_write, "rate-write", NUMBER, "1000", 0, 1000000,                                      \
      "writes per second and account; 0: no limit")                                              \
    X(rate_read, "rate-read", NUMBER, "0", 0, 1000000,                                           \
      "reads per second and account or address; 0: no limit")                                    \
    X(group_rate, "group-rate", NUMBER, "500", 0, 1000000,                                       \
      "messages, edits and deletions per second and group, on each node; 0: no limit")           \
    X(streams_max, "streams-max", NUMBER, "10000", 0, 1000000,                                   \
      "open streams at most; each uses a connection; 0: none")                                   \
    X(streams_person, "streams-person", NUMBER, "16", 1, 64,                                     \
      "open streams of one person on each node")                                                 \
    X(stream_life, "stream-life", SPAN, "1h", 1000, INT64_C(86400000),                           \
      "a stream ends after this time and its client reconnects")                                 \
    X(stream_heartbeat, "stream-heartbeat", SPAN, "20s", 100, 3600000,                           \
      "how long a stream is silent before a comment is sent")                                    \
    X(retain_events, "retain-events", SPAN, "7d", 0, INT64_C(315360000000),                      \
      "how long events are kept for replays and subscribers")                                    \
    X(retain_deliveries, "retain-deliveries", SPAN, "3d", 0, INT64_C(315360000000),              \
      "how long the history of a retried delivery is kept")                                      \
    X(retain_dead, "retain-dead", SPAN, "30d", 0, INT64_C(315360000000),                         \
      "how long dead letters are kept; 0: until an operator decides")                            \
    X(dedup_retention, "dedup-retention", SPAN, "35d", 0, INT64_C(315360000000),                 \
      "how long consumers with external effects remember what they did; 0: for ever")            \
    X(deleted_retention, "deleted-retention", SPAN, "7d", 0, INT64_C(315360000000),              \
      "how long the text of deleted posts and comments is kept")                                 \
    X(erase_messages, "erase-messages", SWITCH, "on", 0, 0,                                      \
      "deleting an account erases the text of its messages in groups and chats")                 \
    X(replay_rate, "replay-rate", NUMBER, "1000", 1, 1000000,                                    \
      "events per second of a replay that names no rate")                                        \
    X(guard_free, "guard-free", SIZE, "256M", 0, INT64_C(1125899906842624),                      \
      "free disk below which new posts are refused; 0: not checked")                             \
    X(guard_backlog, "guard-backlog", NUMBER, "5000000", 0, INT64_C(1000000000000),              \
      "undone events above which new posts are refused; 0: not checked")                         \
    X(guard_reserve, "guard-reserve", SIZE, "8M", 0, INT64_C(68719476736),                       \
      "disk space reserved for deletes on a full disk; 0: none")                                 \
    X(drain_grace, "drain-grace", SPAN, "10s", 0, 600000,                                        \
      "how long SIGTERM waits for requests in flight")

/* Names of before, which still work, with a warning, until the next version. old name, id */
#define SETTINGS_RENAMED(X)                                                                      \
    X("inbox-retention", dedup_retention)                                                        \
    X("brake-free", guard_free)                                                                  \
    X("brake-backlog", guard_backlog)                                                            \
    X("brake-reserve", guard_reserve)
/* clang-format on */

enum setting_kind {
    SETTING_TEXT,
    SETTING_URL,
    SETTING_FOLDER,
    SETTING_ADDRESS,
    SETTING_LEVEL,
    SETTING_SWITCH,
    SETTING_NUMBER, /* from here on kept as int64_t */
    SETTING_SPAN,
    SETTING_SIZE
};
enum setting_source { FROM_DEFAULT, FROM_FILE, FROM_ENVIRONMENT, FROM_FLAG };

/* clang-format off */
enum setting_id {
#define SETTING_ENUM(id, name, kind, def, min, max, help) SETTING_ID_##id,
    SETTINGS_TABLE(SETTING_ENUM)
#undef SETTING_ENUM
    SETTING_COUNT
};
/* clang-format on */

struct settings {
#define SETTING_FIELD_TEXT(id)                             const char *id;
#define SETTING_FIELD_URL(id)                              const char *id;
#define SETTING_FIELD_FOLDER(id)                           const char *id;
#define SETTING_FIELD_ADDRESS(id)                          const char *id;
#define SETTING_FIELD_LEVEL(id)                            const char *id;
#define SETTING_FIELD_NUMBER(id)                           int64_t id;
#define SETTING_FIELD_SWITCH(id)                           bool id;
#define SETTING_FIELD_SPAN(id)                             int64_t id##_ms;
#define SETTING_FIELD_SIZE(id)                             int64_t id##_bytes;
#define SETTING_FIELD(id, name, kind, def, min, max, help) SETTING_FIELD_##kind(id)
    SETTINGS_TABLE(SETTING_FIELD)
#undef SETTING_FIELD
    /* each value as it was written and where it came from, for `fantail config` */
    char *given[SETTING_COUNT];
    enum setting_source from[SETTING_COUNT];
    char *file; /* the file that was read; NULL: none */
};

void settings_default(struct settings *s);
/* Reads flags out of argv (both `--name value` and `--name=value`), the environment and the file
 * (--config FILE, else DATA/fantail.conf when it exists). Leaves other arguments in `rest`
 * (argv-like, NULL-terminated, at most argc entries) for the command to read. On failure `why`
 * names the setting, the value and the mistake. */
enum err settings_load(struct settings *s, int argc, char **argv, char **rest, int *rest_count,
                       char why[300]);
void settings_done(struct settings *s);
/* Replaces the password of each URL in the text by "*", in place: after "user:", and in a query. */
void settings_hide_passwords(char *text);
/* The value as it was given, without a password. */
void settings_shown(const struct settings *s, enum setting_id id, char *out, size_t size);
/* Variables that begin with FANTAIL_ but name no setting: most likely misspelled. */
void settings_unknown_environment(void (*visit)(void *ctx, const char *variable), void *ctx);
/* "celebrity-threshold" and so on, and what it does, in table order, until SETTING_COUNT. */
const char *settings_name(enum setting_id id);
const char *settings_help(enum setting_id id);
/* A time the way that settings are written: 30d, 12h, 5m, 10s, 250ms or 0. */
bool settings_parse_span(const char *text, int64_t *ms);
/* HOST:PORT, [::1]:PORT or :PORT (every address). */
bool settings_split_address(const char *address, char host[256], uint16_t *port);
