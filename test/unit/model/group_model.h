/* Groups as plain arrays, and a random act in them: each foretells what the store will answer, asks
 * it, and does the same to the arrays. */
#pragma once

#include "base/rand.h"
#include "group_place.h"
#include "model/group.h"

enum { PEOPLE = 8, GROUPS = 3, ENTRIES_MAX = 1600, CLIENT_IDS = 40, SEND_MAX = 8 };

struct m_entry {
    int kind, author, subject, target, body, edited_seq, client, sent_body, role;
    bool deleted;
    unsigned mentions;
    int64_t messages;
};
struct m_member {
    bool is, was, invited, muted, archived;
    int role, joined, left, read;
    uint64_t joined_id;
};
struct m_group {
    uint64_t id, last_id;
    int seq, messages, name, history, last_seq;
    struct m_entry log[ENTRIES_MAX];
    struct m_member members[PEOPLE];
};

extern struct group_place place;
extern struct rand rnd;
extern struct m_group model[GROUPS];

void model_begin(void); /* the store's groups, each with person 0 as its owner */
void model_act(void);   /* one random act, in the store and here */

bool m_sees(const struct m_group *g, int who, int seq);
struct m_group *group_of(uint64_t id);
int person_of(uint64_t id);
/* What a body's number stands for. */
struct str body_text(int body, char out[24]);
