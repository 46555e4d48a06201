/* What the contract cases of the views and their three ports share: a driver under test on a folder
 * of its own, and words for what the tests say. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "port/event.h"
#include "port/views.h"

enum { CAP = 40, PULL_CAP = 10, PEOPLE = 400 };

#define NOW_MS INT64_C(1800000000000)
#define DAY_MS INT64_C(86400000)

struct place {
    char folder[64];
    char path[96];
    struct manual_clock clock;
};

struct driver {
    const char *name;
    struct views *(*open)(struct place *p);
    void (*clear)(void); /* before each test; NULL: the folder is empty anyway */
    bool lasting;        /* applied changes outlive a close, without a save */
};

struct fixture {
    const struct driver *driver;
    struct place place;
    struct views *v;
};

int set_up(void **state); /* *state: the driver; then the fixture */
int tear_down(void **state);
void reopen(struct fixture *f);

/* ---- words for what the tests say ---- */

struct members {
    uint64_t handles[PEOPLE * 2];
    size_t n, pages;
};

struct page {
    uint64_t ids[2000];
    size_t n;
    uint64_t floor;
};

void apply(struct views *v, enum view_change_kind kind, bool on, uint64_t account, uint64_t other,
           int64_t value);
void account(struct views *v, uint64_t id);
void follow(struct views *v, uint64_t viewer, uint64_t author);
void unfollow(struct views *v, uint64_t viewer, uint64_t author);
void post_pulled(struct views *v, uint64_t author, uint64_t post);
bool sees(struct views *v, uint64_t viewer, uint64_t author);
struct members walk(struct views *v, uint64_t author, struct audience_cursor cursor, size_t page);
struct members followers(struct views *v, uint64_t author);
size_t push(struct views *v, uint64_t post, const struct members *m);
size_t fan_out(struct views *v, uint64_t author, uint64_t post);
struct page home_below(struct views *v, uint64_t viewer, uint64_t below, size_t max);
struct page home(struct views *v, uint64_t viewer);
void assert_home(struct views *v, uint64_t viewer, const uint64_t *ids, size_t n, uint64_t floor);
void dropped_account(struct views *v, uint64_t id);

#define HOME_IS(v, viewer, floor, ...)                                                             \
    assert_home((v), (viewer), (const uint64_t[]){__VA_ARGS__},                                    \
                sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (floor))

/* ---- the cases ---- */

/* One list for each port. */
#define VIEWS_CASES(X)                                                                             \
    X(changes_can_be_applied_again)                                                                \
    X(changes_are_seen_in_order)                                                                   \
    X(an_account_that_exists_is_not_reset)                                                         \
    X(the_latest_event_counts_in_whatever_order)                                                   \
    X(many_follows_at_once_are_each_there)                                                         \
    X(what_is_loaded_late_undoes_no_event)                                                         \
    X(many_follows_with_events_are_each_there)                                                     \
    X(the_latest_event_counts_among_many_follows)                                                  \
    X(a_saved_state_comes_back)                                                                    \
    X(without_a_save_nothing_comes_back)                                                           \
    X(the_last_save_counts)                                                                        \
    X(a_cleared_driver_has_lost_everything)                                                        \
    X(a_cleared_driver_is_not_found_complete)                                                      \
    X(a_suspect_driver_answers_as_one_that_lost_everything)                                        \
    X(suspicion_is_of_one_process)                                                                 \
    X(saves_succeed_while_no_master_dies)

#define GRAPH_CASES(X)                                                                             \
    X(removals_count_at_once)                                                                      \
    X(strangers_are_not_visible)                                                                   \
    X(the_audience_is_everyone_once)                                                               \
    X(the_last_page_says_that_it_is_the_last)                                                      \
    X(who_follows_throughout_is_met_though_others_come_and_go)                                     \
    X(active_and_rest_are_everyone)                                                                \
    X(who_wakes_up_after_the_clock_was_set_back_is_met)                                            \
    X(a_sweep_goes_in_slices_and_around)                                                           \
    X(an_extent_counts_whom_a_walk_has_passed)                                                     \
    X(neighbours_come_by_id)

#define TIMELINES_CASES(X)                                                                         \
    X(a_push_adds_once)                                                                            \
    X(several_posts_are_pushed_at_once)                                                            \
    X(several_audiences_are_read_at_once)                                                          \
    X(members_need_not_be_sorted)                                                                  \
    X(a_timeline_never_exceeds_its_cap)                                                            \
    X(pages_below_a_cursor_continue)                                                               \
    X(a_dropped_timeline_takes_nothing)                                                            \
    X(a_retracted_post_is_out)                                                                     \
    X(the_home_of_an_unknown_account_is_not_found)                                                 \
    X(pushed_and_pulled_come_together)                                                             \
    X(pull_lists_of_the_muted_and_hidden_are_passed_over)                                          \
    X(many_pull_lists_are_merged)                                                                  \
    X(the_floor_is_the_highest_of_all_lists)                                                       \
    X(every_follower_finds_a_pulled_post_once_it_is_spread)                                        \
    X(own_posts_are_there_at_once)                                                                 \
    X(nothing_pushed_during_a_rebuild_is_lost)                                                     \
    X(two_rebuilds_at_once_agree)                                                                  \
    X(a_late_end_brings_no_old_state_back)                                                         \
    X(a_rebuild_keeps_the_newest)                                                                  \
    X(a_rebuild_anew_replaces_what_was_there)                                                      \
    X(a_rebuild_anew_wants_a_timeline_of_its_own)                                                  \
    X(a_rebuild_given_up_leaves_nothing_half_done)                                                 \
    X(backfill_wants_a_follower)                                                                   \
    X(an_incomplete_backfill_raises_the_floor)                                                     \
    X(backfill_during_a_rebuild_is_kept)                                                           \
    X(a_stamp_is_the_same_while_nothing_happens)                                                   \
    X(every_change_of_a_viewer_shows_in_the_stamp)                                                 \
    X(changes_of_others_show_where_they_count)                                                     \
    X(what_goes_and_comes_shows_nevertheless)                                                      \
    X(a_stamp_never_overlooks_a_difference)

#define INBOXES_CASES(X)                                                                           \
    X(a_member_is_met_and_has_the_group)                                                           \
    X(a_group_is_no_account)                                                                       \
    X(the_latest_word_about_a_member_counts)                                                       \
    X(active_and_rest_are_all_who_have_an_inbox)                                                   \
    X(members_say_whether_they_were_here)                                                          \
    X(several_messages_go_at_once)                                                                 \
    X(the_greatest_activity_counts)                                                                \
    X(who_writes_has_it_at_once)                                                                   \
    X(a_stranger_gets_what_is_pushed)                                                              \
    X(a_dropped_inbox_takes_nothing)                                                               \
    X(pages_of_an_inbox_continue)                                                                  \
    X(nothing_is_lost_between_the_view_and_truth)                                                  \
    X(a_busy_millisecond_is_read_in_pages)                                                         \
    X(what_happens_during_a_rebuild_is_kept)                                                       \
    X(two_rebuilds_of_an_inbox_agree)                                                              \
    X(an_inbox_is_rebuilt_anew)                                                                    \
    X(a_large_inbox_is_rebuilt)                                                                    \
    X(a_drop_spoils_rebuilds_under_way)                                                            \
    X(a_sweep_takes_inboxes_along)                                                                 \
    X(groups_and_inboxes_come_back)                                                                \
    X(a_lost_driver_knows_no_inbox)                                                                \
    X(listeners_are_told)

#define VIEWS_CASE_DECLARE(name) void name(void **state);
VIEWS_CASES(VIEWS_CASE_DECLARE)
GRAPH_CASES(VIEWS_CASE_DECLARE)
TIMELINES_CASES(VIEWS_CASE_DECLARE)
INBOXES_CASES(VIEWS_CASE_DECLARE)
#undef VIEWS_CASE_DECLARE
