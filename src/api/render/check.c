/* What a check found, and what an import made, as JSON. */
#include "api/render/render.h"
#include "model/import.h"
#include "model/truth.h"

static void write_ids(struct json_out *j, const char *key, const uint64_t *ids, size_t n)
{
    json_key(j, str_of(key));
    json_array_begin(j);
    for (size_t i = 0; i < n; i++)
        json_id(j, ids[i]);
    json_array_end(j);
}

static void write_id(struct json_out *j, const char *key, uint64_t id)
{
    if (!id)
        return;
    json_key(j, str_of(key));
    json_id(j, id);
}

void render_difference(struct json_out *j, const struct check_difference *d)
{
    static const char *const kinds[] = {[DIFFERENCE_FEED] = "feed",
                                        [DIFFERENCE_INBOX] = "inbox",
                                        [DIFFERENCE_COUNTER] = "counter",
                                        [DIFFERENCE_EDGE] = "edge"};
    json_object_begin(j);
    json_put(j, "kind", str, str_of(kinds[d->kind]));
    if (d->kind == DIFFERENCE_EDGE) {
        write_id(j, d->group ? "member" : "follower", d->account);
        write_id(j, d->group ? "group" : "followee", d->group ? d->group : d->followee);
        json_put(j, "only_in", str, d->only_in_truth ? STR("truth") : STR("views"));
        json_object_end(j);
        return;
    }
    write_id(j, "group", d->group);
    write_id(j, "post", d->post);
    write_id(j, "account", d->account);
    if (d->kind == DIFFERENCE_COUNTER) {
        json_put(j, "counter", str, str_of(d->counter));
        json_put(j, "stored", i64, d->stored);
        json_put(j, "actual", i64, d->actual);
    } else {
        bool feed = d->kind == DIFFERENCE_FEED;
        if (!feed) {
            json_put(j, "archived", bool, d->archived);
            json_put(j, "from", u64, d->from);
        }
        write_ids(j, feed ? "missing" : "expected", d->missing, d->missing_count);
        write_ids(j, feed ? "extra" : "shown", d->extra, d->extra_count);
    }
    json_object_end(j);
}

void render_check_counts(struct json_out *j, const struct check_result *r)
{
    json_put(j, "feeds", u64, r->feeds);
    json_put(j, "feed_errors", u64, r->feed_errors);
    json_put(j, "inboxes", u64, r->inboxes);
    json_put(j, "inbox_errors", u64, r->inbox_errors);
    json_put(j, "counters", u64, r->counters);
    json_put(j, "counter_errors", u64, r->counter_errors);
    json_put(j, "edges", u64, r->edges);
    json_put(j, "edge_errors", u64, r->edge_errors);
    json_put(j, "repaired", u64, r->repaired);
}

void render_import(struct json_out *j, const struct import_result *r)
{
    json_object_begin(j);
    json_put(j, "accounts", u64, r->accounts);
    json_put(j, "follows", u64, r->follows);
    json_put(j, "posts", u64, r->posts);
    json_put(j, "likes", u64, r->likes);
    json_put(j, "comments", u64, r->comments);
    json_put(j, "repeated", u64, r->repeated);
    json_put(j, "rejected", u64, r->rejected);
    json_key(j, STR("errors"));
    json_array_begin(j);
    for (size_t i = 0; i < r->error_count; i++) {
        json_object_begin(j);
        json_put(j, "line", u64, r->errors[i].line);
        json_put(j, "detail", str, r->errors[i].detail);
        json_object_end(j);
    }
    json_array_end(j);
    json_object_end(j);
}
