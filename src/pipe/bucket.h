/* A token bucket: how much may begin in a second. It holds what its rate gives in 1/parts s, and at
 * least one token: in any span of t seconds at most rate × t + rate / parts (+ 1) begin. Tokens are
 * kept in millionths, so that microseconds times a rate add up exactly, without drift. Not
 * thread-safe. */
#pragma once

#include <stdint.h>

#define BUCKET_TOKEN INT64_C(1000000)

struct bucket {
    int64_t rate; /* a second; 0: no limit */
    int64_t parts;
    int64_t tokens_millionth, filled_us;
};

static inline int64_t bucket_size(const struct bucket *b)
{
    int64_t size = b->rate * BUCKET_TOKEN / b->parts;
    return size < BUCKET_TOKEN ? BUCKET_TOKEN : size;
}

static inline void bucket_add(struct bucket *b, int64_t millionth)
{
    int64_t room = bucket_size(b) - b->tokens_millionth;
    b->tokens_millionth += millionth < room ? millionth : room;
}

static inline void bucket_fill(struct bucket *b, int64_t now_us)
{
    int64_t elapsed_us = now_us - b->filled_us;
    if (elapsed_us <= 0)
        return;
    b->filled_us = now_us;
    /* A second fills any bucket, and keeps the product far from overflow. */
    bucket_add(b, (elapsed_us < BUCKET_TOKEN ? elapsed_us : BUCKET_TOKEN) * b->rate);
}

static inline void bucket_init(struct bucket *b, int64_t rate, int64_t parts, int64_t now_us)
{
    *b = (struct bucket){.rate = rate, .parts = parts, .filled_us = now_us};
    b->tokens_millionth = bucket_size(b);
}

/* The time until now counts at the old rate. */
static inline void bucket_set_rate(struct bucket *b, int64_t rate, int64_t now_us)
{
    bucket_fill(b, now_us);
    b->rate = rate;
    bucket_add(b, 0);
}

/* Takes up to `want` tokens. 0: none; *due_us is then lowered to the time of the next one. */
static inline uint32_t bucket_take(struct bucket *b, int64_t now_us, uint32_t want, int64_t *due_us)
{
    if (b->rate == 0)
        return want;
    bucket_fill(b, now_us);
    if (b->tokens_millionth < BUCKET_TOKEN) {
        int64_t lacking = BUCKET_TOKEN - b->tokens_millionth;
        int64_t due = b->filled_us + (lacking + b->rate - 1) / b->rate;
        *due_us = due < *due_us ? due : *due_us;
        return 0;
    }
    int64_t whole = b->tokens_millionth / BUCKET_TOKEN;
    uint32_t taken = whole < want ? (uint32_t)whole : want;
    b->tokens_millionth -= taken * BUCKET_TOKEN;
    return taken;
}

static inline void bucket_give_back(struct bucket *b, uint32_t unused)
{
    if (b->rate)
        bucket_add(b, unused * BUCKET_TOKEN);
}
